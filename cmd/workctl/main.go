// Command workctl is the operator's command line. It shows and steers works, clusters and sets on the
// hub (docs/workctl.md), issues and renews certificates (docs/certificates.md), and makes and lists
// keys to sign and to seal with (docs/signing.md, docs/sealing.md). Installed as kubectl-work on the PATH, it is also "kubectl work".
//
//	workctl status
//	workctl explain work web -n cluster1
//	workctl certs ensure --config=certificates.yaml
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/runtime/command"
	"github.com/workwire/workwire/pkg/runtime/version"
)

// completePlugin is the name under which kubectl asks a plugin for completions.
const completePlugin = "kubectl_complete-work"

func main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	root := newCommand(name, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	if name == completePlugin {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	os.Exit(command.Main(root))
}

// Groups of commands in the help.
const (
	groupSee    = "see"
	groupSteer  = "steer"
	groupBroker = "broker"
	groupSetup  = "setup"
)

// newCommand returns the command under the name that it is called by.
func newCommand(name string, streams cli.Streams) *cobra.Command {
	root := group("workctl", "Operate an installation of Workwire")
	root.Version = version.Version
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	options := &cli.Options{Streams: streams}
	options.AddFlags(root.PersistentFlags())
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := options.Validate(); err != nil {
			return err
		}
		options.In = command.Input(cmd.Context(), options.In)
		return ignored(cmd, root.PersistentFlags())
	}
	root.SetFlagErrorFunc(usageError)

	root.AddGroup(
		&cobra.Group{ID: groupSee, Title: "See what is going on:"},
		&cobra.Group{ID: groupSteer, Title: "Steer works, clusters and sets:"},
		&cobra.Group{ID: groupBroker, Title: "Talk to the broker and to clusters:"},
		&cobra.Group{ID: groupSetup, Title: "Set up:"},
	)
	certs := group("certs", "Issue and renew the certificates of hubs, brokers and agents from one authority")
	certs.AddCommand(ensureCommand(streams.Out, streams.Err), showCommand(streams.Out), secretCommand(streams.Out),
		rotateCommand(options), revokeCommand(streams.Out))
	add(root, groupSee, statusCommand(options), getCommand(options), describeCommand(options), explainCommand(options), waitCommand(options))
	add(root, groupSteer, rolloutCommand(options), pauseCommand(options, true), pauseCommand(options, false), revokeClusterCommand(options), forgetCommand(options))
	add(root, groupBroker, brokerCommands(options)...)
	add(root, groupSetup, certs, keysCommand(streams.Out), tokenCommand(options))
	if strings.HasPrefix(name, "kubectl") {
		root.Use = "kubectl-work"
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: pluginName}
		asPlugin(root)
	}
	return root
}

// pluginName is how the command is called as a plugin of kubectl.
const pluginName = "kubectl work"

// asPlugin makes the help of cmd and its subcommands name the plugin.
func asPlugin(cmd *cobra.Command) {
	cmd.Long = strings.ReplaceAll(cmd.Long, "workctl ", pluginName+" ")
	cmd.Example = strings.ReplaceAll(cmd.Example, "workctl ", pluginName+" ")
	for _, sub := range cmd.Commands() {
		asPlugin(sub)
	}
}

// offline are the commands that read and write files only, and the flags of all commands that they use. One command of certs asks a hub.
var offline = map[string][]string{"certs": {"color"}, "rotate-authority": {"color", "kubeconfig", "context"}, "keys": {"color"}, "wrap": {"color", "namespace"}, "render": {"color", "namespace"}}

// ignored returns an error for the first flag of all commands that is set and has no effect on cmd.
func ignored(cmd *cobra.Command, shared *pflag.FlagSet) (err error) {
	top := cmd
	for top.HasParent() && top.Parent().HasParent() {
		top = top.Parent()
	}
	used, ok := offline[cmd.Name()]
	if !ok {
		used, ok = offline[top.Name()]
	}
	if !ok {
		return nil
	}
	shared.VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains(used, f.Name) && err == nil {
			err = usageError(cmd, cli.Usagef("--%s has no effect on %s, which talks to no hub and no broker", f.Name, cmd.CommandPath()))
		}
	})
	return err
}

// add adds commands to a group of the help.
func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.GroupID = group
		root.AddCommand(cmd)
	}
}

// group returns a command that has only subcommands.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, SilenceUsage: true, SilenceErrors: true, Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// leaf completes a command that does something: its errors are printed once, without the usage, and
// invalid arguments have the exit code of usage errors.
func leaf(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors, cmd.DisableFlagsInUseLine = true, true, true
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(cmd, err)
		}
		return nil
	}
	return cmd
}

// unknownCommand refuses arguments of a command that has only subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
		err = fmt.Errorf("%w, did you mean %s?", err, strings.Join(names, " or "))
	}
	return usageError(cmd, err)
}

func usageError(cmd *cobra.Command, err error) error {
	return cli.Usagef("%w\nSee %s --help", err, cmd.CommandPath())
}

// invalid returns a usage error with all of errs, nil if none is one.
func invalid(cmd *cobra.Command, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return usageError(cmd, err)
	}
	return nil
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/runtime/command"
	"github.com/workwire/workwire/pkg/security/certificates"
)

// files are the flags that all certs commands have.
type files struct {
	config, dir, owner string
}

func (f *files) section() command.Section {
	return command.Section{Title: "Files", Bind: func(fs *pflag.FlagSet) {
		fs.StringVar(&f.config, "config", f.config, "YAML file that lists the certificates, see docs/certificates.md; required")
		fs.StringVar(&f.dir, "dir", f.dir, "base of the relative directories in --config (default: the directory of that file)")
	}}
}

// writeSection returns the section for commands that write files.
func (f *files) writeSection() command.Section {
	read := f.section()
	return command.Section{Title: read.Title, Bind: func(fs *pflag.FlagSet) {
		read.Bind(fs)
		fs.StringVar(&f.owner, "owner", f.owner, "owner of the certificates' files as numeric UID:GID (default: the owner of their directory). The authority's files belong to this process")
	}}
}

func (f *files) validate() []error {
	var errs []error
	if f.config == "" {
		errs = append(errs, errors.New("--config is required: the YAML file that lists the certificates"))
	}
	if _, err := parseOwner(f.owner); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// parseOwner parses UID:GID. It returns nil for "".
func parseOwner(text string) (*certificates.Owner, error) {
	if text == "" {
		return nil, nil
	}
	user, group, _ := strings.Cut(text, ":")
	uid, userErr := strconv.ParseUint(user, 10, 31)
	gid, groupErr := strconv.ParseUint(group, 10, 31)
	if userErr != nil || groupErr != nil {
		return nil, fmt.Errorf("--owner %q must be numeric UID:GID, such as 65532:65532", text)
	}
	return &certificates.Owner{UID: int(uid), GID: int(gid)}, nil
}

// manager reads the configuration file and returns a manager for it.
func (f *files) manager() (*certificates.Manager, error) {
	config, err := certificates.Load(f.config)
	if err != nil {
		return nil, err
	}
	owner, err := parseOwner(f.owner)
	if err != nil {
		return nil, err
	}
	return certificates.New(certificates.ManagerConfig{
		Config: config, Dir: cmp.Or(f.dir, filepath.Dir(f.config)), Owner: owner,
	})
}

// with returns a command's Run function that calls run with a manager.
func (f *files) with(run func(*certificates.Manager) error) func(context.Context) error {
	return func(context.Context) error {
		manager, err := f.manager()
		if err != nil {
			return err
		}
		return run(manager)
	}
}

func ensureCommand(stdout, stderr io.Writer) *cobra.Command {
	var (
		f     files
		renew []string
		every time.Duration
	)
	once := f.with(func(manager *certificates.Manager) error {
		report, err := manager.Ensure(renew...)
		printReport(stdout, stderr, report)
		return err
	})
	return configured(command.Config{
		Use:   "ensure --config=FILE",
		Short: "Issue missing certificates and renew those that are due",
		Long: "Issues the certificates that are missing. Renews those past two thirds of their lifetime, those that\n" +
			"are revoked, and those whose entry in --config has changed. Keeps all others.",
		Sections: []command.Section{f.writeSection(), {Title: "Renewal", Bind: func(fs *pflag.FlagSet) {
			fs.StringSliceVar(&renew, "renew", nil, "names of certificates to renew even if they are not due, or all")
			fs.DurationVar(&every, "every", 0, "repeat at this interval, at least 1s, such as 12h; 0 runs once")
		}}},
		Validate: func() []error {
			errs := f.validate()
			if every < 0 || every > 0 && every < time.Second {
				errs = append(errs, fmt.Errorf("--every must be at least 1s, or 0 to run once, got %s", every))
			}
			if every > 0 && len(renew) > 0 {
				errs = append(errs, errors.New("--renew and --every exclude each other: the certificates would be renewed at every interval"))
			}
			return errs
		},
		Run: func(ctx context.Context) error {
			if every == 0 {
				return once(ctx)
			}
			wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
				if err := once(ctx); err != nil {
					_, _ = fmt.Fprintln(stderr, "error:", err)
				}
			}, every)
			return nil
		},
	})
}

// printReport prints the changes, one on a line, and the number of kept certificates.
func printReport(stdout, stderr io.Writer, report certificates.Report) {
	printLine := func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) }
	if report.Authority != "" {
		printLine("authority: %s", report.Authority)
	}
	kept := 0
	for _, o := range report.Outcomes {
		switch {
		case o.RenewalReason != "":
			printLine("%s: issued until %s (%s)", o.Name, formatTime(o.NotAfter), o.RenewalReason)
		case o.Updated:
			printLine("%s: kept, trusted authorities updated", o.Name)
		default:
			kept++
		}
	}
	if kept > 0 {
		printLine("%d certificates unchanged", kept)
	}
	for _, w := range report.Warnings {
		_, _ = fmt.Fprintln(stderr, "warning:", w)
	}
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

func showCommand(stdout io.Writer) *cobra.Command {
	var f files
	var format cli.FormatFlag
	cmd := configured(command.Config{
		Use:   "show --config=FILE",
		Short: "Show the status of the certificates",
		Long:  "Shows the trusted authorities and the status of every certificate in --config. It changes nothing.",
		Sections: []command.Section{f.section(), {Title: "Output", Bind: func(fs *pflag.FlagSet) {
			format.Bind(fs, cli.Table, cli.JSON, cli.YAML, cli.JSONPath, cli.Name)
		}}},
		Validate: f.validate,
		Run: f.with(func(manager *certificates.Manager) error {
			status, err := manager.Status()
			if err != nil {
				return err
			}
			return writeStatus(stdout, format.Format(), status)
		}),
	})
	format.Complete(cmd)
	return cmd
}

// shownAuthority and shownCertificate are those of -o json.
type (
	shownAuthority struct {
		Name     string    `json:"name"`
		Place    string    `json:"place"` // current, next or former
		NotAfter time.Time `json:"notAfter"`
		Revoked  int       `json:"revoked"`
	}
	shownCertificate struct {
		Name     string    `json:"name"`
		Role     string    `json:"role"`
		Hosts    []string  `json:"hosts,omitempty"`
		Issuer   string    `json:"issuer,omitempty"`
		NotAfter time.Time `json:"notAfter,omitzero"`
		Due      string    `json:"due,omitempty"` // why it is to be renewed; empty if it is good
	}
)

func writeStatus(stdout io.Writer, format cli.Format, status certificates.Status) error {
	switch format {
	case cli.Table:
		return printStatus(stdout, status)
	case cli.Name:
		for _, c := range status.Certificates {
			if _, err := fmt.Fprintln(stdout, c.Name); err != nil {
				return err
			}
		}
		return nil
	}
	authorities, certificates := []shownAuthority{}, []shownCertificate{}
	for _, a := range status.Authorities {
		authorities = append(authorities, shownAuthority{a.Name, a.Place, a.NotAfter, a.Revoked})
	}
	for _, c := range status.Certificates {
		certificates = append(certificates, shownCertificate{c.Name, string(c.Role), c.Hosts, c.Issuer, c.NotAfter, c.RenewalReason})
	}
	return cli.WriteJSON(stdout, format, map[string]any{"authorities": authorities, "certificates": certificates})
}

func printStatus(stdout io.Writer, status certificates.Status) error {
	for _, a := range status.Authorities {
		if _, err := fmt.Fprintf(stdout, "authority %s (%s), valid until %s, %d revoked\n", a.Name, a.Place, formatTime(a.NotAfter), a.Revoked); err != nil {
			return err
		}
	}
	table := cli.Rows{Header: []string{"NAME", "ROLE", "HOSTS", "ISSUER", "NOT AFTER", "STATE"}}
	for _, c := range status.Certificates {
		notAfter, state := "", "good"
		if !c.NotAfter.IsZero() {
			notAfter = formatTime(c.NotAfter)
		}
		if c.RenewalReason != "" {
			state = "due: " + c.RenewalReason
		}
		table.Add(c.Name, string(c.Role), strings.Join(c.Hosts, ","), c.Issuer, notAfter, state)
	}
	return table.Write(stdout, cli.Style{}, 0)
}

func secretCommand(stdout io.Writer) *cobra.Command {
	var (
		f                           files
		name, namespace, secretName string
	)
	return configured(command.Config{
		Use:   "secret --config=FILE --name=NAME --namespace=NAMESPACE",
		Short: "Print a certificate as a Secret for kubectl apply",
		Long: "Prints a certificate, its key and the trusted authorities as a Secret of type kubernetes.io/tls:\n" +
			"  workctl certs secret --config=FILE --name=cluster1 --namespace=workwire | kubectl apply -f -",
		Sections: []command.Section{f.section(), {Title: "Secret", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&name, "name", "", "name of the certificate in --config; required")
			fs.StringVar(&namespace, "namespace", "", "namespace of the Secret; required")
			fs.StringVar(&secretName, "secret-name", "", "name of the Secret (default: the name of the certificate)")
		}}},
		Validate: func() []error {
			return append(f.validate(), required(flag{"name", name}, flag{"namespace", namespace})...)
		},
		Run: f.with(func(manager *certificates.Manager) error {
			text, err := manager.Secret(name, namespace, secretName)
			if err != nil {
				return err
			}
			_, err = stdout.Write(text)
			return err
		}),
	})
}

type flag struct{ name, value string }

// required returns an error for each empty flag.
func required(flags ...flag) []error {
	var errs []error
	for _, f := range flags {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s is required", f.name))
		}
	}
	return errs
}

// nextActions are the actions that an operator takes after each step.
var nextActions = map[certificates.Step]string{
	certificates.Trust: "next: distribute ca.crt to all users and ca.crl to brokers; when all have them, continue with --step=issue",
	certificates.Issue: "next: distribute all certificates to their users; when all have them, continue with --step=drop",
	certificates.Drop:  "next: distribute ca.crt to all users; after that, no user accepts the previous authority",
}

func rotateCommand(o *cli.Options) *cobra.Command {
	var (
		f     files
		step  string
		force bool
	)
	return configured(command.Config{
		Use:   "rotate-authority --config=FILE --step=trust|issue|drop",
		Short: "Replace the authority in three steps without an outage",
		Long: "Replaces the authority in three steps. A step may be repeated. Before the next step, distribute the\n" +
			"written files to all their users:\n" +
			"  trust   create the next authority, and trust it besides the current one\n" +
			"  issue   make the next authority the current one, and issue all certificates again\n" +
			"  drop    no longer trust the previous authority\n" +
			"With --context or --kubeconfig of a hub, it says which clusters that joined with a token have not renewed\n" +
			"their certificate yet; they do so by themselves. Repeat the step issue to see how far they are.",
		Sections: []command.Section{f.writeSection(), {Title: "Replacement", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&step, "step", "", "trust, issue or drop, in this order; required")
			fs.BoolVar(&force, "force", false, "drop the previous authority although clusters have not renewed their certificate; they are disconnected until they have")
		}}},
		Validate: func() []error {
			errs := f.validate()
			if nextActions[certificates.Step(step)] == "" {
				errs = append(errs, fmt.Errorf("--step must be trust, issue or drop, got %q", step))
			}
			return errs
		},
		Run: func(ctx context.Context) error {
			manager, err := f.manager()
			if err != nil {
				return err
			}
			if certificates.Step(step) == certificates.Drop && !force {
				behind, err := tellBehind(ctx, o, manager, io.Discard)
				if err != nil {
					return err
				}
				if behind > 0 {
					return cli.Errorf("%d clusters have not renewed their certificate", behind).Do("repeat --step=issue to see which; or drop with --force: they are disconnected until they have renewed")
				}
			}
			report, err := manager.Rotate(certificates.Step(step))
			if report.Authority == "" && err == nil {
				report.Authority = "unchanged, the step was taken before"
			}
			printReport(o.Out, o.Err, report)
			if err == nil {
				_, err = tellBehind(ctx, o, manager, o.Out)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(o.Out, nextActions[certificates.Step(step)])
			return err
		},
	})
}

// tellBehind prints which clusters of the hub that --kubeconfig or --context names have not renewed their certificate, and returns their
// number: 0 if none is named.
func tellBehind(ctx context.Context, o *cli.Options, manager *certificates.Manager, out io.Writer) (int, error) {
	if o.Kubeconfig == "" && o.Context == "" {
		return 0, nil
	}
	status, err := manager.Status()
	if err != nil {
		return 0, err
	}
	clients, err := clientsOf(o)
	if err != nil {
		return 0, err
	}
	behind, all, err := join.Behind(ctx, clients, status.Authorities[0].KeyID, time.Now()) // the current one is first
	if err != nil {
		return 0, cli.APIError("list the clusters", err)
	}
	_, err = fmt.Fprintf(out, "%d of %d clusters that joined with a token have a certificate of %s\n", all-len(behind), all, status.Authorities[0].Name)
	if err == nil && len(behind) > 0 {
		_, err = fmt.Fprintf(out, "not yet: %s\n", strings.Join(behind, ", "))
	}
	return len(behind), err
}

func revokeCommand(stdout io.Writer) *cobra.Command {
	var (
		f    files
		name string
	)
	return configured(command.Config{
		Use:   "revoke --config=FILE --name=NAME",
		Short: "Revoke the certificates that were issued to a name",
		Long: "Adds all certificates that were issued to a name and have not expired to the revocation list of the\n" +
			"brokers, ca.crl. The name need not be in --config anymore.",
		Sections: []command.Section{f.writeSection(), {Title: "Revocation", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&name, "name", "", "name of the certificate; required")
		}}},
		Validate: func() []error { return append(f.validate(), required(flag{"name", name})...) },
		Run: f.with(func(manager *certificates.Manager) error {
			count, err := manager.Revoke(name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "%s: %d certificates revoked\nnext: distribute ca.crl to the brokers; "+
				"`workctl certs ensure` issues a new certificate if %s is still in --config\n", name, count, name)
			return err
		}),
	})
}

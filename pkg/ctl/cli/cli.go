// Package cli is the frame of workctl's commands: the flags that name the hub and the broker, output
// as text, JSON or YAML, colours, and errors with exit codes.
//
//	options := cli.Options{Streams: cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}}
//	options.AddFlags(root.PersistentFlags())
//	...
//	config, err := options.RESTConfig() // the hub's API
//	broker, err := options.Broker()     // the transport configuration
//
// Results go to Out, and everything else to Err, so that Out can be piped.
package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/workwire/workwire/pkg/runtime/version"
	"github.com/workwire/workwire/pkg/transport/config"
)

// TransportEnv is the environment variable that replaces --transport.
const TransportEnv = "WORKCTL_TRANSPORT"

// Streams are the input and the outputs of a command.
type Streams struct {
	// In is the standard input.
	In io.Reader
	// Out receives results, Err receives errors, warnings and progress.
	Out, Err io.Writer
}

// Options are the flags that the commands share. They are read-only once flags are parsed.
type Options struct {
	Streams
	// Kubeconfig is the path of the kubeconfig; empty for $KUBECONFIG, else ~/.kube/config, else the
	// pod's service account.
	Kubeconfig string
	// Context is a context of the kubeconfig; empty for the current one.
	Context string
	// Namespace is the namespace of the hub; empty for that of the context.
	Namespace string
	// Transport is the path of the transport configuration file; empty for $WORKCTL_TRANSPORT.
	Transport string
	// Color is auto, always or never.
	Color string
}

// AddFlags adds the flags that set o.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file of the hub (default: $KUBECONFIG, else ~/.kube/config)")
	fs.StringVar(&o.Context, "context", "", "context of the kubeconfig (default: its current context)")
	fs.StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the hub: the cluster's name for works (default: the namespace of the context)")
	fs.StringVar(&o.Transport, "transport", "",
		"transport configuration file with the broker's address, credentials and topics, as --transport-config of work-hub (default: $"+TransportEnv+")")
	fs.StringVar(&o.Color, "color", "auto", "auto, always or never; auto means on terminals, unless $NO_COLOR is set")
}

// Validate returns an error for each invalid flag. It reads no files.
func (o *Options) Validate() error {
	switch o.Color {
	case "", "auto", "always", "never":
		return nil
	}
	return Usagef("--color must be auto, always or never, got %q", o.Color)
}

func (o *Options) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	overrides.Context.Namespace = o.Namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// RESTConfig returns the configuration of clients of the hub's API. Clients made from it have no
// rate limit of their own: the API server's priority and fairness limits them.
func (o *Options) RESTConfig() (*rest.Config, error) {
	c, err := o.clientConfig().ClientConfig()
	if err != nil {
		return nil, Errorf("read the kubeconfig: %w", err).
			Do("name the hub's kubeconfig with --kubeconfig or $KUBECONFIG, and one of its contexts with --context")
	}
	c.UserAgent = "workctl/" + version.Version
	c.QPS = -1
	return c, nil
}

// HubNamespace returns --namespace, else the namespace of the context, else "default".
func (o *Options) HubNamespace() (string, error) {
	name, _, err := o.clientConfig().Namespace()
	if err != nil {
		return "", Errorf("read the kubeconfig: %w", err).Do("name the hub's kubeconfig with --kubeconfig or $KUBECONFIG")
	}
	return name, nil
}

// Broker reads the transport configuration file.
func (o *Options) Broker() (config.Config, error) {
	path := o.Transport
	if path == "" {
		path = os.Getenv(TransportEnv)
	}
	if path == "" {
		return config.Config{}, Usagef("--transport is required: the transport configuration file of the hub or of a source, see docs/protocol.md")
	}
	c, err := config.Load(path)
	if err != nil {
		return config.Config{}, fmt.Errorf("%w (--transport)", err)
	}
	return c, nil
}

// Terminal returns the width and height of the terminal that Out is, in characters. ok is false if
// Out is none.
func (o *Options) Terminal() (width, height int, ok bool) {
	file, isFile := o.Out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	return width, height, err == nil
}

// Interactive reports whether somebody can be asked: In is a terminal.
func (o *Options) Interactive() bool {
	in := o.In
	if wrapper, ok := in.(interface{ Unwrap() io.Reader }); ok { // command.Input
		in = wrapper.Unwrap()
	}
	file, isFile := in.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// Style returns how Out is coloured.
func (o *Options) Style() Style {
	switch o.Color {
	case "always":
		return Style{Colors: true}
	case "never":
		return Style{}
	}
	_, _, terminal := o.Terminal()
	return Style{Colors: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

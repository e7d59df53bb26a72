// Package logging configures the structured log of a command: one handler for its own log and for
// that of the Kubernetes libraries.
//
//	options := logging.NewOptions()
//	options.AddFlags(flags)
//	...
//	logger := options.Logger(os.Stderr)
//	options.SetKlog(logger)
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/workwire/workwire/pkg/runtime/redaction"
)

// Formats of log lines.
const (
	Text = "text"
	JSON = "json"
)

// maxVerbosity is the highest verbosity that the libraries use.
const maxVerbosity = 10

// Options configure the log by flags. Create them with [NewOptions].
type Options struct {
	// Format is Text or JSON.
	Format string
	// Verbosity is 0 for operators, 4 for debugging (slog's Debug level), and up to 10 for
	// everything that the libraries log, including requests.
	Verbosity int
}

// NewOptions returns the defaults: text, verbosity 0.
func NewOptions() Options { return Options{Format: Text} }

// AddFlags adds the flags that set o, with the current values of o as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Format, "log-format", o.Format, "format of the log on standard error: text or json")
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "verbosity of the log: 0 for operators, 4 for debugging, up to 10 for all requests of the libraries")
}

// Validate returns an error for each invalid flag.
func (o *Options) Validate() []error {
	var errs []error
	if o.Format != Text && o.Format != JSON {
		errs = append(errs, fmt.Errorf("--log-format must be %s or %s, got %q", Text, JSON, o.Format))
	}
	if o.Verbosity < 0 || o.Verbosity > maxVerbosity {
		errs = append(errs, fmt.Errorf("--v must be 0 to %d, got %d", maxVerbosity, o.Verbosity))
	}
	return errs
}

// Logger returns a logger that writes to w.
func (o *Options) Logger(w io.Writer) *slog.Logger {
	// As in logr, verbosity n is level -n: 4 is slog's Debug.
	options := &slog.HandlerOptions{Level: slog.Level(-o.Verbosity), ReplaceAttr: redact}
	if o.Format == JSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// redact removes values of objects from errors of the API server.
func redact(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.AnyValue(redaction.WithoutValues(err, false))
	}
	return a
}

// SetKlog makes the Kubernetes libraries, which log with klog, use logger, with the verbosity of o.
// Call it at the start of a command, before anything else runs: klog is global.
func (o *Options) SetKlog(logger *slog.Logger) {
	klog.SetLoggerWithOptions(logr.FromSlogHandler(logger.Handler()), klog.ContextualLogger(true))
	var level klog.Level
	_ = level.Set(strconv.Itoa(o.Verbosity)) // accepts every number
}

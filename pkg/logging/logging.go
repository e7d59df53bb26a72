// Package logging sets up the structured logs of a command: one handler for its
// own slog lines and for those of the Kubernetes libraries.
//
//	options := logging.NewOptions()
//	options.AddFlags(flags)
//	...
//	logger := options.Logger(os.Stderr)
//	options.Adopt(logger)
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// Formats of log lines.
const (
	Text = "text"
	JSON = "json"
)

// maxVerbosity is the most that the libraries distinguish.
const maxVerbosity = 10

// Options say how to log. Make them with [NewOptions].
type Options struct {
	// Format is Text or JSON.
	Format string
	// Verbosity is 0 for what an operator needs, 4 for debugging (slog's
	// Debug level), up to 10 for everything that the libraries have to say,
	// requests included.
	Verbosity int
}

// NewOptions gives the defaults: text, verbosity 0.
func NewOptions() Options { return Options{Format: Text} }

// AddFlags adds the flags that set o, with o's present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Format, "log-format", o.Format, "format of the log on stderr: text or json")
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "verbosity of the log: 0 normal, 4 debugging, up to 10 with the libraries' requests")
}

// Validate reports every fault of o, by flag and with what to do.
func (o *Options) Validate() []error {
	var faults []error
	if o.Format != Text && o.Format != JSON {
		faults = append(faults, fmt.Errorf("--log-format %q: want %s or %s", o.Format, Text, JSON))
	}
	if o.Verbosity < 0 || o.Verbosity > maxVerbosity {
		faults = append(faults, fmt.Errorf("--v %d: want a verbosity from 0 to %d", o.Verbosity, maxVerbosity))
	}
	return faults
}

// Logger makes a logger that writes to w. It starts nothing.
func (o *Options) Logger(w io.Writer) *slog.Logger {
	// Verbosity n is level -n, as logr has it: 4 is slog's Debug.
	options := &slog.HandlerOptions{Level: slog.Level(-o.Verbosity)}
	if o.Format == JSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Adopt makes the Kubernetes libraries, which log through klog, use logger, at
// o's verbosity. It is for the start of a command, before anything else runs:
// klog is one for the whole process.
func (o *Options) Adopt(logger *slog.Logger) {
	klog.SetLoggerWithOptions(logr.FromSlogHandler(logger.Handler()), klog.ContextualLogger(true))
	var level klog.Level
	_ = level.Set(strconv.Itoa(o.Verbosity)) // which accepts every number
}

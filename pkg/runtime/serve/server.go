package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/workwire/workwire/pkg/runtime/version"
)

// Limits of a request and of the shutdown.
const (
	headerTimeout   = 10 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 3 * time.Second
)

// NewRegistry returns a registry with the metrics of the Go runtime, of the process and of the build.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "workwire_build_info",
		Help:        "1; the labels are the version of Workwire and the version of Go that built it.",
		ConstLabels: prometheus.Labels{"version": version.Version, "goversion": runtime.Version()}})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Config is the configuration of a [Server].
type Config struct {
	// Options configure the listener.
	Options Options
	// Registry is served at /metrics; default [NewRegistry].
	Registry *prometheus.Registry
	// Ready are the checks of /readyz, all of which must pass.
	Ready []Check
	// Logger receives errors of requests; default slog.Default().
	Logger *slog.Logger
}

// Server serves metrics, health and profiles. Its methods are safe for concurrent use.
type Server struct {
	cfg       Config
	listening chan struct{}
	address   string // set before listening closes
}

// New returns a server that is not running. It reports every fault of cfg at once.
func New(cfg Config) (*Server, error) {
	errs := cfg.Options.Validate()
	for _, check := range cfg.Ready {
		if check.Name == "" || check.Func == nil {
			errs = append(errs, fmt.Errorf("serve: health check %q: name and function are required", check.Name))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.Registry == nil {
		cfg.Registry = NewRegistry()
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Server{cfg: cfg, listening: make(chan struct{})}, nil
}

// Listening returns a channel that is closed once the server accepts connections. It stays open
// forever if the listener is disabled or Run fails.
func (s *Server) Listening() <-chan struct{} { return s.listening }

// Addr returns the host:port of the listener, with the chosen port if the configured port is 0. It
// returns "" before [Server.Listening].
func (s *Server) Addr() string {
	select {
	case <-s.listening:
		return s.address
	default:
		return ""
	}
}

// Run serves until ctx ends, then waits up to 3 s for active requests and returns nil. It returns
// an error if the address is in use, or the certificate or the token cannot be read. If the
// listener is disabled, it only waits for ctx. A Server runs once.
func (s *Server) Run(ctx context.Context) error {
	if !s.cfg.Options.Enabled() {
		<-ctx.Done()
		return nil
	}
	handler, err := s.handler()
	if err != nil {
		return err
	}
	listener, err := Listen(ctx, s.cfg.Options.Address, s.cfg.Options.CertFile, s.cfg.Options.KeyFile)
	if err != nil {
		return fmt.Errorf("listen on %s for metrics and health (--listen-address): %w", s.cfg.Options.Address, err)
	}
	s.address = listener.Addr().String()
	s.cfg.Logger.Info("serving metrics and health", "address", s.address, "tls", s.cfg.Options.CertFile != "")
	close(s.listening)
	return HTTP(ctx, listener, handler, s.cfg.Logger)
}

// Listen returns a listener on an address, with TLS unless both files are empty; they are read again when they change. It returns an error if the
// address is in use or a file cannot be read.
func Listen(ctx context.Context, address, certFile, keyFile string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil || certFile == "" {
		return listener, err
	}
	secure, err := secured(listener, certFile, keyFile)
	if err != nil {
		_ = listener.Close()
	}
	return secure, err
}

// HTTP serves handler on listener until ctx ends, then waits up to 3 s for active requests and
// returns nil. It closes listener. Errors of connections go to logger.
func HTTP(ctx context.Context, listener net.Listener, handler http.Handler, logger *slog.Logger) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve metrics and health on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // a profile may take longer than the timeout
	}
	<-served
	return nil
}

// handler returns the handler of all paths, with authorization.
func (s *Server) handler() (http.Handler, error) {
	authorized, err := authorizer(s.cfg.Options.TokenFile, s.cfg.Logger)
	if err != nil {
		return nil, err
	}
	guarded := func(next http.Handler) http.Handler { return guard(authorized, next) }
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", guarded(promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelError),
	})))
	mux.Handle("GET /healthz", health("healthz", nil, authorized))
	mux.Handle("GET /readyz", health("readyz", s.cfg.Ready, authorized))
	if s.cfg.Options.Profiling {
		mux.Handle("/debug/pprof/", guarded(http.HandlerFunc(pprof.Index)))
		mux.Handle("/debug/pprof/cmdline", guarded(http.HandlerFunc(pprof.Cmdline)))
		mux.Handle("/debug/pprof/profile", guarded(http.HandlerFunc(pprof.Profile)))
		mux.Handle("/debug/pprof/symbol", guarded(http.HandlerFunc(pprof.Symbol)))
		mux.Handle("/debug/pprof/trace", guarded(http.HandlerFunc(pprof.Trace)))
	}
	return mux, nil
}

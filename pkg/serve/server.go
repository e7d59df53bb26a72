package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of one request and of the shutdown.
const (
	headerTimeout   = 10 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 3 * time.Second
)

// NewRegistry makes a registry that holds the metrics of the Go runtime and of
// the process.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Config is what a [Server] is made of.
type Config struct {
	// Options say where to listen; they must have passed Validate.
	Options Options
	// Registry is served under /metrics; required.
	Registry *prometheus.Registry
	// Live are the checks of /healthz, all of which must pass. None: the process
	// is alive when it answers.
	Live []Check
	// Ready are the checks of /readyz, all of which must pass.
	Ready []Check
	// Logger is required.
	Logger *slog.Logger
}

// Server serves until its context ends. Its methods may be called from any
// goroutine.
type Server struct {
	cfg       Config
	listening chan struct{}
	address   string // set before listening closes
}

// New makes a server. It fails on options that [Options.Validate] refuses and on
// a check without name or function.
func New(cfg Config) (*Server, error) {
	if faults := cfg.Options.Validate(); len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	for _, check := range append(append([]Check(nil), cfg.Live...), cfg.Ready...) {
		if check.Name == "" || check.Func == nil {
			return nil, fmt.Errorf("serve: health check %q: name and function are required", check.Name)
		}
	}
	return &Server{cfg: cfg, listening: make(chan struct{})}, nil
}

// Listening is closed once the server accepts connections. It never is when the
// listener is switched off or Run has failed.
func (s *Server) Listening() <-chan struct{} { return s.listening }

// Addr is the address listened on, host:port with the port taken. It is empty
// until Listening is closed.
func (s *Server) Addr() string {
	select {
	case <-s.listening:
		return s.address
	default:
		return ""
	}
}

// Run listens and serves until ctx ends, then lets requests under way finish
// for at most 3 s and returns nil. It fails when the address is taken or a
// certificate or token can not be read. With the listener switched off it only
// waits for ctx. Run must be called once.
func (s *Server) Run(ctx context.Context) error {
	if !s.cfg.Options.Enabled() {
		<-ctx.Done()
		return nil
	}
	handler, err := s.handler()
	if err != nil {
		return err
	}
	var certificates *certificate
	if s.cfg.Options.CertFile != "" {
		certificates = &certificate{certFile: s.cfg.Options.CertFile, keyFile: s.cfg.Options.KeyFile}
		if _, err := certificates.get(nil); err != nil {
			return err
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Options.Address)
	if err != nil {
		return fmt.Errorf("listen on %s for metrics and health (--listen-address): %w", s.cfg.Options.Address, err)
	}
	s.address = listener.Addr().String()
	if certificates != nil {
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificates.get, NextProtos: []string{"http/1.1"},
		})
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	s.cfg.Logger.Info("serving metrics and health", "address", s.address, "tls", certificates != nil)
	close(s.listening)

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve metrics and health on %s: %w", s.address, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // a profile under way may take long: cut it
	}
	<-served
	return nil
}

// handler routes the paths and guards them.
func (s *Server) handler() (http.Handler, error) {
	authorized := func(*http.Request) bool { return true }
	if file := s.cfg.Options.TokenFile; file != "" {
		guard := &token{file: file}
		if _, err := guard.read(); err != nil {
			return nil, err
		}
		authorized = func(r *http.Request) bool {
			ok, err := guard.presentedBy(r)
			if err != nil {
				s.cfg.Logger.Error("refuse a request to the metrics listener", "error", err)
			}
			return ok
		}
	}
	guarded := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !authorized(r) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "a bearer token is required", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", guarded(promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelError),
	})))
	mux.Handle("GET /healthz", health("healthz", s.cfg.Live, authorized))
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

package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/broker/packet"
	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/runtime/tracing"
)

// Broker is an MQTT 5 broker for the topics of the protocol. Create it with [New] and run it once
// with [Broker.Run]. Its methods are safe for concurrent use.
type Broker struct {
	cfg      Config
	ready    chan struct{}
	addrs    []string // written before ready is closed, then constant
	httpAddr string   // likewise

	inspect func(sessionID string, h packet.Header) // see server.inspect
}

// New returns a broker that is not running. It reports every fault of cfg at once, does not listen
// and opens no file.
func New(cfg Config) (*Broker, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("broker configuration: %w", err)
	}
	return &Broker{cfg: cfg, ready: make(chan struct{})}, nil
}

// Ready returns a channel that is closed once every listener accepts clients. It stays open forever
// if Run fails before that, so wait for both.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Addr returns the host:port of the first listener, with the chosen port if the configured
// port is 0. It returns "" before [Broker.Ready].
func (b *Broker) Addr() string {
	if !b.isReady() {
		return ""
	}
	return b.addrs[0]
}

// HTTPAddr returns the host:port of metrics and health. It returns "" if they are not served, and
// before [Broker.Ready].
func (b *Broker) HTTPAddr() string {
	if !b.isReady() {
		return ""
	}
	return b.httpAddr
}

func (b *Broker) isReady() bool {
	select {
	case <-b.ready:
		return true
	default:
		return false
	}
}

// Run serves clients until ctx ends, then disconnects them, commits queued messages to disk and
// returns nil. It returns an error if a port, a file or the database cannot be used. A disk that is
// full later does not end it: messages that are not on disk are not acknowledged, and clients take
// what is queued. A Broker runs once.
func (b *Broker) Run(ctx context.Context) (err error) {
	limiter := limits.New(b.cfg.Limits)
	auth, err := newAuthenticator(b.cfg, limiter)
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	res, err := openResources(b.cfg)
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	defer func() { err = errors.Join(err, res.close()) }()

	registry := serve.NewRegistry() // of this broker alone, so that several can run in one process
	counters := newCounters(registry)
	s := &server{
		cfg: b.cfg, auth: auth, limiter: limiter, router: res.router, counters: counters,
		logger: b.cfg.Logger, stopping: make(chan struct{}), inspect: b.inspect,
		tracer: tracing.New(b.cfg.TracerProvider), revocations: res.revocations,
	}
	for _, l := range res.listeners {
		if l.tls != nil {
			s.tlsFiles = append(s.tlsFiles, l.tls)
		}
		b.addrs = append(b.addrs, l.socket.Addr().String())
	}
	operations := newOperations(s)
	registry.MustRegister(&collector{server: s, store: res.store, reloader: operations.reloader})
	handler, err := b.handler(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), operations.reloader.status)
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}

	// The store stops after the clients: its last batch holds their last changes.
	group, ctx := errgroup.WithContext(ctx)
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	if res.store != nil {
		group.Go(func() error { return res.store.Keep(storeCtx) })
	}
	group.Go(func() error { return everySecond(ctx, res.router.Tick) })
	group.Go(func() error {
		return everySecond(ctx, func() {
			operations.check(time.Now())
		})
	})
	if res.http != nil {
		b.httpAddr = res.http.Addr().String()
		group.Go(func() error { return serve.HTTP(ctx, res.http, handler, b.cfg.Logger) })
	}
	group.Go(func() error {
		defer stopStore()
		b.serveMQTT(ctx, res, s)
		return nil
	})
	err = group.Wait()
	b.cfg.Logger.Info("broker stopped")
	return err
}

// serveMQTT serves clients until ctx ends, then disconnects them.
func (b *Broker) serveMQTT(ctx context.Context, res *resources, s *server) {
	res.served = true
	for _, l := range res.listeners {
		go l.Serve(s) // Close waits for it
	}
	b.cfg.Logger.Info("broker ready", "addresses", b.addrs, "http", b.httpAddr, "sessions", res.router.Stats().Sessions)
	close(b.ready)
	<-ctx.Done()
	res.router.Stop()
	close(s.stopping)
	s.disconnectAll(cmp.Or(s.onStop.Load(), errStopping))
	for _, l := range res.listeners {
		l.Close()
	}
}

// everySecond calls f each second until ctx ends, and returns nil.
func everySecond(ctx context.Context, f func()) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			f()
		}
	}
}

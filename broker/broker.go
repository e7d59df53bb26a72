package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/serve"
)

// Broker is an MQTT 5 broker for the topics of the protocol. Create it with [New] and run it once
// with [Broker.Run]. Its methods are safe for concurrent use.
type Broker struct {
	cfg      Config
	ready    chan struct{}
	addrs    []string // written before ready is closed, then constant
	httpAddr string   // likewise
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
	auth, err := newAuthenticator(b.cfg)
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	res, err := openResources(b.cfg)
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	defer func() { err = errors.Join(err, res.close()) }()

	counters := newCounters()
	h := &hook{
		cfg: b.cfg, auth: auth, router: res.router, counters: counters,
		logger: b.cfg.Logger, stopping: make(chan struct{}),
	}
	server, err := b.newServer(res, h)
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
	group.Go(func() error { return everySecond(ctx, func() { tick(res.router, server) }) })
	group.Go(func() error { return everySecond(ctx, func() { h.recheckCertificates(time.Now()) }) })
	if res.http != nil {
		b.httpAddr = res.http.Addr().String()
		handler := b.handler(promhttp.HandlerFor(newRegistry(counters, &collector{router: res.router, server: server, store: res.store}), promhttp.HandlerOpts{}))
		group.Go(func() error { return serve.HTTP(ctx, res.http, handler, b.cfg.Logger) })
	}
	group.Go(func() error {
		defer stopStore()
		return b.serveMQTT(ctx, server, res, h)
	})
	err = group.Wait()
	b.cfg.Logger.Info("broker stopped")
	return err
}

// serveMQTT serves clients until ctx ends, then disconnects them.
func (b *Broker) serveMQTT(ctx context.Context, server *mqtt.Server, res *resources, h *hook) error {
	if err := server.Serve(); err != nil {
		return fmt.Errorf("serve MQTT: %w", err)
	}
	res.served = true
	b.cfg.Logger.Info("broker ready", "addresses", b.addrs, "http", b.httpAddr, "sessions", res.router.Stats().Sessions)
	close(b.ready)
	<-ctx.Done()
	res.router.Stop()
	close(h.stopping)
	h.disconnectAll()
	return server.Close()
}

// newServer returns a mochi-mqtt server with the hook and the listeners of res.
func (b *Broker) newServer(res *resources, h *hook) (*mqtt.Server, error) {
	server := mqtt.New(&mqtt.Options{
		Capabilities:             b.capabilities(),
		ClientNetReadBufferSize:  16 << 10,
		ClientNetWriteBufferSize: 16 << 10,
		Logger:                   slog.New(mochiHandler{b.cfg.Logger.Handler()}),
	})
	h.server = server
	if err := server.AddHook(h, nil); err != nil {
		return nil, err
	}
	for _, l := range res.listeners {
		if err := server.AddListener(l); err != nil {
			return nil, err
		}
		b.addrs = append(b.addrs, l.Address())
	}
	return server, nil
}

// capabilities returns what mochi-mqtt announces to clients and enforces.
func (b *Broker) capabilities() *mqtt.Capabilities {
	caps := mqtt.NewDefaultServerCapabilities()
	caps.MinimumProtocolVersion = 5
	caps.MaximumQos = 1                   // the protocol is idempotent: QoS 1 is enough
	caps.TopicAliasMaximum = 0            // mochi-mqtt checks access before it resolves aliases
	caps.MaximumMessageExpiryInterval = 0 // publishers alone limit how long messages last
	caps.ReceiveMaximum = b.cfg.ReceiveMaximum
	caps.MaximumClientWritesPending = 1024 // for $SYS only; other messages are in session queues
	caps.Compatibilities.NoInheritedPropertiesOnAck = true
	return caps
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

// tick expires sessions, and passes statistics to mochi-mqtt, which publishes them below $SYS.
func tick(router *session.Router, server *mqtt.Server) {
	router.Tick()
	stats := router.Stats()
	var dropped uint64
	for _, n := range stats.Dropped {
		dropped += n
	}
	atomic.StoreInt64(&server.Info.MessagesDropped, int64(dropped))
	atomic.StoreInt64(&server.Info.Inflight, int64(stats.Queued))
	atomic.StoreInt64(&server.Info.Subscriptions, int64(stats.Subscriptions))
}

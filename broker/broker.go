package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/broker/store"
)

// databaseFile is the name of the database in [Config.DataDir].
const databaseFile = "broker.db"

// Broker is an MQTT 5 broker for the topics of the protocol. Make one with [New] and run it
// once with [Broker.Run]. Its methods are safe for concurrent use.
type Broker struct {
	cfg      Config
	ready    chan struct{}
	addrs    []string // written before ready is closed, then constant
	httpAddr string   // likewise
}

// New returns a broker that is not running yet. It reports every fault of cfg at once, and
// neither listens nor opens a file.
func New(cfg Config) (*Broker, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("broker configuration: %w", err)
	}
	return &Broker{cfg: cfg, ready: make(chan struct{})}, nil
}

// Ready returns a channel that is closed once every listener accepts clients. When Run
// fails before, it is never closed: wait for both.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Addr returns the host:port of the first listener, with the port that was picked for port
// 0. It is "" before [Broker.Ready].
func (b *Broker) Addr() string {
	if addrs := b.Addrs(); len(addrs) > 0 {
		return addrs[0]
	}
	return ""
}

// Addrs returns the host:port of every listener, in the order of the configuration, or nil
// before [Broker.Ready].
func (b *Broker) Addrs() []string {
	if !b.isReady() {
		return nil
	}
	return b.addrs
}

// HTTPAddr returns the host:port of metrics and health, or "" when they are not served or
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

// Run serves clients until ctx ends, then disconnects them, makes what is queued durable
// and returns nil. It returns an error when a port, a file or the database cannot be used,
// also when that happens while it runs. A Broker runs once.
func (b *Broker) Run(ctx context.Context) (err error) {
	auth, err := newAuthenticator(b.cfg)
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	n, err := b.open()
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	defer func() { err = errors.Join(err, n.close()) }()

	stopping := make(chan struct{})
	counters := newCounters()
	h := &hook{
		cfg: b.cfg, auth: auth, router: n.router, counters: counters,
		log: b.cfg.Logger, stopping: stopping, conns: map[string]*clientConn{},
	}
	server, err := b.newServer(n, h)
	if err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}

	// The store outlives the clients: what they leave behind goes into its last batch.
	group, ctx := errgroup.WithContext(ctx)
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	if n.store != nil {
		group.Go(func() error { return n.store.Run(storeCtx) })
	}
	group.Go(func() error {
		tick(ctx, n.router, server)
		return nil
	})
	group.Go(func() error {
		h.recheckCertificates(ctx)
		return nil
	})
	if n.http != nil {
		b.httpAddr = n.http.Addr().String()
		handler := b.handler(promhttp.HandlerFor(newRegistry(counters, n.router, server), promhttp.HandlerOpts{}))
		group.Go(func() error { return serveHTTP(ctx, n.http, handler) })
	}
	group.Go(func() error {
		defer stopStore()
		if err := server.Serve(); err != nil {
			return fmt.Errorf("serve MQTT: %w", err)
		}
		n.served = true
		b.cfg.Logger.Info("broker ready", "addresses", b.addrs, "http", b.httpAddr, "sessions", n.router.Stats().Sessions)
		close(b.ready)
		<-ctx.Done()
		n.router.Stop()
		close(stopping)
		h.goodbye()
		return server.Close()
	})
	err = group.Wait()
	b.cfg.Logger.Info("broker stopped")
	return err
}

// newServer sets mochi-mqtt up with the hook and the listeners of n.
func (b *Broker) newServer(n *needs, h *hook) (*mqtt.Server, error) {
	server := mqtt.New(&mqtt.Options{
		Capabilities:             b.capabilities(),
		ClientNetReadBufferSize:  16 << 10,
		ClientNetWriteBufferSize: 16 << 10,
		Logger:                   slog.New(quietHandler{b.cfg.Logger.Handler()}),
	})
	h.server = server
	if err := server.AddHook(h, nil); err != nil {
		return nil, err
	}
	for _, l := range n.listeners {
		if err := server.AddListener(l); err != nil {
			return nil, err
		}
		b.addrs = append(b.addrs, l.Address())
	}
	return server, nil
}

// capabilities are what mochi-mqtt announces and enforces.
func (b *Broker) capabilities() *mqtt.Capabilities {
	caps := mqtt.NewDefaultServerCapabilities()
	caps.MinimumProtocolVersion = 5
	caps.MaximumQos = 1                   // the protocol is idempotent and needs no more
	caps.TopicAliasMaximum = 0            // mochi-mqtt checks access before it resolves aliases
	caps.MaximumMessageExpiryInterval = 0 // messages last as long as their publisher says
	caps.ReceiveMaximum = b.cfg.ReceiveMaximum
	caps.MaximumClientWritesPending = 1024 // $SYS only; messages have queues of their own
	caps.Compatibilities.NoInheritedPropertiesOnAck = true
	return caps
}

// needs is what a running broker holds of the machine.
type needs struct {
	store     *store.Store // nil without a data directory
	router    *session.Router
	listeners []*listener
	http      net.Listener // nil when not served
	served    bool         // the listeners are mochi-mqtt's to close
}

// open takes ports and files, all or none.
func (b *Broker) open() (n *needs, err error) {
	n = &needs{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	routerCfg := session.Config{
		MaxQueuedMessages: b.cfg.MaxQueuedMessages,
		MaxQueuedBytes:    b.cfg.MaxQueuedBytes,
		ReceiveMaximum:    int(b.cfg.ReceiveMaximum),
		Logger:            b.cfg.Logger,
	}
	if b.cfg.DataDir != "" {
		n.store, err = store.Open(store.Config{
			Path:     filepath.Join(b.cfg.DataDir, databaseFile),
			OnCommit: func(batch uint64) { n.router.Committed(batch) },
		})
		if err != nil {
			return n, err
		}
		routerCfg.Store = n.store
	}
	if n.router, err = session.New(routerCfg); err != nil {
		return n, err
	}
	for _, cfg := range b.cfg.Listeners {
		l, err := listen(cfg, b.cfg.MaxPacketSize, b.cfg.Logger)
		if err != nil {
			return n, err
		}
		n.listeners = append(n.listeners, l)
	}
	if b.cfg.HTTPAddress != "" {
		if n.http, err = net.Listen("tcp", b.cfg.HTTPAddress); err != nil {
			return n, fmt.Errorf("listen for metrics and health: %w", err)
		}
	}
	return n, nil
}

// close gives back what open took. It may be called again.
func (n *needs) close() error {
	var errs []error
	if !n.served {
		for _, l := range n.listeners {
			errs = append(errs, l.socket.Close())
		}
	}
	if n.http != nil {
		if err := n.http.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}

// tick runs what must be done now and then until ctx ends.
func tick(ctx context.Context, router *session.Router, server *mqtt.Server) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			router.Tick()
			reportSys(router.Stats(), server)
		}
	}
}

// reportSys gives mochi-mqtt the figures of the router, which it publishes below $SYS.
func reportSys(stats session.Stats, server *mqtt.Server) {
	var dropped uint64
	for _, n := range stats.Dropped {
		dropped += n
	}
	atomic.StoreInt64(&server.Info.MessagesDropped, int64(dropped))
	atomic.StoreInt64(&server.Info.Inflight, int64(stats.Queued))
	atomic.StoreInt64(&server.Info.Retained, int64(stats.Retained))
	atomic.StoreInt64(&server.Info.Subscriptions, int64(stats.Subscriptions))
}

// handler serves /metrics, /healthz and /readyz.
func (b *Broker) handler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !b.isReady() {
			http.Error(w, "not accepting clients yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve metrics and health: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := server.Shutdown(grace)
	if err != nil {
		err = server.Close()
	}
	<-ended
	return err
}

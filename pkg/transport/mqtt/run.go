package mqtt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
)

var (
	errStopping     = errors.New("the transport is stopping")
	errCertificates = errors.New("certificate files have changed")
)

// runner is the state of one Run. The goroutine of autopaho connects, one goroutine serves the
// established connections one after the other, and one watches the certificate files.
type runner struct {
	*Transport
	handler  transport.Handler
	sessions sessionManager

	dialed      atomic.Pointer[connection] // the latest; set by the goroutine of autopaho
	connections chan *connection           // established ones
	serving     atomic.Pointer[connection] // the established one, also before its subscriptions are granted; else nil
	backoff     reconnectBackoff           // owned by the goroutine of autopaho

	failures failureLog
}

// Run connects until ctx ends; see [transport.Transport].
func (t *Transport) Run(ctx context.Context, h transport.Handler) error {
	if h.Received == nil {
		return errors.New("mqtt transport: Handler.Received is required")
	}
	if !t.started.CompareAndSwap(false, true) {
		return errors.New("mqtt transport: Run must be called once: create another transport with New")
	}
	t.logWarnings()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner{Transport: t, handler: h, connections: make(chan *connection), backoff: reconnectBackoff{attempt: -1, several: len(t.cfg.Broker.Addresses()) > 1}}
	manager, err := autopaho.NewConnection(ctx, r.clientConfig(ctx))
	if err != nil {
		return fmt.Errorf("mqtt transport: %w", err)
	}
	var group sync.WaitGroup
	group.Go(func() { r.serveConnections(ctx) })
	if b := t.cfg.Broker; b.CA.Changes() || b.ClientCert.Changes() || b.ClientKey.Changes() {
		group.Go(func() { r.watchCertificates(ctx) })
	}
	<-manager.Done()
	cancel()
	group.Wait()
	return nil
}

// logWarnings logs settings that are valid and probably not intended.
func (t *Transport) logWarnings() {
	broker, log := t.cfg.Broker, t.cfg.Logger
	if *broker.PubQoS == 0 || *broker.SubQoS == 0 {
		log.Warn("events can be lost with QoS 0: set pubQoS and subQoS to 1",
			"pubQoS", *broker.PubQoS, "subQoS", *broker.SubQoS)
	}
	if *broker.PubQoS == 2 || *broker.SubQoS == 2 {
		log.Info("using QoS 1 instead of QoS 2", "pubQoS", *broker.PubQoS, "subQoS", *broker.SubQoS)
	}
	remote := slices.ContainsFunc(broker.Addresses(), func(address string) bool {
		a, _ := config.ParseAddress(address) // validated by New
		host, _, _ := net.SplitHostPort(a.Host)
		return !serve.IsLoopback(host)
	})
	if broker.Username != "" && !broker.UsesTLS() && remote {
		log.Warn("the password is sent in clear text: set tls: required and caFile to connect with TLS", "brokerHost", broker.BrokerHost)
	}
}

func (r *runner) clientConfig(ctx context.Context) autopaho.ClientConfig {
	broker := r.cfg.Broker
	first, _ := config.ParseAddress(broker.Addresses()[0]) // validated by New
	return autopaho.ClientConfig{
		// Only used in errors: dial connects.
		ServerUrls:            []*url.URL{{Scheme: "mqtt", Host: first.Host}},
		KeepAlive:             uint16(broker.KeepAlive / time.Second),
		SessionExpiryInterval: uint32(broker.SessionExpiry / time.Second),
		ConnectTimeout:        broker.DialTimeout,
		ReconnectBackoff:      func(int) time.Duration { return r.backoff.nextDelay(time.Now(), rand.Float64()) },
		AttemptConnection: func(ctx context.Context, _ autopaho.ClientConfig, _ *url.URL) (net.Conn, error) {
			return r.dial(ctx)
		},
		ConnectPacketBuilder: func(p *paho.Connect, _ *url.URL) (*paho.Connect, error) { return r.connectPacket(ctx, p) },
		OnConnectError:       r.connectFailed,
		OnConnectionUp: func(manager *autopaho.ConnectionManager, answer *paho.Connack) {
			r.connectionUp(ctx, manager, answer)
		},
		OnConnectionDown: r.connectionDown,
		ClientConfig: paho.ClientConfig{
			ClientID:      r.cfg.ClientID,
			Session:       &r.sessions,
			PingHandler:   pinger{paho.NewDefaultPinger()},
			PacketTimeout: confirmTimeout,
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
				r.received(ctx, p.Packet)
				return true, nil
			}},
		},
	}
}

// pinger is the default pinger of paho. It sets the reason of the loss if the broker does not
// answer.
type pinger struct{ *paho.DefaultPinger }

// Run sends pings until ctx ends.
func (p pinger) Run(ctx context.Context, c net.Conn, keepAlive uint16) error {
	err := p.DefaultPinger.Run(ctx, c, keepAlive)
	if c, ok := c.(*bufferedConn); ok && err != nil {
		c.onError(fmt.Errorf("the broker does not answer pings: %w", err))
	}
	return err
}

func (r *runner) dial(ctx context.Context) (net.Conn, error) {
	var last endpoint // which has ended the connection, or refused it
	if c := r.dialed.Load(); c != nil {
		last = c.endpoint
	}
	dialed, err := dial(ctx, r.cfg.Broker, last)
	if err != nil {
		return nil, err
	}
	if start, end, ok := dialed.certs.Validity(); ok {
		r.metrics.certificateStart.Set(float64(start.Unix()))
		r.metrics.certificateEnd.Set(float64(end.Unix()))
	}
	s := newSession()
	s.conn = newBufferedConn(ctx, dialed.raw, dialed.secured, s.setLossReason)
	r.sessions.current.Store(s)
	r.dialed.Store(&connection{session: s, endpoint: dialed.endpoint, certs: dialed.certs})
	return s.conn, nil
}

func (r *runner) connectPacket(ctx context.Context, p *paho.Connect) (*paho.Connect, error) {
	if err := configure(p, r.cfg.Broker); err != nil {
		return nil, err
	}
	if r.handler.Will == nil {
		return p, nil
	}
	topic, event := r.handler.Will()
	will, err := encode(ctx, topic, &event, 1)
	if err != nil {
		return nil, fmt.Errorf("encode the will: %w", err)
	}
	p.WillMessage = &paho.WillMessage{Topic: topic, QoS: will.QoS, Payload: will.Payload}
	p.WillProperties = &paho.WillProperties{ContentType: will.Properties.ContentType, User: will.Properties.User}
	return p, nil
}

func (r *runner) connectFailed(err error) {
	r.metrics.failures.WithLabelValues(failureConnect).Inc()
	r.backoff.connectFailed(time.Now(), err)
	if r.cfg.Refused != nil && isCertificateRefused(err) {
		r.cfg.Refused()
	}
	level, args := r.failures.next("connect", connectError(err))
	r.cfg.Logger.Log(context.Background(), level, "connect failed, retrying", append(args, "brokerHost", r.cfg.Broker.BrokerHost)...)
}

// connectionUp passes the connection to serveConnections. It blocks autopaho until the previous
// connection has ended.
func (r *runner) connectionUp(ctx context.Context, manager *autopaho.ConnectionManager, answer *paho.Connack) {
	c := r.dialed.Load()
	c.manager, c.since, c.resumed = manager, time.Now(), answer.SessionPresent
	c.limit = int(ptr.Deref(answer.Properties.MaximumPacketSize, 0))
	requested, granted := uint32(r.cfg.Broker.SessionExpiry/time.Second), answer.Properties.SessionExpiryInterval
	if granted != nil && *granted < requested && requested > 1 { // nobody relies on a second
		r.cfg.Logger.Warn("the broker keeps sessions for a shorter time than requested and drops events for this client after that",
			"requested", r.cfg.Broker.SessionExpiry, "granted", time.Duration(*granted)*time.Second)
	}
	select {
	case r.connections <- c:
	case <-ctx.Done():
	}
}

// connectionDown is called when an established connection has ended.
func (r *runner) connectionDown() (reconnect bool) {
	c := r.dialed.Load()
	var refused *refusedError
	takeover := errors.As(c.session.lossReason(), &refused) && refused.code == packets.DisconnectSessionTakenOver
	r.backoff.connectionLost(time.Since(c.since), takeover)
	return true
}

// received is called by paho for each message, not concurrently. paho continues to read meanwhile,
// up to the receive maximum.
func (r *runner) received(ctx context.Context, p *paho.Publish) {
	c := r.dialed.Load()
	if c.session.isLost() || ctx.Err() != nil {
		return // it is not acknowledged and will be delivered again
	}
	r.metrics.received.Inc()
	r.metrics.receivedBytes.Add(float64(packetSize(p)))
	m := transport.Message{Topic: p.Topic, Ack: func() {}}
	if p.QoS > 0 {
		m.Ack = c.session.window.add(p.PacketID, p.QoS)
	}
	if p.Retain { // who wrote it may have lost the right since
		r.metrics.retained.Inc()
		r.cfg.Logger.Debug("retained message ignored", "topic", p.Topic)
		m.Ack()
		return
	}
	if m.Event, m.Err = decode(ctx, p); m.Err != nil {
		r.metrics.malformed.Inc()
	}
	r.handler.Received(ctx, m)
}

// failureLog reduces the level of repeated failures.
type failureLog struct {
	mu   sync.Mutex
	last string
}

// next returns the level to log a failed operation with, and its arguments: the error and what to
// do about it. The level is Debug if the last failure was the same, Error if the user must act, and
// Warn otherwise.
func (f *failureLog) next(operation string, err error) (slog.Level, []any) {
	f.mu.Lock()
	reason := operation + reasonKey(err)
	repeated := f.last == reason
	f.last = reason
	f.mu.Unlock()
	level, args := slog.LevelWarn, []any{"error", err}
	if advice := adviceFor(err); advice != "" {
		level, args = slog.LevelError, append(args, "advice", advice)
	}
	if repeated {
		level = slog.LevelDebug
	}
	return level, args
}

// reset makes the next failure count as a new one.
func (f *failureLog) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = ""
}

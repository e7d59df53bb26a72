package mqtt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/pkg/transport"
)

var (
	errStopping     = errors.New("the transport is stopping")
	errCertificates = errors.New("certificate files have changed, reconnecting with the new ones")
)

// runner is what one Run consists of. autopaho's goroutine connects, one
// goroutine serves the links that come up, one after the other, and one watches
// the certificate files.
type runner struct {
	*Transport
	handler  transport.Handler
	sessions sessions

	dialled atomic.Pointer[link] // the latest; set by autopaho's goroutine
	links   chan *link           // that have come up
	retries retries              // used by autopaho's goroutine alone

	complaints complaints
}

// Run keeps the connection until ctx ends; see [transport.Transport].
func (t *Transport) Run(ctx context.Context, h transport.Handler) error {
	if h.Received == nil {
		return errors.New("mqtt transport: Handler.Received is required")
	}
	if !t.started.CompareAndSwap(false, true) {
		return errors.New("mqtt transport: Run was called before: make another transport with New")
	}
	t.warn()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner{Transport: t, handler: h, links: make(chan *link), retries: retries{next: -1}}
	manager, err := autopaho.NewConnection(ctx, r.clientConfig(ctx))
	if err != nil {
		return fmt.Errorf("mqtt transport: %w", err)
	}
	var group sync.WaitGroup
	group.Go(func() { r.serveLinks(ctx) })
	if b := t.cfg.Broker; b.CA.File != "" || b.ClientCert.File != "" || b.ClientKey.File != "" {
		group.Go(func() { r.watchCertificates(ctx) })
	}
	<-manager.Done()
	cancel()
	group.Wait()
	return nil
}

// warn tells of settings that work and yet are hardly what is wanted.
func (t *Transport) warn() {
	broker, log := t.cfg.Broker, t.cfg.Logger
	if *broker.PubQoS == 0 || *broker.SubQoS == 0 {
		log.Warn("QoS 0 loses events whenever the connection or a receiver is busy or down: set pubQoS and subQoS to 1",
			"pubQoS", *broker.PubQoS, "subQoS", *broker.SubQoS)
	}
	if *broker.PubQoS == 2 || *broker.SubQoS == 2 {
		log.Info("QoS 2 is carried as QoS 1, which the protocol needs no more than", "pubQoS", *broker.PubQoS, "subQoS", *broker.SubQoS)
	}
	if broker.Username != "" && !broker.UsesTLS() && !isLoopback(broker.BrokerHost) {
		log.Warn("the password is sent to the broker in clear text: set caFile to connect with TLS", "brokerHost", broker.BrokerHost)
	}
}

func isLoopback(hostPort string) bool {
	host, _, _ := net.SplitHostPort(hostPort) // New has checked it
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (r *runner) clientConfig(ctx context.Context) autopaho.ClientConfig {
	broker := r.cfg.Broker
	return autopaho.ClientConfig{
		// Only named in errors: dial connects.
		ServerUrls:            []*url.URL{{Scheme: "mqtt", Host: broker.BrokerHost}},
		KeepAlive:             uint16(broker.KeepAlive / time.Second),
		SessionExpiryInterval: uint32(broker.SessionExpiry / time.Second),
		ConnectTimeout:        broker.DialTimeout,
		ReconnectBackoff:      func(int) time.Duration { return r.retries.attempt(time.Now(), rand.Float64()) },
		AttemptConnection: func(ctx context.Context, _ autopaho.ClientConfig, _ *url.URL) (net.Conn, error) {
			return r.dial(ctx)
		},
		ConnectPacketBuilder: func(p *paho.Connect, _ *url.URL) (*paho.Connect, error) { return r.connectPacket(ctx, p) },
		OnConnectError:       r.notConnected,
		OnConnectionUp: func(manager *autopaho.ConnectionManager, answer *paho.Connack) {
			r.connected(ctx, manager, answer)
		},
		OnConnectionDown: r.disconnected,
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

// pinger is paho's, but tells the connection that it ends for want of an answer.
type pinger struct{ *paho.DefaultPinger }

// Run probes the connection until ctx ends.
func (p pinger) Run(ctx context.Context, c net.Conn, keepAlive uint16) error {
	err := p.DefaultPinger.Run(ctx, c, keepAlive)
	if c, ok := c.(*conn); ok && err != nil {
		c.note(fmt.Errorf("the broker does not answer: %w", err))
	}
	return err
}

func (r *runner) dial(ctx context.Context) (net.Conn, error) {
	raw, secured, certs, err := dial(ctx, r.cfg.Broker)
	if err != nil {
		return nil, err
	}
	s := newSession()
	s.conn = newConn(ctx, raw, secured, s.note)
	r.sessions.current.Store(s)
	r.dialled.Store(&link{session: s, certs: certs})
	return s.conn, nil
}

func (r *runner) connectPacket(ctx context.Context, p *paho.Connect) (*paho.Connect, error) {
	broker := r.cfg.Broker
	if broker.Username != "" {
		secret, err := broker.ReadPassword()
		if err != nil {
			return nil, err
		}
		p.UsernameFlag, p.Username = true, broker.Username
		p.PasswordFlag, p.Password = secret != "", []byte(secret)
	}
	p.Properties.ReceiveMaximum = &broker.ReceiveMaximum
	p.Properties.MaximumPacketSize = &broker.MaximumPacketSize
	p.Properties.RequestProblemInfo = true
	if r.handler.Will == nil {
		return p, nil
	}
	topic, event := r.handler.Will()
	will, err := encode(ctx, topic, &event, 1)
	if err != nil {
		return nil, fmt.Errorf("the will: %w", err)
	}
	p.WillMessage = &paho.WillMessage{Topic: topic, QoS: will.QoS, Payload: will.Payload}
	p.WillProperties = &paho.WillProperties{ContentType: will.Properties.ContentType, User: will.Properties.User}
	return p, nil
}

func (r *runner) notConnected(err error) {
	r.metrics.failures.WithLabelValues(failureConnect).Inc()
	r.retries.failed(time.Now(), err)
	err = reasonOf(err)
	r.complaints.log(r.cfg.Logger, "can not connect to the broker, trying on", err, "brokerHost", r.cfg.Broker.BrokerHost)
}

// connected hands the link over to be served. autopaho waits for that, and so
// for the end of the link before.
func (r *runner) connected(ctx context.Context, manager *autopaho.ConnectionManager, answer *paho.Connack) {
	l := r.dialled.Load()
	l.manager, l.since, l.resumed = manager, time.Now(), answer.SessionPresent
	asked, kept := uint32(r.cfg.Broker.SessionExpiry/time.Second), (*uint32)(nil)
	if p := answer.Properties; p != nil {
		if p.MaximumPacketSize != nil {
			l.limit = int(*p.MaximumPacketSize)
		}
		kept = p.SessionExpiryInterval
	}
	if kept != nil && *kept < asked {
		r.cfg.Logger.Warn("the broker keeps sessions for a shorter time than asked: it forgets events for this client when it is away for longer",
			"asked", r.cfg.Broker.SessionExpiry, "granted", time.Duration(*kept)*time.Second)
	}
	select {
	case r.links <- l:
	case <-ctx.Done():
	}
}

// disconnected is called when a connection that came up has ended.
func (r *runner) disconnected() (reconnect bool) {
	l := r.dialled.Load()
	var refused *refusedError
	takeover := errors.As(l.session.lossReason(), &refused) && refused.code == reasonTakenOver
	r.retries.lost(time.Since(l.since), takeover)
	return true
}

// received is called by paho for each message, one at a time. paho reads on
// meanwhile, up to the receive maximum.
func (r *runner) received(ctx context.Context, p *paho.Publish) {
	l := r.dialled.Load()
	if l.session.isLost() || ctx.Err() != nil {
		return // it was not acknowledged and comes again
	}
	r.metrics.received.Inc()
	r.metrics.receivedBytes.Add(float64(packetSize(p)))
	m := transport.Message{Topic: p.Topic, Ack: func() {}}
	if p.QoS > 0 {
		m.Ack = l.session.acks.add(p.PacketID, p.QoS)
	}
	if m.Event, m.Err = decode(ctx, p); m.Err != nil {
		r.metrics.malformed.Inc()
	}
	r.handler.Received(ctx, m)
}

// complaints keeps the log from repeating itself: the same reason is told once.
type complaints struct {
	mu   sync.Mutex
	last string
}

func (c *complaints) log(log *slog.Logger, message string, err error, args ...any) {
	c.mu.Lock()
	reason := message + sameReason(err)
	repeated := c.last == reason
	c.last = reason
	c.mu.Unlock()
	args = append(args, "error", err)
	advice := advise(err)
	if advice != "" {
		args = append(args, "advice", advice)
	}
	switch {
	case repeated:
		log.Debug(message, args...)
	case advice != "":
		log.Error(message, args...)
	default:
		log.Warn(message, args...)
	}
}

// settled makes the next complaint be told in any case.
func (c *complaints) settled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = ""
}

package mqtt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/topicfilter"
)

var (
	errStopping     = errors.New("the transport is stopping")
	errCertificates = errors.New("certificate files have changed")
)

// drainTimeout is how long a connection that is replaced may wait for the broker's answers.
const drainTimeout = 5 * time.Second

// runner is the state of one Run, which one goroutine connects and serves.
type runner struct {
	*Transport
	handler  transport.Handler
	last     endpoint // of the latest connection, also if the broker refused it
	backoff  reconnectBackoff
	failures failureLog

	filters    []string       // that messages are received for, without shares
	former     []string       // topics of former subscriptions that were warned of
	unfollowed []string       // those that the connection unsubscribes from
	unfollows  sync.WaitGroup // of the connection
}

// maxFormer is how many topics of former subscriptions are warned of, and unsubscribed from on a connection.
const maxFormer = 10

// Run connects until ctx ends; see [transport.Transport].
func (t *Transport) Run(ctx context.Context, h transport.Handler) error {
	if h.Received == nil {
		return errors.New("mqtt transport: Handler.Received is required")
	}
	if !t.started.CompareAndSwap(false, true) {
		return errors.New("mqtt transport: Run must be called once: create another transport with New")
	}
	t.logWarnings()
	r := &runner{Transport: t, handler: h, backoff: reconnectBackoff{attempt: -1, several: len(t.cfg.Broker.Addresses()) > 1}}
	for _, filter := range slices.Concat(h.Subscriptions, h.Optional) {
		_, unshared := topicfilter.SplitShare(filter)
		r.filters = append(r.filters, unshared)
	}
	for {
		select {
		case <-time.After(r.backoff.nextDelay(time.Now(), rand.Float64())):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
		c, err := r.connect(ctx)
		switch {
		case err == nil:
			r.serve(ctx, c)
		case ctx.Err() == nil:
			r.connectFailed(err)
		}
	}
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

func (r *runner) connect(ctx context.Context) (*connection, error) {
	broker := r.cfg.Broker
	packet, err := r.connectPacket(ctx)
	if err != nil {
		return nil, err
	}
	connectCtx, cancel := context.WithTimeout(ctx, broker.DialTimeout)
	defer cancel()
	dialed, err := dial(connectCtx, broker, r.last)
	if err != nil {
		return nil, err
	}
	r.last = dialed.endpoint
	if start, end, ok := dialed.certs.Validity(); ok {
		r.metrics.certificateStart.Set(float64(start.Unix()))
		r.metrics.certificateEnd.Set(float64(end.Unix()))
	}
	r.unfollowed = nil
	c, err := connect(connectCtx, dialed, packet, confirmTimeout, func(c *connection, p *paho.Publish) { r.received(ctx, c, p) })
	if err != nil {
		return nil, err
	}
	requested, granted := *packet.Properties.SessionExpiryInterval, c.answer.Properties.SessionExpiryInterval
	if granted != nil && *granted < requested && requested > 1 { // nobody relies on a second
		r.cfg.Logger.Warn("the broker keeps sessions for a shorter time than requested and drops events for this client after that",
			"requested", broker.SessionExpiry, "granted", time.Duration(*granted)*time.Second)
	}
	return c, nil
}

func (r *runner) connectPacket(ctx context.Context) (*paho.Connect, error) {
	p, err := connectPacket(r.cfg.Broker, r.cfg.ClientID)
	if err != nil {
		return nil, err
	}
	p.Properties.SessionExpiryInterval = new(uint32(r.cfg.Broker.SessionExpiry / time.Second))
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
	r.backoff.connectFailed(time.Now(), err)
	if r.cfg.Refused != nil && isCertificateRefused(err) {
		r.cfg.Refused()
	}
	r.failed(failureConnect, "connect failed, retrying", connectError(err), "brokerHost", r.cfg.Broker.BrokerHost)
}

// failed counts, keeps and logs why there is no connection.
func (r *runner) failed(kind, message string, err error, attributes ...any) {
	r.metrics.failures.WithLabelValues(kind).Inc()
	r.failure.Store(&err)
	level, args := r.failures.next(message, err)
	r.cfg.Logger.Log(context.Background(), level, message, append(args, attributes...)...) //nolint:sloglint // the callers have literals
}

// serve subscribes and reports the connection, and ends it when ctx ends. It returns when the connection is
// lost and the handler's calls have ended.
func (r *runner) serve(ctx context.Context, c *connection) {
	connCtx, lost := context.WithCancel(ctx)
	defer lost()
	var group, connected sync.WaitGroup
	group.Go(c.session.sendAcks)
	group.Go(func() {
		select {
		case <-c.session.lost:
		case <-ctx.Done():
			c.session.conn.limitWrites()
			_ = c.client.Disconnect(&paho.Disconnect{}) // the connection ends either way
		}
		lost()
	})
	if b := r.cfg.Broker; b.CA.Changes() || b.ClientCert.Changes() || b.ClientKey.Changes() {
		group.Go(func() { r.watchCertificates(connCtx, c) })
	}
	subscribed := r.subscribe(connCtx, c)
	if subscribed {
		r.reportConnected(connCtx, c, &connected)
	}
	<-c.session.lost
	var refused *refusedError
	takeover := errors.As(c.session.lossReason(), &refused) && refused.code == packets.DisconnectSessionTakenOver
	r.backoff.connectionLost(time.Since(c.since), takeover)
	if subscribed {
		r.reportLost(ctx, c, &connected)
	} else if reason := c.session.lossReason(); ctx.Err() == nil && !errors.Is(reason, errCertificates) {
		r.failed(failureLost, "connection lost before the subscriptions were granted, reconnecting", reason)
	}
	group.Wait()
	<-c.client.Done()
	r.unfollows.Wait()
}

func (r *runner) reportConnected(ctx context.Context, c *connection, connected *sync.WaitGroup) {
	r.limit.Store(int64(c.limit))
	c.optional = r.handler.Optional
	r.current.Store(c)
	r.metrics.connected.Set(1)
	r.metrics.connections.Inc()
	r.failures = failureLog{}
	r.failure.Store(nil)
	r.cfg.Logger.Info("connected to the broker", "brokerHost", c.endpoint.host, "clientID", r.cfg.ClientID,
		"resumed", c.answer.SessionPresent, "maximumPacketSize", c.limit)
	if r.handler.Connected != nil {
		connected.Go(func() {
			r.handler.Connected(ctx, transport.Connection{Resumed: c.answer.SessionPresent, Limit: c.limit})
		})
	}
}

// reportLost tells the handler once its call of Connected has returned: that may not even have begun.
func (r *runner) reportLost(ctx context.Context, c *connection, connected *sync.WaitGroup) {
	r.current.CompareAndSwap(c, nil)
	r.metrics.connected.Set(0)
	reason := c.session.lossReason()
	switch {
	case ctx.Err() != nil:
		reason = errStopping
		r.cfg.Logger.Info("disconnected from the broker", "reason", reason)
	case errors.Is(reason, errCertificates):
	default:
		r.failed(failureLost, "connection lost, reconnecting", reason)
	}
	connected.Wait()
	if r.handler.Lost != nil {
		r.handler.Lost(reason)
	}
}

// subscribe retries until all filters are granted. It returns false if the connection is lost
// before.
func (r *runner) subscribe(ctx context.Context, c *connection) bool {
	if len(r.handler.Subscriptions) == 0 {
		return !c.session.isLost()
	}
	for attempt := 1; ; attempt++ {
		granted, err := c.subscribe(ctx, r.subscriptionQoS(), r.handler.Subscriptions...)
		if err == nil {
			for i, qos := range granted {
				if qos < r.subscriptionQoS() {
					r.cfg.Logger.Warn("subscription granted with QoS 0 only: events can be lost", "filter", r.handler.Subscriptions[i])
				}
			}
			return !c.session.isLost()
		}
		if ctx.Err() != nil || c.session.isLost() {
			return false
		}
		r.failed(failureSubscribe, "subscribe failed, retrying", err)
		select {
		case <-time.After(retryDelay(attempt, rand.Float64())):
		case <-ctx.Done():
			return false
		}
	}
}

// watchCertificates ends the connection when the certificate files have changed and are valid, once the
// publishes in flight are acknowledged. A connection whose subscriptions are refused is watched too: it
// may be for its certificate.
func (r *runner) watchCertificates(ctx context.Context, c *connection) {
	ticker := time.NewTicker(r.cfg.ReloadInterval)
	defer ticker.Stop()
	var failures failureLog // separate, since the connection works meanwhile
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		certs, err := r.cfg.Broker.Certificates()
		if err == nil && !certs.Equal(c.certs) {
			_, err = r.cfg.Broker.TLSConfig(c.endpoint.host, certs)
		}
		switch {
		case err != nil:
			level, args := failures.next("reload", err)
			r.cfg.Logger.Log(ctx, level, "certificate reload failed, keeping the current certificates", args...)
		case !certs.Equal(c.certs):
			r.cfg.Logger.Info("certificate files have changed, reconnecting")
			r.current.CompareAndSwap(c, nil)
			ctx, cancel := context.WithTimeout(ctx, drainTimeout)
			defer cancel()
			c.session.drain(ctx)
			c.session.setLossReason(errCertificates)
			_ = c.client.Disconnect(&paho.Disconnect{}) // the connection ends either way
			return
		}
	}
}

// received is called by paho for each message, not concurrently. paho continues to read meanwhile,
// up to the receive maximum.
func (r *runner) received(ctx context.Context, c *connection, p *paho.Publish) {
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
	if !matchesAny(r.filters, p.Topic) {
		r.unfollow(ctx, c, p.Topic)
		m.Ack()
		return
	}
	if m.Event, m.Err = decode(ctx, p); m.Err != nil {
		r.metrics.malformed.Inc()
	}
	r.handler.Received(ctx, m)
}

// matchesAny reports whether one of filters matches topic.
func matchesAny(filters []string, topic string) bool {
	return slices.ContainsFunc(filters, func(filter string) bool { return topicfilter.Match(filter, topic) })
}

// unfollow ends the subscription to topic that the session has from a client with another configuration.
// If that subscribed with wildcards, its filter is not known, and the messages keep coming.
func (r *runner) unfollow(ctx context.Context, c *connection, topic string) {
	if len(r.unfollowed) == maxFormer || slices.Contains(r.unfollowed, topic) {
		return
	}
	r.unfollowed = append(r.unfollowed, topic)
	level := slog.LevelDebug
	if len(r.former) < maxFormer && !slices.Contains(r.former, topic) {
		r.former, level = append(r.former, topic), slog.LevelWarn
	}
	r.cfg.Logger.Log(ctx, level, "messages on this topic are dropped: the topics of the configuration do not include it; the session at the broker has the subscription of a former configuration",
		"topic", topic, "clientID", r.cfg.ClientID,
		"advice", "if this client is to receive them, correct topics in its transport configuration; if they keep coming, remove the session of this client id at the broker")
	r.unfollows.Go(func() {
		_, err := c.client.Unsubscribe(ctx, &paho.Unsubscribe{Topics: []string{topic}})
		r.cfg.Logger.Debug("unsubscribed", "topic", topic, "error", err)
	})
}

// failureLog reduces the level of repeated failures.
type failureLog struct{ last string }

// next returns the level to log a failed operation with, and its arguments: the error and what to
// do about it. The level is Debug if the last failure was the same, Error if the user must act, and
// Warn otherwise.
func (f *failureLog) next(operation string, err error) (slog.Level, []any) {
	reason := operation + reasonKey(err)
	repeated := f.last == reason
	f.last = reason
	level, args := slog.LevelWarn, []any{"error", err}
	if advice := adviceFor(err); advice != "" {
		level, args = slog.LevelError, append(args, "advice", advice)
	}
	if repeated {
		level = slog.LevelDebug
	}
	return level, args
}

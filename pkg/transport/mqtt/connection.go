package mqtt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
)

const (
	subscribeTimeout = 30 * time.Second
	drainTimeout     = 5 * time.Second

	noRetained = 2 // retain handling: the broker sends no retained messages
)

// connection is a connection to the broker. Its fields are immutable once it is established.
type connection struct {
	session  *session
	endpoint endpoint            // that it leads to
	certs    config.Certificates // of the TLS configuration

	manager *autopaho.ConnectionManager
	since   time.Time
	resumed bool
	limit   int // maximum packet size of the broker, 0 for none
}

// serveConnections serves the established connections until ctx ends.
func (r *runner) serveConnections(ctx context.Context) {
	for {
		select {
		case c := <-r.connections:
			r.serve(ctx, c)
		case <-ctx.Done():
			return
		}
	}
}

// serve subscribes and reports the connection. It returns when the connection is lost and the
// handler's calls have ended.
func (r *runner) serve(ctx context.Context, c *connection) {
	connCtx, lost := context.WithCancel(ctx)
	defer lost()
	r.serving.Store(c)
	defer r.serving.Store(nil)
	var group, connected sync.WaitGroup
	group.Go(c.session.sendAcks)
	group.Go(func() {
		<-c.session.lost // autopaho disconnects when ctx ends
		lost()
	})
	subscribed := r.subscribe(connCtx, c)
	if subscribed {
		r.reportConnected(connCtx, c, &connected)
	}
	<-c.session.lost
	if subscribed {
		r.reportLost(ctx, c, &connected)
	} else if reason := c.session.lossReason(); ctx.Err() == nil && !errors.Is(reason, errCertificates) {
		r.metrics.failures.WithLabelValues(failureLost).Inc()
		level, args := r.failures.next("serve", reason)
		r.cfg.Logger.Log(ctx, level, "connection lost before the subscriptions were granted, reconnecting", args...)
	}
	group.Wait()
}

func (r *runner) reportConnected(ctx context.Context, c *connection, connected *sync.WaitGroup) {
	r.limit.Store(int64(c.limit))
	r.current.Store(c)
	r.metrics.connected.Set(1)
	r.metrics.connections.Inc()
	r.failures.reset()
	r.cfg.Logger.Info("connected to the broker", "brokerHost", c.endpoint.host, "clientID", r.cfg.ClientID,
		"resumed", c.resumed, "maximumPacketSize", c.limit)
	if r.handler.Connected != nil {
		connected.Go(func() { r.handler.Connected(ctx, transport.Connection{Resumed: c.resumed, Limit: c.limit}) })
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
		r.metrics.failures.WithLabelValues(failureLost).Inc()
		level, args := r.failures.next("connection", reason)
		r.cfg.Logger.Log(ctx, level, "connection lost, reconnecting", args...)
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
		err := r.subscribeOnce(ctx, c)
		if err == nil {
			return !c.session.isLost()
		}
		if ctx.Err() != nil || c.session.isLost() {
			return false
		}
		r.metrics.failures.WithLabelValues(failureSubscribe).Inc()
		level, args := r.failures.next("subscribe", err)
		r.cfg.Logger.Log(ctx, level, "subscribe failed, retrying", args...)
		select {
		case <-time.After(retryDelay(attempt, rand.Float64())):
		case <-ctx.Done():
			return false
		}
	}
}

// subscriptionQoS is the QoS of all subscriptions.
func (t *Transport) subscriptionQoS() byte { return min(*t.cfg.Broker.SubQoS, 1) }

func (r *runner) subscribeOnce(ctx context.Context, c *connection) error {
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	qos := r.subscriptionQoS()
	request := &paho.Subscribe{}
	for _, filter := range r.handler.Subscriptions {
		request.Subscriptions = append(request.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: qos, RetainHandling: noRetained})
	}
	answer, err := c.manager.Subscribe(ctx, request)
	if answer == nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	var refusals []error
	for i, code := range answer.Reasons {
		if i >= len(r.handler.Subscriptions) {
			break
		}
		filter := r.handler.Subscriptions[i]
		switch {
		case code >= 0x80:
			refusals = append(refusals, fmt.Errorf("subscribe to %q: %w", filter, &refusedError{code, answer.Properties.ReasonString}))
		case code < qos:
			r.cfg.Logger.Warn("subscription granted with QoS 0 only: events can be lost", "filter", filter)
		}
	}
	return errors.Join(refusals...)
}

// disconnect ends the connection for this reason, once the publishes in flight are acknowledged.
func (r *runner) disconnect(ctx context.Context, c *connection, reason error) {
	r.serving.CompareAndSwap(c, nil)
	r.current.CompareAndSwap(c, nil)
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	c.session.drain(ctx)
	c.session.setLossReason(reason)
	packet := packets.Disconnect{Properties: &packets.Properties{}}
	_, _ = packet.WriteTo(c.session.conn) // the connection ends anyway
	_ = c.session.conn.Close()
}

// watchCertificates reconnects when the certificate files have changed and are valid, until ctx
// ends. A connection whose subscriptions are refused is watched too: it may be for its certificate.
func (r *runner) watchCertificates(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.ReloadInterval)
	defer ticker.Stop()
	var failures failureLog // separate, since the connection works meanwhile
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		c := r.serving.Load()
		if c == nil || c.session.isLost() {
			continue
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
			failures.reset()
			r.cfg.Logger.Info("certificate files have changed, reconnecting")
			r.disconnect(ctx, c, errCertificates)
		}
	}
}

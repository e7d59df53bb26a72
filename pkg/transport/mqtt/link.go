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
)

// link is one connection to the broker. What is set when it has come up is not
// changed later.
type link struct {
	session *session
	certs   config.Certificates // it was made with

	manager *autopaho.ConnectionManager
	since   time.Time
	resumed bool
	limit   int // maximum packet size of the broker, 0 for none
}

// serveLinks serves the links that come up until ctx ends.
func (r *runner) serveLinks(ctx context.Context) {
	for {
		select {
		case l := <-r.links:
			r.serve(ctx, l)
		case <-ctx.Done():
			return
		}
	}
}

// serve subscribes, reports the connection and returns when it is lost and the
// handler's call has ended.
func (r *runner) serve(ctx context.Context, l *link) {
	linkCtx, lost := context.WithCancel(ctx)
	defer lost()
	var group sync.WaitGroup
	group.Go(l.session.sendAcks)
	group.Go(func() {
		<-l.session.lost // autopaho disconnects when ctx ends
		lost()
	})
	if r.subscribe(linkCtx, l) {
		r.open(linkCtx, l, &group)
		<-l.session.lost
		r.close(ctx, l)
	} else {
		<-l.session.lost
		if ctx.Err() == nil {
			r.metrics.failures.WithLabelValues(failureLost).Inc()
			r.complaints.log(r.cfg.Logger, "lost the connection to the broker before it granted the subscriptions, reconnecting", l.session.lossReason())
		}
	}
	group.Wait()
}

func (r *runner) open(ctx context.Context, l *link, group *sync.WaitGroup) {
	r.limit.Store(int64(l.limit))
	r.up.Store(l)
	r.metrics.connected.Set(1)
	r.metrics.connections.Inc()
	r.complaints.settled()
	r.cfg.Logger.Info("connected to the broker", "brokerHost", r.cfg.Broker.BrokerHost, "clientID", r.cfg.ClientID,
		"resumed", l.resumed, "maximumPacketSize", l.limit)
	if r.handler.Connected != nil {
		group.Go(func() { r.handler.Connected(ctx, transport.Connection{Resumed: l.resumed, Limit: l.limit}) })
	}
}

func (r *runner) close(ctx context.Context, l *link) {
	r.up.CompareAndSwap(l, nil)
	r.metrics.connected.Set(0)
	reason := l.session.lossReason()
	switch {
	case ctx.Err() != nil:
		reason = errStopping
		r.cfg.Logger.Info("disconnected from the broker", "reason", reason)
	case errors.Is(reason, errCertificates):
	default:
		r.metrics.failures.WithLabelValues(failureLost).Inc()
		r.complaints.log(r.cfg.Logger, "lost the connection to the broker, reconnecting", reason)
	}
	if r.handler.Lost != nil {
		r.handler.Lost(reason)
	}
}

// subscribe subscribes until every filter is granted, and reports false when
// the connection is lost before.
func (r *runner) subscribe(ctx context.Context, l *link) bool {
	if len(r.handler.Subscriptions) == 0 {
		return !l.session.isLost()
	}
	for attempt := 1; ; attempt++ {
		err := r.subscribeOnce(ctx, l)
		if err == nil {
			return !l.session.isLost()
		}
		if ctx.Err() != nil || l.session.isLost() {
			return false
		}
		r.metrics.failures.WithLabelValues(failureSubscribe).Inc()
		r.complaints.log(r.cfg.Logger, "can not subscribe, trying on; nothing is published or received meanwhile", err)
		select {
		case <-time.After(retryDelay(attempt, rand.Float64())):
		case <-ctx.Done():
			return false
		}
	}
}

func (r *runner) subscribeOnce(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	qos := carried(*r.cfg.Broker.SubQoS)
	request := &paho.Subscribe{}
	for _, filter := range r.handler.Subscriptions {
		request.Subscriptions = append(request.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: qos})
	}
	answer, err := l.manager.Subscribe(ctx, request)
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
			refusals = append(refusals, fmt.Errorf("subscribe to %q: %w", filter, &refusedError{code: code, text: answer.Properties.ReasonString}))
		case code < qos:
			r.cfg.Logger.Warn("the broker grants a subscription with QoS 0 only: events may get lost", "filter", filter)
		}
	}
	return errors.Join(refusals...)
}

// leave ends the link in good order, for reason, once the publishes under way
// are confirmed.
func (r *runner) leave(ctx context.Context, l *link, reason error) {
	r.up.CompareAndSwap(l, nil)
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	l.session.drain(ctx)
	l.session.note(reason)
	goodbye := packets.Disconnect{Properties: &packets.Properties{}}
	_, _ = goodbye.WriteTo(l.session.conn) // the connection ends one way or the other
	_ = l.session.conn.Close()
}

// watchCertificates has the link made anew when the certificate files have
// changed and make sense, until ctx ends.
func (r *runner) watchCertificates(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.ReloadInterval)
	defer ticker.Stop()
	var complaints complaints // these come while the connection is good
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		l := r.up.Load()
		if l == nil {
			continue
		}
		certs, err := r.cfg.Broker.Certificates()
		if err == nil && !certs.Equal(l.certs) {
			_, err = r.cfg.Broker.TLSConfig(certs)
		}
		switch {
		case err != nil:
			complaints.log(r.cfg.Logger, "can not use the certificate files as they are now, staying connected with what they were", err)
		case !certs.Equal(l.certs):
			complaints.settled()
			r.cfg.Logger.Info("certificate files have changed, reconnecting with the new ones")
			r.leave(ctx, l, errCertificates)
		}
	}
}

package mqtt

import (
	"context"
	"errors"
	"fmt"

	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/pkg/transport"
)

// Subscribe subscribes to one more filter on this connection; see [transport.Subscriber].
func (t *Transport) Subscribe(ctx context.Context, filter string) error {
	c := t.current.Load()
	if c == nil {
		return transport.ErrNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	// Not QoS 0 beside QoS 1: RabbitMQ has a queue for each, and that of QoS 0 is lost with its node,
	// and the session with it for as long as the node is.
	answer, err := c.manager.Subscribe(ctx, &paho.Subscribe{
		Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: t.subscriptionQoS(), RetainHandling: noRetained}},
	})
	switch {
	case answer == nil && c.session.isLost():
		return fmt.Errorf("subscribe to %q: %w: %w", filter, transport.ErrNotConnected, c.session.lossReason())
	case answer == nil:
		return fmt.Errorf("subscribe to %q: %w", filter, err)
	case len(answer.Reasons) != 1:
		return fmt.Errorf("subscribe to %q: %w", filter, errors.New("the broker's answer does not fit"))
	case answer.Reasons[0] < 0x80:
		return nil
	}
	return fmt.Errorf("subscribe to %q: %w", filter, &refusedError{answer.Reasons[0], answer.Properties.ReasonString})
}

package direct

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/security/sourcekeys"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// SourceOf returns the source that the topics of a transport configuration name, and its topics.
func SourceOf(topics wire.Topics) (wire.SourceID, wire.SourceTopics, error) {
	levels := strings.Split(wire.Unshared(topics.AgentEvents), "/")
	if len(levels) < 2 || levels[1] == "+" {
		return "", wire.SourceTopics{}, cli.Usagef("topics.agentEvents of the transport configuration names no source, such as sources/hub1/clusters/+/agentevents")
	}
	source := wire.SourceID(levels[1])
	of, err := topics.ForSource(source)
	return source, of, err
}

// connection is one to the broker as a source.
type connection struct {
	keys     *sourcekeys.Keys
	verifier *verifier
	source   wire.SourceID
	topics   wire.SourceTopics
	conn     *mqtt.Conn
}

// connect makes the connection, and has received called with each event.
func (c *connection) connect(ctx context.Context, broker config.Config, received func(mqtt.Received)) (err error) {
	if c.source, c.topics, err = SourceOf(broker.Topics); err != nil {
		return err
	}
	if c.conn, err = mqtt.Dial(ctx, broker, "workctl-"+uuid.NewString(), received); err != nil {
		return advised(fmt.Errorf("connect to the broker %s: %w", broker.BrokerHost, err))
	}
	return nil
}

// subscribe subscribes to a filter. Of a shared subscription, it would take statuses from another member of the group.
func (c *connection) subscribe(ctx context.Context, filter string) error {
	if err := c.conn.Subscribe(ctx, wire.Unshared(filter), 1); err != nil {
		return advised(err)
	}
	return nil
}

// publish publishes m to a cluster, sealed and signed as there are keys. Its error is a [*sealing.NoKeyError] if the cluster must not get it
// in clear.
func (c *connection) publish(ctx context.Context, cluster wire.ClusterName, m wire.Message) (heard bool, err error) {
	topic, err := c.topics.Specs(cluster)
	if err != nil {
		return false, err
	}
	event, err := wire.Encode(m, time.Now())
	if err == nil {
		err = c.keys.Seal.Seal(&event)
	}
	if err == nil && c.keys.Sign != nil {
		err = c.keys.Sign(&event)
	}
	if err != nil {
		return false, err
	}
	return c.conn.Publish(ctx, topic, event)
}

// ended reports whether err says that nothing more can be sent.
func (c *connection) ended(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || c.conn.Err() != nil)
}

// lost returns the error of a connection that has ended.
func (c *connection) lost() error {
	return advised(fmt.Errorf("the connection to the broker was lost: %w", c.conn.Err()))
}

func advised(err error) error {
	return cli.Errorf("%w", err).Do("%s", cmp.Or(mqtt.Advice(err), "workctl doctor --transport=FILE --skip-api checks the way to the broker"))
}

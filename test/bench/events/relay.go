package events

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
)

// Relay measures the broker alone: it publishes specs as the source does, but for a cluster of its
// own, to a client that subscribes as an agent does and only counts them, and gives the time until
// all have arrived. The cluster must not be that of the agent, whose session would keep them.
func Relay(ctx context.Context, source, agent config.Config, cluster wire.ClusterName, specs []*wire.Spec) (time.Duration, error) {
	if len(specs) == 0 {
		return 0, nil
	}
	id := specs[0].Source
	topic := fmt.Sprintf("sources/%s/clusters/%s/sourceevents", id, cluster)
	var arrived atomic.Int64
	done := make(chan struct{})
	subscriber, err := connect(ctx, agent, string(cluster)+"-baseline", []string{topic}, func(transport.Message) {
		if arrived.Add(1) == int64(len(specs)) {
			close(done)
		}
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = subscriber.close() }()
	publisher, err := connect(ctx, source, string(id)+"-baseline", nil, func(transport.Message) {})
	if err != nil {
		return 0, err
	}
	defer func() { _ = publisher.close() }()
	packets := make([]packet, len(specs))
	for i, spec := range specs {
		if packets[i], err = encode(topic, spec); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	if err := publish(ctx, publisher.link, packets); err != nil {
		return 0, err
	}
	select {
	case <-done:
		return time.Since(start), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%d of %d messages came through the broker alone: %w", arrived.Load(), len(specs), context.Cause(ctx))
	}
}

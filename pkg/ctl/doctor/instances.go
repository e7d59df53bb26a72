package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/workwire/workwire/pkg/source/instances"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	sourceIDCheck = "source id"
	// instanceWindow is how long instances have to announce themselves: they wait for up to a second.
	instanceWindow = 1500 * time.Millisecond
)

// instances asks which programs publish under the source id.
func (p *patient) instances(ctx context.Context, conn *mqtt.Conn, source wire.SourceID, topic string, messages <-chan mqtt.Received) {
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	const fix = "let the source read this topic: docs/brokers.md, Access rules"
	if err := conn.Subscribe(ctx, topic, 0); err != nil {
		p.add(sourceIDCheck, Warning, fix, "two programs under one source id would not be noticed: %v", err)
		return
	}
	question := &wire.Instance{Source: source, Expires: p.Now().Add(time.Minute)}
	event, err := wire.Encode(question, p.Now())
	if err == nil {
		_, err = conn.Publish(ctx, topic, event)
	}
	if err != nil {
		p.fault(sourceIDCheck, err, mqtt.Advice(err))
		return
	}
	echoed, found := p.collect(ctx, topic, messages)
	switch {
	case !echoed && len(found) == 0:
		p.add(sourceIDCheck, Warning, fix, "two programs under one source id would not be noticed: the broker does not deliver %s", topic)
	case len(found) == 0:
		p.skip(sourceIDCheck, "no program says that it publishes as "+string(source), "start the hub; one of an earlier version does not say so")
	case len(found) == 1:
		p.good(sourceIDCheck, "one program publishes as %s: %s", source, describe(found))
	case !instances.Disturbing(slices.Collect(maps.Values(found))):
		p.good(sourceIDCheck, "%d programs publish as %s, each to clusters of its own: %s", len(found), source, describe(found))
	default:
		p.add(sourceIDCheck, Fault, "stop all but one, or give each a source id of its own: they delete and overwrite each other's works",
			"%d programs publish as %s: %s", len(found), source, describe(found))
	}
}

// collect returns the instances that announce themselves, and whether the question itself came back.
func (p *patient) collect(ctx context.Context, topic string, messages <-chan mqtt.Received) (echoed bool, found map[string]instances.Other) {
	found = map[string]instances.Other{}
	window := time.NewTimer(instanceWindow)
	defer window.Stop()
	for {
		select {
		case m := <-messages:
			message, err := decode(m.Event, m.Err)
			instance, ok := message.(*wire.Instance)
			switch {
			case err != nil || !ok || m.Topic != topic:
			case instance.ID == "":
				echoed = true
			default:
				found[instance.ID] = instances.Other{ID: instance.ID, Program: instance.Program, Shard: instance.Part, Since: instance.Since}
			}
		case <-window.C:
			return echoed, found
		case <-ctx.Done():
			return echoed, found
		}
	}
}

func describe(found map[string]instances.Other) string {
	var texts []string
	for _, id := range slices.Sorted(maps.Keys(found)) {
		texts = append(texts, fmt.Sprintf("%s since %s", found[id].Program, found[id].SinceText()))
	}
	return strings.Join(texts, "; ")
}

package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
	kitworld "github.com/workwire/workwire/test/kit/world"
)

const (
	// spacing is the time between two messages of one attacker: what a message costs is looked for here, and not
	// how many the programs can take.
	spacing = 4 * time.Millisecond
	// inARound are the messages of one attacker that are made before they are sent.
	inARound = 1_000
)

// TestMessages is the fuzzer: a cluster and a source take turns to send random messages. Hub and agent must go on, and serve
// others and, once they have stopped, whoever sent them. Retained messages need no test: work-broker refuses them.
func TestMessages(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", *seed)
	w := newWorld(t, 10)
	cluster, source := w.connect(string(w.evil)), w.connect(string(w.rogue))
	sides := []struct {
		who       string
		transport transport.Transport
		generator *generator
		topics    []string
	}{
		{"a cluster", cluster, w.generator(*seed, false), []string{w.toHub(), fmt.Sprintf("clusters/%s/agentbroadcast", w.evil)}},
		{"a source", source, w.generator(*seed, true), []string{w.toAgent(), fmt.Sprintf("sources/%s/sourcebroadcast", w.rogue)}},
	}
	before := w.inPeace(w.hub, w.agent)
	start := time.Now()
	for n := 0; !t.Failed() && (n < len(sides) || time.Since(start) < *duration); n++ {
		side := sides[n%len(sides)]
		w.suffer(before, attack{fmt.Sprintf("%s of %s, round %d", t.Name(), side.who, n/len(sides)+1), func(int) func(context.Context) error {
			events := side.generator.events(inARound)
			return func(ctx context.Context) error { return publish(ctx, side.transport, events, side.topics...) }
		}})
	}
	w.converges(source)
}

// publish sends events, every fourth to the second topic, and returns an error if hardly any could be sent.
func publish(ctx context.Context, tr transport.Transport, events []cloudevents.Event, topics ...string) error {
	var refused error
	sent := 0
	for i := range events {
		next := time.Now().Add(spacing)
		if err := tr.Publish(ctx, topics[i%4/3], events[i]); err != nil {
			refused = err // it is no CloudEvent, or larger than a packet
		} else {
			sent++
		}
		<-time.After(time.Until(next))
	}
	if sent < len(events)/2 {
		return fmt.Errorf("%d of %d messages were sent: %w", sent, len(events), refused)
	}
	return nil
}

// converges fails the test unless the works of all are applied: those of others, a new one of the hostile
// cluster, by its own agent, and a new one of the hostile source.
func (w *world) converges(source transport.Transport) {
	w.Helper()
	took := w.others.run(func(n int) bool { return n < probes })
	if last := took[len(took)-1]; last >= patience {
		w.Errorf("a work of others is not applied within %v after the attack", patience)
	}
	w.startAgent(hostile)
	late := w.create(hostile, "late")
	kit.Await(w, w.Works(hostile), late.Name, "is applied by the agent of the hostile cluster", func(work *workv1.ManifestWork) bool {
		return work != nil && applied(work)
	})
	listener := wirekit.Connect(w, w.Transport(string(w.rogue), string(w.rogue)+"-listener", w.Topics), fmt.Sprintf("sources/%s/clusters/+/agentevents", w.rogue))
	kit.NoError(w, source.Publish(w.Context(), w.toAgent(), w.fromSource(manifestBundles+"spec.create_request", types.UID("honest"),
		fmt.Appendf(nil, `{"manifests":[%s]}`, kitworld.ConfigMap(w.Targets[honest], "honest", "1").Raw))))
	wirekit.Next(w, listener, "the hostile source's work is applied", func(s *wire.Status) bool {
		return s.UID == "honest" && applied(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: s.Status})
	})
	w.Alive()
}

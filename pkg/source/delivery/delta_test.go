package delivery_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// reporter sends statuses of a work of cluster1, in order.
type reporter struct {
	*harness
	uid      types.UID
	sequence wire.SequenceID
}

func (r *reporter) whole(s workv1.ManifestWorkStatus) *wire.Status {
	r.t.Helper()
	hash, err := wire.StatusHash(&s)
	kit.NoError(r.t, err)
	r.sequence++
	return &wire.Status{UID: r.uid, Generation: 1, Source: "hub1", Cluster: "cluster1", Agent: "a", Action: wire.Update,
		Sequence: r.sequence, Session: "session", Hash: hash, Status: s}
}

// delta returns next as its difference from base.
func (r *reporter) delta(base, next workv1.ManifestWorkStatus) *wire.StatusDelta {
	r.t.Helper()
	d, err := wire.NewStatusDelta(r.whole(next), &base, r.whole(base).Hash)
	kit.NoError(r.t, err)
	return d
}

// receive has the source receive m, and checks which status the store has then and how many statuses
// the source has asked for since the last call.
func (r *reporter) receive(what string, m wire.Message, stored workv1.ManifestWorkStatus, asked int) {
	r.t.Helper()
	r.tap.mu.Lock()
	r.tap.events = nil
	r.tap.mu.Unlock()
	r.send("cluster1", m)
	synctest.Wait()
	time.Sleep(time.Second) // after a retry
	synctest.Wait()
	want, _ := wire.StatusHash(&stored)
	if got, _ := wire.StatusHash(&r.store.get(r.uid).Status); got != want {
		r.t.Errorf("%s: another status is stored", what)
	}
	n := 0
	for _, ask := range r.tap.asks() {
		if len(ask.Hashes) != 1 || ask.Hashes[0] != (wire.StatusVersion{UID: r.uid, Hash: wire.NoStatus}) || !ask.Reply || ask.Accepts != wire.Accepted {
			r.t.Errorf("%s: asked %+v", what, ask)
		}
		n++
	}
	if n != asked {
		r.t.Errorf("%s: asked %d times, want %d", what, n, asked)
	}
}

// version returns a large status that n makes different.
func version(n int64) workv1.ManifestWorkStatus {
	s := wirekit.LargeStatus(20)
	s.ResourceStatus.Manifests[7].StatusFeedbacks.Values[0].Value.Integer = &n
	return s
}

func TestStatusDeltas(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.start()
		r := &reporter{harness: b, uid: b.store.put(newWork("cluster1", "web")).UID}
		synctest.Wait()
		r.receive("the first", r.whole(version(1)), version(1), 0)
		r.receive("a delta", r.delta(version(1), version(2)), version(2), 0)
		d := r.delta(version(2), version(3))
		r.receive("another delta", d, version(3), 0)
		r.receive("the same, delivered twice", d, version(3), 0)
		if n := b.metric("workwire_source_received_total", "message=status", "verdict=out_of_order"); n != 1 {
			t.Errorf("%v statuses out of order, want 1", n)
		}
		r.receive("a delta of a status that never came", r.delta(version(8), version(9)), version(3), 1)
		r.receive("the answer", r.whole(version(9)), version(9), 0)

		forged := r.delta(version(9), version(10))
		forged.Parts = []wire.DeltaPart{{Count: 1}}
		r.receive("a delta of something else", forged, version(9), 1)
		forged.Parts = []wire.DeltaPart{{Text: "{}"}}
		r.receive("a delta of nothing", forged, version(9), 1)
		if n := b.metric("workwire_source_received_total", "message=status", "verdict=unknown_base"); n != 3 {
			t.Errorf("%v deltas of unknown bases, want 3", n)
		}

		// The store has an older status until the write is repeated.
		b.store.mu.Lock()
		b.store.fail = errBroken
		b.store.mu.Unlock()
		first, second := r.delta(version(9), version(11)), r.delta(version(11), version(12))
		b.send("cluster1", first)
		synctest.Wait()
		if got, want := b.store.get(r.uid).Status, version(9); *got.ResourceStatus.Manifests[7].StatusFeedbacks.Values[0].Value.Integer !=
			*want.ResourceStatus.Manifests[7].StatusFeedbacks.Values[0].Value.Integer {
			t.Fatal("the write did not fail")
		}
		r.receive("a delta of a status that is not stored yet", second, version(12), 0)
	})
}

// A delta counts for its own work and cluster only. Of a work that is unknown, the whole is asked for.
func TestStatusDeltaOfOthers(t *testing.T) {
	unknown := 0
	withHarness(t, delivery.Config{Observe: on(func(delivery.UnknownStatus) { unknown++ })}, func(b *harness) {
		b.start()
		r := &reporter{harness: b, uid: b.store.put(newWork("cluster1", "web")).UID}
		r.receive("the first", r.whole(version(1)), version(1), 0)
		d := r.delta(version(1), version(2))
		b.send("cluster2", d)
		d.Of.Cluster = "cluster2"
		b.send("cluster2", d)
		synctest.Wait()
		if n := b.metric("workwire_source_received_total", "message=status", "verdict=wrong_cluster"); n != 2 {
			t.Errorf("%v statuses of another cluster, want 2", n)
		}
		d.Of.Cluster, d.Of.UID = "cluster1", "stranger"
		b.send("cluster1", d)
		synctest.Wait()
		asks := b.tap.asks()
		if last := asks[len(asks)-1]; len(last.Hashes) != 1 || last.Hashes[0].UID != "stranger" || unknown != 0 {
			t.Errorf("of an unknown work, asked %+v, and %d unknown statuses", last, unknown)
		}
		whole := r.whole(version(2))
		whole.UID = "stranger"
		b.send("cluster1", whole)
		synctest.Wait()
		if unknown != 1 {
			t.Errorf("%d unknown statuses, want 1", unknown)
		}
	})
}

// An agent learns from specs and questions that the source takes deltas.
func TestSourceSaysThatItTakesDeltas(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		uid := b.store.put(newWork("cluster1", "web")).UID
		b.start()
		if specs := b.published(uid, 1); specs[0].Accepts != wire.Accepted {
			t.Error("the spec does not say so")
		}
		asks := b.tap.asks()
		if len(asks) == 0 {
			t.Fatal("the source has not asked for statuses")
		}
		for _, ask := range asks {
			if ask.Accepts != wire.Accepted {
				t.Errorf("a question does not say so: %+v", ask)
			}
		}
	})
}

// Specs are compressed for agents whose last event says that they read that, and never for others.
func TestCompressedSpecs(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.start()
		large := newWork("cluster1", "web")
		large.Spec.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"n":"` + strings.Repeat("n", 5000) + `"}}`)
		r := &reporter{harness: b, uid: b.store.put(large).UID}
		synctest.Wait()
		generation := int64(1)
		publishes := func(what string, compressed bool) {
			t.Helper()
			synctest.Wait() // what was sent before has been answered
			b.tap.mu.Lock()
			before := b.tap.compressed
			b.tap.mu.Unlock()
			generation++
			b.store.change(r.uid, func(w *workv1.ManifestWork) { w.Generation = generation })
			synctest.Wait()
			b.tap.mu.Lock()
			defer b.tap.mu.Unlock()
			if got := b.tap.compressed > before; got != compressed {
				t.Errorf("%s: the spec is compressed: %v, want %v", what, got, compressed)
			}
			// Questions about statuses may come between the specs.
			var last *wire.Spec
			for _, e := range b.tap.events {
				if s, ok := e.(*wire.Spec); ok {
					last = s
				}
			}
			if last == nil || last.Generation != wire.Generation(generation) || len(last.Bundle.Manifests[0].Raw) < 5000 {
				t.Errorf("%s: published %+v", what, last)
			}
		}
		publishes("an agent that was not heard", false)
		s := r.whole(version(1))
		s.Accepts = wire.Accepts{Zstd: true}
		b.send("cluster1", s)
		publishes("after its status", true)
		b.send("cluster1", &wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1", Versions: []wire.SpecVersion{{UID: r.uid, Generation: wire.Generation(generation)}}})
		publishes("another agent in its place", false)
		b.send("cluster1", &wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1", Accepts: wire.Accepts{Zstd: true},
			Versions: []wire.SpecVersion{{UID: r.uid, Generation: wire.Generation(generation)}}})
		publishes("its question", true)
		b.send("cluster1", r.whole(version(2)))
		publishes("a status without", false)
	})
}

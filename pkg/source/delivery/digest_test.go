package delivery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// minute lets an agent send a digest and a minute pass.
func (b *harness) minute(agents ...*wirekit.Agent) {
	b.t.Helper()
	synctest.Wait()
	for _, a := range agents {
		kit.NoError(b.t, a.SendDigest(b.t.Context()))
	}
	synctest.Wait()
	time.Sleep(time.Minute)
	synctest.Wait()
}

// digests checks how many digests were equal and different so far.
func (b *harness) digests(equal, different int) {
	b.t.Helper()
	if e, d := b.metric("workwire_source_digests_total", "result=equal"), b.metric("workwire_source_digests_total", "result=different"); e != float64(equal) || d != float64(different) {
		b.t.Fatalf("%v equal digests and %v different ones, want %d and %d", e, d, equal, different)
	}
}

// losing makes an agent lose everything while lose is set.
func losing(lose *bool) func(*wirekit.AgentConfig) {
	return func(c *wirekit.AgentConfig) {
		c.Lose = func(wire.Message) bool { return *lose }
		c.LoseStatus = func(*wire.Status) bool { return *lose }
	}
}

// TestDigest: what was lost is found by the next digest, and only the works that differ are sent
// again.
func TestDigest(t *testing.T) {
	lose := false
	withHarness(t, remembering(), func(b *harness) {
		a := b.agent("cluster1", losing(&lose))
		b.start()
		var uids []types.UID
		for i := range 100 {
			uids = append(uids, b.store.put(newWork("cluster1", fmt.Sprint("w", i))).UID)
		}
		b.minute(a)
		b.digests(1, 0)
		asks, sent := len(b.tap.asks()), len(b.tap.specs(uids[9]))
		lose = true
		b.store.change(uids[0], bump)
		b.store.change(uids[1], doom)
		fresh := b.store.put(newWork("cluster1", "fresh")).UID
		a.Touch(uids[2], "lost")
		synctest.Wait()
		lose = false
		b.holds(a, uids[0], 1)
		b.holds(a, fresh, 0)
		b.minute(a)
		b.digests(1, 1)
		b.holds(a, uids[0], 2)
		b.holds(a, uids[1], 0)
		b.holds(a, fresh, 1)
		if got := b.store.get(uids[2]).Status.Conditions; len(got) != 2 || got[1].Message != "lost" {
			t.Errorf("the lost status was not sent again: %v", got)
		}
		if n := b.metric("workwire_source_resync_answers_total", "answer=sent"); n != 3 {
			t.Errorf("%v works were sent again, want 3", n)
		}
		if n := len(b.tap.asks()) - asks; n != 1 {
			t.Errorf("%d status resync requests, want 1", n)
		}
		if n := len(b.tap.specs(uids[9])); n != sent {
			t.Errorf("an equal work was published %d times more", n-sent)
		}
		b.minute(a)
		b.digests(2, 1)
	})
}

// TestLostDeletions: that a work is deleted is the last that its agent says of it. If that was lost, digests find nothing:
// they have no works that are being deleted. The deletion is sent again, and not each minute.
func TestLostDeletions(t *testing.T) {
	lose := false
	withHarness(t, remembering(), func(b *harness) {
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) { c.KeepDeleting = true }, losing(&lose))
		b.start()
		stored, removed := b.store.put(newWork("cluster1", "stored")), b.store.put(newWork("cluster1", "removed"))
		b.holds(a, stored.UID, 1)
		b.holds(a, removed.UID, 1)
		b.store.change(stored.UID, doom)
		b.store.remove(removed)
		for range 60 {
			b.minute(a)
		}
		if n := len(b.tap.specs(stored.UID)); n < 4 || n > 12 {
			t.Errorf("%d specs of a work whose deletion takes an hour, want 2 and some repetitions", n)
		}
		lose = true
		a.Finish(stored.UID)
		a.Finish(removed.UID)
		b.minute(a)
		lose = false
		for range 11 {
			b.minute(a)
		}
		if b.store.get(stored.UID) != nil {
			t.Error("the work is still being deleted, although its agent does not hold it any more")
		}
		if kept := delivery.KeptOf(b.engine); kept.Works > 0 {
			t.Errorf("works are kept of which nobody has any: %+v", kept)
		}
	})
}

// TestDigestOfStrays: a work that only the agent holds is answered as in each resync, also if the
// source has no work for the cluster.
func TestDigestOfStrays(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1")
		b.start()
		synctest.Wait()
		a.Receive(&wire.Spec{UID: "stray", Generation: 4, Source: "hub1", Cluster: "cluster1", Meta: metav1.ObjectMeta{Name: "stray"}})
		b.minute(a)
		b.holds(a, "stray", 0)
		b.minute(a)
		b.digests(1, 1)
	})
}

// TestDigestsThatCannotAgree: works that cannot be sent, and statuses that cannot be stored, do not
// make digests differ forever.
func TestDigestsThatCannotAgree(t *testing.T) {
	var reported []time.Time
	config := remembering()
	config.Observe = on(func(d delivery.DivergenceChanged) { reported = append(reported, d.Since) })
	withHarness(t, config, func(b *harness) {
		refused := newWork("cluster1", "refused").UID
		b.tap.fail = func(m wire.Message) error {
			if s, ok := m.(*wire.Spec); ok && (s.UID == refused || s.UID == newWork("cluster1", "held").UID) && s.Generation == 2 {
				return &transport.TooLargeError{Size: 2, Limit: 1}
			}
			return nil
		}
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) { c.KeepDeleting = true })
		// The agent has an earlier spec of a work whose newest one was refused before the start.
		former := newWork("cluster1", "refused")
		a.Receive(&wire.Spec{UID: refused, Generation: 1, Source: "hub1", Cluster: "cluster1", Meta: former.ObjectMeta, Bundle: wire.NewBundle(&former.Spec)})
		bump(former)
		b.store.put(former)
		// Another one is deleted, which waits for its last spec.
		held := newWork("cluster1", "held")
		a.Receive(&wire.Spec{UID: held.UID, Generation: 1, Source: "hub1", Cluster: "cluster1", Meta: held.ObjectMeta, Bundle: wire.NewBundle(&held.Spec)})
		held.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, ObservedGeneration: 1}}
		bump(held)
		held.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
		doom(held)
		b.store.put(held)
		b.store.amend = "unstorable"
		b.store.put(newWork("cluster1", "unstorable"))
		deleting := b.store.put(newWork("cluster1", "deleting")).UID
		b.start()
		b.holds(a, deleting, 1)
		b.store.change(deleting, doom)
		removed := b.store.put(newWork("cluster1", "removed"))
		b.holds(a, removed.UID, 1)
		b.store.remove(removed)
		synctest.Wait()
		for range 4 {
			b.minute(a)
		}
		equal := int(b.metric("workwire_source_digests_total", "result=equal"))
		if equal == 0 {
			t.Fatal("no digest was equal")
		}
		for range 5 {
			b.minute(a)
		}
		if n := int(b.metric("workwire_source_digests_total", "result=equal")); n != equal+5 {
			t.Errorf("of five digests %d were equal", n-equal)
		}
		b.holds(a, refused, 1)
		b.holds(a, held.UID, 1)
		if len(reported) > 0 {
			t.Errorf("reported since %v", reported)
		}
		b.engine.SetCluster("cluster1", delivery.ClusterPaused)
		b.store.change(newWork("cluster1", "unstorable").UID, bump)
		b.minute(a)
		if n := b.metric("workwire_source_digests_total", "result=paused"); n != 1 || len(reported) > 0 {
			t.Errorf("%v digests of a paused cluster were not compared", n)
		}
	})
}

// TestOnDivergence: a difference that nothing repairs is reported after a minute, with the time of
// the first digest that differed, until digests are equal.
func TestOnDivergence(t *testing.T) {
	var reported []time.Time
	config := remembering()
	config.Observe = on(func(d delivery.DivergenceChanged) { reported = append(reported, d.Since) })
	var log kit.Log
	config.Logger = log.Logger()
	lose := false
	withHarness(t, config, func(b *harness) {
		a := b.agent("cluster1", losing(&lose))
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		other := b.store.put(newWork("cluster1", "other")).UID
		b.minute(a)
		lose = true
		b.store.change(uid, bump)
		synctest.Wait()
		since := time.Now()
		b.minute(a)
		if len(reported) > 0 {
			t.Fatalf("reported %v at once", reported)
		}
		lose = false
		a.Touch(other, "changes meanwhile")
		synctest.Wait()
		lose = true
		b.minute(a)
		if len(reported) != 1 || !reported[0].Equal(since) {
			t.Fatalf("reported %v, want since %v", reported, since)
		}
		if n := len(log.Lines("level=WARN", "works of the cluster differ from those of the source")); n != 1 {
			t.Errorf("%d lines of the log say so", n)
		}
		if n := b.metric("workwire_source_clusters_diverged"); n != 1 {
			t.Errorf("clusters_diverged is %v", n)
		}
		lose = false
		b.minute(a)
		b.minute(a)
		if len(reported) != 2 || !reported[1].IsZero() || b.metric("workwire_source_clusters_diverged") != 0 {
			t.Errorf("reported %v, want that it is equal again", reported)
		}
	})
}

// chaos loses, repeats and delays what its client publishes, by a seed.
type chaos struct {
	transport.Transport
	mu     sync.Mutex
	random *rand.Rand
	on     bool
	late   []func()
}

func (c *chaos) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	c.mu.Lock()
	if !c.on {
		c.mu.Unlock()
		return c.Transport.Publish(ctx, topic, e)
	}
	fate := c.random.IntN(10)
	if fate < 6 { // it comes late, once or twice
		for range 1 + fate%2 {
			c.late = append(c.late, func() { _ = c.Transport.Publish(context.Background(), topic, e) })
		}
	}
	c.mu.Unlock()
	if fate < 8 {
		return nil
	}
	return c.Transport.Publish(ctx, topic, e)
}

func (c *chaos) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = true
}

// end delivers what is late, in another order, and from now on everything at once.
func (c *chaos) end() {
	c.mu.Lock()
	c.on = false
	late := c.late
	c.random.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
	c.late = nil
	c.mu.Unlock()
	for _, publish := range late {
		publish()
	}
}

// TestDigestsAfterChaos: after any messages were lost, repeated and reordered, in both directions,
// digests bring source and agent to agree without a reconnect.
func TestDigestsAfterChaos(t *testing.T) {
	for seed := range uint64(20) {
		withHarness(t, remembering(), func(b *harness) {
			random := rand.New(rand.NewPCG(seed, 1))
			specs := &chaos{Transport: b.tap.Transport, random: rand.New(rand.NewPCG(seed, 3))}
			b.tap.Transport = specs
			statuses := &chaos{Transport: b.broker.Client("cluster1"), random: rand.New(rand.NewPCG(seed, 2))}
			a := b.agent("cluster1", func(c *wirekit.AgentConfig) { c.Transport = statuses })
			b.start()
			var uids []types.UID
			for i := range 30 {
				uids = append(uids, b.store.put(newWork("cluster1", fmt.Sprint("w", i))).UID)
			}
			b.minute(a)
			b.digests(1, 0)
			specs.begin()
			statuses.begin()
			for i := range 100 {
				uid := uids[random.IntN(len(uids))]
				work := b.store.get(uid)
				switch {
				case work == nil || work.DeletionTimestamp != nil:
				case i%10 == 0:
					b.store.change(uid, doom)
				case i%10 == 1:
					uids = append(uids, b.store.put(newWork("cluster1", fmt.Sprint("fresh", i))).UID)
				case i%10 < 6:
					b.store.change(uid, bump)
				default:
					a.Touch(uid, fmt.Sprint(i))
				}
			}
			synctest.Wait()
			specs.end()
			statuses.end()
			synctest.Wait()
			equal := b.metric("workwire_source_digests_total", "result=equal")
			minutes := 0
			for b.metric("workwire_source_digests_total", "result=equal") == equal {
				if minutes++; minutes > 5 {
					t.Fatalf("seed %d: not equal after %d digests", seed, minutes)
				}
				b.minute(a)
			}
			b.agree(a, uids)
		})
	}
}

// agree checks that source and agent have the same works and statuses.
func (b *harness) agree(a *wirekit.Agent, uids []types.UID) {
	b.t.Helper()
	for _, uid := range slices.Compact(slices.Sorted(slices.Values(uids))) {
		work, held := b.store.get(uid), a.Holds()[uid]
		switch {
		case work == nil && held == nil:
		case work == nil || held == nil:
			b.t.Errorf("%s: at the source %t, at the agent %t", uid, work != nil, held != nil)
		case work.Generation != int64(held.Generation):
			b.t.Errorf("%s: generation %d, at the agent %d", uid, work.Generation, held.Generation)
		default:
			status := a.Status(uid)
			want, err := wire.StatusHash(&status)
			kit.NoError(b.t, err)
			if got, err := wire.StatusHash(&work.Status); err != nil || got != want {
				b.t.Errorf("%s: the status differs: %v, want %v", uid, work.Status.Conditions, status.Conditions)
			}
		}
	}
}

// BenchmarkDigest compares a digest of 1,000 works that has no difference.
func BenchmarkDigest(b *testing.B) {
	store := &fakeStore{works: make(map[types.UID]*workv1.ManifestWork)}
	config := remembering()
	config.Source, config.Topics, config.Transport, config.Works = "hub1", topics, failingTransport{}, store
	engine, err := delivery.New(config)
	kit.NoError(b, err)
	store.engine = engine
	for i := range 1000 {
		store.put(newWork("cluster1", fmt.Sprint("w", i)))
	}
	delivery.OwnDigest(engine, "cluster1", 64)
	b.ReportAllocs()
	for b.Loop() {
		delivery.OwnDigest(engine, "cluster1", 64)
	}
}

type failingTransport struct{ transport.Transport }

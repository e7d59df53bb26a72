package delivery_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

const identity = "6f1c2d3e-0000-4000-8000-00000000cafe"

// remembering returns the configuration of a source that has an identity.
func remembering() delivery.Config {
	return delivery.Config{Identity: func(context.Context) (string, error) { return identity, nil }}
}

// held returns a spec that an agent holds from an earlier life of the source.
func held(work *workv1.ManifestWork, generation int64, content string) *wire.Spec {
	return &wire.Spec{UID: work.UID, Generation: wire.Generation(generation), Source: "hub1", Cluster: wire.ClusterName(work.Namespace),
		Meta: metav1.ObjectMeta{Name: work.Name, UID: work.UID}, ContentHash: content, Bundle: &wire.Bundle{}}
}

// TestRestored: after the store of a source was restored from a backup, agents that list content
// hashes get its content although its generation is not higher, once, and their statuses are
// accepted.
func TestRestored(t *testing.T) {
	withHarness(t, remembering(), func(b *harness) {
		a := b.agent("cluster1")
		works := make(map[string]*workv1.ManifestWork)
		for _, name := range []string{"lower", "other", "same", "older"} {
			work := newWork("cluster1", name)
			work.Generation = 3
			work.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: "Backup", ObservedGeneration: 3}}
			works[name] = b.store.put(work)
		}
		hash, err := wire.ContentHash(wire.NewBundle(&works["same"].Spec))
		if err != nil {
			t.Fatal(err)
		}
		a.Receive(held(works["lower"], 9, "of generation 9"))
		a.Receive(held(works["other"], 3, "of another generation 3"))
		a.Receive(held(works["same"], 3, hash))
		a.Receive(held(works["older"], 2, "of generation 2"))
		b.start()
		a.Resync(t.Context())
		for name, want := range map[string]struct {
			published     int
			authoritative bool
		}{"lower": {1, true}, "other": {1, true}, "same": {0, false}, "older": {1, false}} {
			specs := b.restored(works[name].UID, want.published)
			b.holds(a, works[name].UID, 3)
			if want.published > 0 && (specs[0].Authoritative != want.authoritative || specs[0].SourceIdentity != identity) {
				t.Errorf("%s: authoritative is %v, identity %q", name, specs[0].Authoritative, specs[0].SourceIdentity)
			}
			applied := b.store.get(works[name].UID).Status.Conditions
			if len(applied) != 1 || applied[0].Reason != workv1.ReasonAppliedManifestWorkComplete || applied[0].ObservedGeneration != 3 {
				t.Errorf("%s: the status is %+v", name, applied)
			}
		}
		a.Resync(t.Context())
		before := len(b.restored(works["lower"].UID, 1))
		b.published(works["other"].UID, 1)
		a.Touch(works["lower"].UID, "goes on") // the statuses before may have crossed the publish that they answer
		synctest.Wait()
		b.store.change(works["lower"].UID, bump)
		b.holds(a, works["lower"].UID, 4)
		if specs := b.published(works["lower"].UID, before+1); specs[before].Authoritative {
			t.Error("the next generation is authoritative too")
		}
		for _, r := range b.tap.asks() {
			if r.SourceIdentity != identity {
				t.Errorf("a status resync request has the identity %q", r.SourceIdentity)
			}
		}
		if n := b.metric("workwire_source_resync_answers_total", "answer=authoritative"); n == 0 {
			t.Error("no work was answered as authoritative")
		}
	})
}

// restored checks how many spec events went out for a work: an authoritative
// spec may go out twice, if a status of the generation that the agent held crossed the first one.
func (b *harness) restored(uid types.UID, want int) []*wire.Spec {
	b.t.Helper()
	synctest.Wait()
	if specs := b.tap.specs(uid); len(specs) == want+1 && want > 0 && specs[0].Authoritative && specs[1].Authoritative {
		return specs
	}
	return b.published(uid, want)
}

// TestRestoredWhileRunning: a store that goes back while source and agents run is noticed by the
// source, or by a status of a generation to come.
func TestRestoredWhileRunning(t *testing.T) {
	for name, notice := range map[string]func(b *harness, uid types.UID){
		"by the source":   func(b *harness, uid types.UID) { b.engine.WorkRestored(b.store.get(uid)) },
		"by its statuses": func(*harness, types.UID) {},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, remembering(), func(b *harness) {
				a := b.agent("cluster1")
				b.start()
				uid := b.store.put(newWork("cluster1", "w")).UID
				for range 4 {
					b.store.change(uid, bump)
				}
				b.holds(a, uid, 5)
				backup := newWork("cluster1", "w")
				backup.Generation = 2
				backup.Spec = specOf("w", 2)
				b.store.mu.Lock()
				b.store.works[uid] = backup
				b.store.mu.Unlock()
				notice(b, uid)
				a.Touch(uid, "goes on")
				b.holds(a, uid, 2)
				specs := b.published(uid, len(b.tap.specs(uid)))
				if last := specs[len(specs)-1]; !last.Authoritative {
					t.Error("the backup was sent as a usual spec")
				}
				a.Touch(uid, "and on")
				synctest.Wait()
				if c := b.store.get(uid).Status.Conditions; len(c) != 2 || c[1].Message != "and on" || c[1].ObservedGeneration != 2 {
					t.Errorf("conditions %+v", c)
				}
			})
		})
	}
}

// TestLost: works that vanished from the store are answered as unknown, and statuses that it lost
// are asked for.
func TestLost(t *testing.T) {
	withHarness(t, remembering(), func(b *harness) {
		a := b.agent("cluster1")
		b.start()
		lost, kept := b.store.put(newWork("cluster1", "lost")), b.store.put(newWork("cluster1", "kept"))
		b.holds(a, lost.UID, 1)
		b.holds(a, kept.UID, 1)
		b.store.mu.Lock()
		delete(b.store.works, lost.UID)
		before := b.store.works[kept.UID].DeepCopy()
		before.ResourceVersion, before.Status = "0", workv1.ManifestWorkStatus{}
		b.store.works[kept.UID] = before
		b.store.mu.Unlock()
		b.engine.WorkLost(lost)
		b.engine.StatusesLost("cluster1")
		synctest.Wait()
		if specs := b.published(lost.UID, 2); !specs[1].IsDeletion() || !specs[1].NoMetadata || specs[1].SourceIdentity != identity {
			t.Errorf("published %+v", specs[1])
		}
		if c := b.store.get(kept.UID).Status.Conditions; len(c) == 0 {
			t.Error("the status was not asked for")
		}
	})
}

// TestClusterIdentity: each cluster may be told another identity, and what is for all of them has none then.
func TestClusterIdentity(t *testing.T) {
	config := remembering()
	config.ClusterIdentity = func(identity string, cluster wire.ClusterName) string { return identity + "-" + string(cluster) }
	config.Topics = topics
	config.Topics.SourceBroadcast, config.Topics.AgentBroadcast = "sources/hub1/sourcebroadcast", "clusters/+/agentbroadcast"
	withHarness(t, config, func(b *harness) {
		a := b.agent("cluster1")
		b.start()
		work := b.store.put(newWork("cluster1", "w"))
		b.holds(a, work.UID, 1)
		if spec := b.published(work.UID, 1)[0]; spec.SourceIdentity != identity+"-cluster1" {
			t.Errorf("the spec has the identity %q", spec.SourceIdentity)
		}
		b.engine.StatusesLost("cluster1")
		b.broker.Cut("hub1")
		b.broker.Restore("hub1")
		synctest.Wait()
		asked := map[wire.ClusterName]string{}
		for _, r := range b.tap.asks() {
			asked[r.Cluster] = r.SourceIdentity
		}
		if want := (map[wire.ClusterName]string{"": "", "cluster1": identity + "-cluster1"}); !maps.Equal(asked, want) {
			t.Errorf("status resync requests have the identities %v, want %v", asked, want)
		}
	})
}

// TestLostAuthoritative: an authoritative spec that is lost is published again, still as
// authoritative.
func TestLostAuthoritative(t *testing.T) {
	withHarness(t, remembering(), func(b *harness) {
		var lost atomic.Int32
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) {
			c.Lose = func(m wire.Message) bool {
				s, ok := m.(*wire.Spec)
				return ok && s.Authoritative && lost.Add(1) <= 2
			}
		})
		work := b.store.put(newWork("cluster1", "w"))
		a.Receive(held(work, 9, "other"))
		b.start()
		b.holds(a, work.UID, 9)
		for range 2 {
			b.broker.Cut("hub1")
			b.broker.Restore("hub1")
			synctest.Wait()
		}
		b.holds(a, work.UID, 1)
	})
}

// TestUnknownWorks: what happens to works that an agent holds and the source does not have.
func TestUnknownWorks(t *testing.T) {
	for name, c := range map[string]struct {
		action    delivery.UnknownAction
		published int
		metadata  bool
	}{
		"answered": {action: delivery.AnswerUnknown, published: 1},
		"deleted":  {action: delivery.DeleteUnknown, published: 1, metadata: true},
		"held":     {action: delivery.HoldUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, remembering(), func(b *harness) {
				b.store.unknown = c.action
				a := b.agent("cluster1")
				stray := held(newWork("cluster1", "stray"), 4, "x")
				a.Receive(stray)
				b.start()
				a.Resync(t.Context())
				specs := b.published(stray.UID, c.published)
				if c.published > 0 && (!specs[0].IsDeletion() || specs[0].NoMetadata == c.metadata || specs[0].SourceIdentity != identity) {
					t.Errorf("published %+v", specs[0])
				}
				if _, holds := a.Holds()[stray.UID]; holds == (c.published > 0) {
					t.Errorf("the agent holds the work: %v", holds)
				}
			})
		})
	}
}

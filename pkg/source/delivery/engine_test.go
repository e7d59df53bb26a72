package delivery_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestLife follows one work from creation to its end.
func TestLife(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1")
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		if status := b.store.get(uid).Status; !meta.IsStatusConditionTrue(status.Conditions, workv1.WorkApplied) {
			t.Fatalf("status %+v", status)
		}
		b.store.change(uid, bump)
		b.holds(a, uid, 2)
		b.store.change(uid, func(w *workv1.ManifestWork) { w.Labels = map[string]string{"a": "b"} })
		b.store.change(uid, func(w *workv1.ManifestWork) { w.Finalizers = []string{"not the agent's"} })
		specs := b.published(uid, 3)
		b.store.change(uid, doom)
		b.holds(a, uid, 0)
		if b.store.get(uid) != nil {
			t.Error("the work is still there")
		}
		specs = append(specs, b.published(uid, 4)[3])
		for i, want := range []wire.Action{wire.Create, wire.Update, wire.Update, wire.Delete} {
			if specs[i].Action != want {
				t.Errorf("event %d is a %s, want %s", i, specs[i].Action, want)
			}
		}
		time.Sleep(time.Hour)
		b.published(uid, 4)
		if n := b.metric("workwire_source_published_total", "result=ok"); n != 4 {
			t.Errorf("published_total is %v, want 4", n)
		}
	})
}

// TestRestart: a new engine for works that have been applied publishes nothing.
func TestRestart(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		applied := newWork("cluster1", "applied")
		applied.Generation = 7
		applied.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, ObservedGeneration: 7, Reason: workv1.ReasonAppliedManifestWorkFailed}}
		changed := applied.DeepCopy()
		changed.Name, changed.UID, changed.Generation = "changed", "uid-changed", 8
		b.store.put(applied)
		b.store.put(changed)
		b.start()
		b.published(applied.UID, 0)
		if specs := b.published(changed.UID, 1); specs[0].Generation != 8 {
			t.Errorf("generation %d was published", specs[0].Generation)
		}
		b.store.change(applied.UID, func(w *workv1.ManifestWork) { w.Status.Conditions[0].Message = "again" })
		b.published(applied.UID, 0)
		b.store.change(applied.UID, bump)
		if specs := b.published(applied.UID, 1); specs[0].Action != wire.Update {
			t.Errorf("it was published by a %s", specs[0].Action)
		}
	})
}

// TestTooLarge: a spec that exceeds the broker's limit is refused with a condition, which statuses
// of older generations keep. It is published once it fits or the limit has changed.
func TestTooLarge(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.broker.SetLimit(4000)
		a := b.agent("cluster1")
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		b.store.change(uid, func(w *workv1.ManifestWork) {
			bump(w)
			w.Spec.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w"},"data":{"x":"` + strings.Repeat("x", 5000) + `"}}`)
		})
		synctest.Wait()
		if len(b.store.refused) != 1 || b.store.refused[0].Reason != workv1.ReasonTooLarge || b.store.refused[0].ObservedGeneration != 2 {
			t.Fatalf("refused: %+v", b.store.refused)
		}
		a.Touch(uid, "the old one goes on")
		synctest.Wait()
		applied := meta.FindStatusCondition(b.store.get(uid).Status.Conditions, workv1.WorkApplied)
		if applied == nil || applied.Reason != workv1.ReasonTooLarge {
			t.Errorf("a status of the old generation says %+v", applied)
		}
		b.broker.Cut("hub1")
		b.broker.Restore("hub1")
		time.Sleep(time.Hour)
		b.published(uid, 1)
		if len(b.store.refused) != 1 {
			t.Errorf("it was tried again under the same limit")
		}
		b.broker.Cut("hub1")
		b.broker.SetLimit(20_000)
		b.broker.Restore("hub1")
		b.holds(a, uid, 2)
		applied = meta.FindStatusCondition(b.store.get(uid).Status.Conditions, workv1.WorkApplied)
		if applied == nil || applied.Status != metav1.ConditionTrue {
			t.Errorf("after it went out, the status says %+v", applied)
		}
	})
}

// TestDeletionWaitsForTheLastSpec: a work that keeps objects is not deleted while its last spec exceeds the limit, whether that was refused
// before the deletion or not. It says so, and is deleted by its deleteOption once its spec fits.
func TestDeletionWaitsForTheLastSpec(t *testing.T) {
	large := func(w *workv1.ManifestWork) {
		bump(w)
		w.Spec.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w"},"data":{"x":"` + strings.Repeat("x", 5000) + `"}}`)
		w.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	}
	for name, refusedBefore := range map[string]bool{"refused before the deletion": true, "deleted at once": false} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, delivery.Config{}, func(b *harness) {
				b.broker.SetLimit(4000)
				a := b.agent("cluster1")
				b.start()
				uid := b.store.put(newWork("cluster1", "w")).UID
				b.holds(a, uid, 1)
				if refusedBefore {
					b.store.change(uid, large)
					synctest.Wait()
					b.store.change(uid, doom)
				} else {
					b.store.change(uid, func(w *workv1.ManifestWork) { large(w); doom(w) })
				}
				synctest.Wait()
				if last := b.store.refused[len(b.store.refused)-1]; last.Reason != workv1.ReasonTooLarge || !strings.HasPrefix(last.Message, "The work is not deleted") {
					t.Errorf("the condition says %+v", last)
				}
				b.broker.Cut("hub1")
				b.broker.Restore("hub1")
				kit.NoError(t, a.SendDigest(t.Context()))
				time.Sleep(time.Hour)
				b.holds(a, uid, 1)
				b.published(uid, 1)
				b.store.change(uid, func(w *workv1.ManifestWork) {
					keeps := w.Spec.DeleteOption
					bump(w)
					w.Spec.DeleteOption = keeps
				})
				b.holds(a, uid, 0)
				if last := b.published(uid, 3)[1]; last.IsDeletion() || last.Bundle.DeleteOption == nil || last.Bundle.DeleteOption.PropagationPolicy != workv1.DeletePropagationPolicyTypeOrphan {
					t.Errorf("before the deletion %+v was sent", last)
				}
				if b.store.get(uid) != nil {
					t.Error("the work is still there")
				}
			})
		})
	}
}

// TestLastSpecForARestartedAgent: an agent that has listed a work as deleted may restart before it has written down what is to stay. When it
// then knows the work from its AppliedManifestWork alone, the last spec is sent again before the deletion.
func TestLastSpecForARestartedAgent(t *testing.T) {
	withHarness(t, remembering(), func(b *harness) {
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) { c.Silent = true })
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		b.store.change(uid, func(w *workv1.ManifestWork) {
			bump(w)
			w.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
			doom(w)
		})
		synctest.Wait()
		before := len(b.published(uid, 3))
		for _, generation := range []wire.Generation{3, 0} {
			b.send("cluster1", &wire.SpecResync{Source: "hub1", Cluster: "cluster1", Agent: "cluster1-agent", Versions: []wire.SpecVersion{{UID: uid, Generation: generation}}})
			synctest.Wait()
		}
		specs := b.published(uid, before+3)[before:]
		if !specs[0].IsDeletion() || specs[1].IsDeletion() || specs[1].Generation != 2 || !specs[2].IsDeletion() {
			t.Errorf("the requests were answered by %+v, %+v, %+v", specs[0], specs[1], specs[2])
		}
	})
}

// TestNoSpecForANewCluster: a deletion that waits for the last spec, which exceeds the limit, ends once the cluster is installed again: its agent says that it
// does not hold the work, so an earlier spec cannot have it delete what is to stay.
func TestNoSpecForANewCluster(t *testing.T) {
	withHarness(t, remembering(), func(b *harness) {
		b.broker.SetLimit(4000)
		held := newWork("cluster1", "held")
		held.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, ObservedGeneration: 1}}
		bump(held)
		held.Spec.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w"},"data":{"x":"` + strings.Repeat("x", 5000) + `"}}`)
		held.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
		doom(held)
		b.store.put(held)
		other := b.store.put(newWork("cluster1", "other")).UID
		b.start()
		synctest.Wait()
		if len(b.store.refused) == 0 || !strings.HasPrefix(b.store.refused[0].Message, "The work is not deleted") {
			t.Fatalf("the deletion does not wait: %+v", b.store.refused)
		}
		a := b.agent("cluster1")
		b.holds(a, other, 1)
		for range 3 {
			b.minute(a)
		}
		if b.store.get(held.UID) != nil {
			t.Error("the work is still being deleted")
		}
		b.published(held.UID, 1)
	})
}

// TestRefusedByTheBroker: access rules refuse one cluster; others are not affected.
func TestRefusedByTheBroker(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.broker.Deny("hub1", "sources/hub1/clusters/forbidden/#")
		a := b.agent("cluster1")
		b.start()
		b.store.put(newWork("forbidden", "w"))
		b.store.put(newWork("no.topic", "w"))
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		reasons := make(map[string]int)
		for _, c := range b.store.refused {
			reasons[c.Reason]++
		}
		if len(reasons) != 2 || reasons[workv1.ReasonNotAuthorized] != 1 || reasons[workv1.ReasonInvalidClusterName] != 1 {
			t.Errorf("refusals: %v", reasons)
		}
		if n := b.metric("workwire_source_works_pending"); n != 0 {
			t.Errorf("works_pending is %v", n)
		}
	})
}

// TestWorkRemoved: a work that is removed before its agent reports Deleted is deleted from the
// cluster.
func TestWorkRemoved(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1")
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		b.broker.Cut("hub1")
		synctest.Wait()
		b.store.remove(b.store.get(uid))
		b.broker.Restore("hub1")
		b.holds(a, uid, 0)
		specs := b.published(uid, 2)
		if specs[1].Meta.Name != "w" || specs[1].Action != wire.Delete {
			t.Errorf("the deletion is %+v", specs[1])
		}
		b.broker.Cut("hub1")
		b.broker.Restore("hub1")
		time.Sleep(time.Hour)
		b.published(uid, 2) // the agent has said Deleted
		if n := b.metric("workwire_source_works_unconfirmed"); n != 0 {
			t.Errorf("works_unconfirmed is %v", n)
		}
	})
}

// TestEvicted: a work that the agent reports as Deleted without a deletion is published again.
func TestEvicted(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1")
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		a.Evict(uid)
		b.holds(a, uid, 1)
		b.published(uid, 2)
		conditions := b.store.get(uid).Status.Conditions
		if meta.IsStatusConditionTrue(conditions, workv1.WorkDeleted) {
			t.Errorf("the work is said to be deleted: %+v", conditions)
		}
	})
}

// TestStatusUpdateFails: an UpdateStatus that fails is retried with the newest status.
func TestStatusUpdateFails(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1")
		b.start()
		b.store.fail = errBroken
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		if len(b.store.updates) != 0 {
			t.Fatal("the first one did not fail")
		}
		a.Touch(uid, "newer")
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(b.store.updates) != 1 {
			t.Fatalf("%d statuses were taken in, want the newest only", len(b.store.updates))
		}
		if !meta.IsStatusConditionTrue(b.store.get(uid).Status.Conditions, workv1.WorkAvailable) {
			t.Error("the newest status is lost")
		}
		if n := b.metric("workwire_source_status_write_failures_total"); n != 1 {
			t.Errorf("status_write_failures_total is %v", n)
		}
	})
}

// TestTimerEndsWithRun: nothing is left running of an engine whose Run has ended while two large statuses of one cluster
// were being stored.
func TestTimerEndsWithRun(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.store.hang = true
		ctx, cancel := context.WithCancel(context.Background())
		b.run("Run", func(context.Context) error { return b.engine.Run(ctx) })
		a := b.agent("cluster1")
		for _, name := range []string{"w1", "w2"} {
			uid := b.store.put(newWork("cluster1", name)).UID
			b.holds(a, uid, 1)
			a.Report(a.Holds()[uid], wirekit.LargeStatus(100))
		}
		synctest.Wait()
		cancel()
		time.Sleep(time.Second)
		if delivery.StopTimer(b.engine) {
			t.Error("the timer of the engine is still set")
		}
	})
}

// TestConnectionIsObserved: an observer of the connection finds the Engine in the state that it is told, and learns of the
// end before Run returns.
func TestConnectionIsObserved(t *testing.T) {
	var engine *delivery.Engine
	var observed []bool
	config := delivery.Config{Observe: on(func(event delivery.ConnectionChanged) {
		if observed = append(observed, event.Up); engine.Connected() != event.Up {
			t.Errorf("Connected is not %v", event.Up)
		}
	})}
	withHarness(t, config, func(b *harness) {
		engine = b.engine
		b.start()
		b.broker.Cut("hub1")
		synctest.Wait()
		b.broker.Restore("hub1")
		synctest.Wait()
	})
	if !slices.Equal(observed, []bool{true, false, true, false}) {
		t.Errorf("observed %v", observed)
	}
}

// TestAcknowledgedOnceObserved: no message is acknowledged before what happened to it is observed, and so in the audit
// log, whoever passes that on.
func TestAcknowledgedOnceObserved(t *testing.T) {
	var hold chan struct{}
	var observed, acknowledged atomic.Int32
	withHarness(t, delivery.Config{Observe: on(func(delivery.Received) { <-hold; observed.Add(1) })}, func(b *harness) {
		hold = make(chan struct{}) // of this bubble
		receive := func() {
			delivery.Receive(b.engine, transport.Message{Topic: "sources/hub1/clusters/cluster1/agentevents", Ack: func() {
				if n := acknowledged.Add(1); observed.Load() < n {
					t.Errorf("%d messages are acknowledged, %d are observed", n, observed.Load())
				}
			}})
		}
		go receive()
		synctest.Wait()
		go func() {
			for range 1000 {
				runtime.Gosched()
			}
			close(hold)
		}()
		receive()
		if synctest.Wait(); acknowledged.Load() != 2 {
			t.Errorf("%d messages are acknowledged", acknowledged.Load())
		}
	})
}

func TestConfig(t *testing.T) {
	broker := memory.NewBroker()
	good := delivery.Config{Source: "hub1", Topics: topics, Transport: broker.Client("hub1"), Works: &fakeStore{}}
	if _, err := delivery.New(good); err != nil {
		t.Fatal(err)
	}
	_, err := delivery.New(delivery.Config{Source: "hub1", PublishWorkers: 2000, StatusWorkers: -1, RepublishAfter: -1})
	if err == nil {
		t.Fatal("an invalid configuration is accepted")
	}
	for _, word := range []string{"Transport", "Works", "PublishWorkers", "StatusWorkers", "RepublishAfter", "sourceEvents", "agentEvents"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
	other := good
	other.Source = "hub2"
	if _, err := delivery.New(other); err == nil || !strings.Contains(err.Error(), "hub2") {
		t.Errorf("topics of another source: %v", err)
	}
}

var _ transport.Transport = (*slowTransport)(nil)

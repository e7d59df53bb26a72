package hub_test

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// settle waits until everything that was under way before has arrived: a work made now is applied,
// and topics keep their order.
func (w *hubWorld) settle(a *wirekit.Agent) {
	w.Helper()
	work := w.create("settle-" + uuid.NewString())
	a.Await(w, "settling work", generation(work.UID, 1))
	w.Applied(w.works, work.Name)
}

func TestLifeOfAWork(t *testing.T) {
	w := newWorld(t)
	r := w.startHub()
	a := w.startAgent(nil)
	created := w.create("web", func(work *workv1.ManifestWork) {
		work.Labels = map[string]string{"team": "a"}
		work.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "long"}
	})

	first := a.Await(t, "spec", generation(created.UID, 1))
	if first.Action != wire.Create || first.Meta.Name != "web" || first.Meta.Labels["team"] != "a" || !maps.Equal(first.Meta.Annotations, map[string]string{workv1.ReportReadinessAnnotationKey: "true"}) ||
		len(first.Bundle.Manifests) != 1 {
		t.Errorf("first spec: %s of %q, labels %v, annotations %v", first.Action, first.Meta.Name, first.Meta.Labels, first.Meta.Annotations)
	}
	if !works.HasFinalizer(w.get("web")) {
		t.Error("published without the finalizer")
	}
	w.Applied(w.works, "web")
	if stored := w.get("web").Status.Conditions; len(stored) != 4 { // with Delivered and Ready
		t.Errorf("conditions %v", stored)
	}

	w.change("web", "2")
	if second := a.Await(t, "edited spec", generation(created.UID, 2)); second.Action != wire.Update {
		t.Errorf("second spec: %s", second.Action)
	}
	w.Applied(w.works, "web")

	w.update("web", func(work *workv1.ManifestWork) { work.Labels["team"] = "b" })
	a.Await(t, "new label", func(s *wire.Spec) bool { return s.UID == created.UID && s.Meta.Labels["team"] == "b" })
	w.settle(a)
	if n := len(a.Specs(created.UID)); n != 3 {
		t.Errorf("%d specs published, want 3: statuses must publish nothing", n)
	}

	a.IgnoreDeletions(true)
	w.Delete(w.works, "web")
	deleted := a.Await(t, "deletion", deletion(created.UID))
	report(a, deleted, condition(workv1.WorkDeleting, workv1.ReasonWorkDeleting, 3))
	waiting := w.await("web", "deleting", func(work *workv1.ManifestWork) bool {
		return work != nil && meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkDeleting)
	})
	if waiting.DeletionTimestamp == nil || !works.HasFinalizer(waiting) {
		t.Error("the work does not wait for its cluster")
	}
	report(a, deleted, condition(workv1.WorkDeleted, workv1.ReasonManifestsDeleted, 0))
	w.Gone(w.works, "web")
	w.settle(a)
	if n := len(a.Specs(created.UID)); n != 4 {
		t.Errorf("%d specs published, want 4", n)
	}

	// One finalizer put and one taken, three statuses (the one after the new label says nothing
	// new, the last one ends the work), and not a single read.
	want := map[string]int{"patch manifestworks": 2, "update manifestworks/status": 3}
	if got := r.requestCounts(w.namespace, "web"); !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}

func TestForeignFinalizersStay(t *testing.T) {
	const other = "example.com/hold"
	w := newWorld(t)
	w.startHub()
	a := w.startAgent(nil)
	created := w.create("held", func(work *workv1.ManifestWork) { work.Finalizers = []string{other} })
	w.Applied(w.works, "held")
	if got := w.get("held").Finalizers; len(got) != 2 || got[0] != other {
		t.Errorf("finalizers %v", got)
	}
	w.Delete(w.works, "held")
	a.Await(t, "deletion", deletion(created.UID))
	left := w.await("held", "released", func(work *workv1.ManifestWork) bool { return work != nil && !works.HasFinalizer(work) })
	if len(left.Finalizers) != 1 || left.Finalizers[0] != other || !meta.IsStatusConditionTrue(left.Status.Conditions, workv1.WorkDeleted) {
		t.Errorf("finalizers %v, conditions %v", left.Finalizers, left.Status.Conditions)
	}
	w.update("held", func(work *workv1.ManifestWork) { work.Finalizers = nil })
	w.Gone(w.works, "held")
	w.settle(a)
	if n := len(a.Specs(created.UID)); n != 2 {
		t.Errorf("%d specs published, want 2", n)
	}
}

func TestRemovedByForce(t *testing.T) {
	w := newWorld(t)
	w.startHub()
	a := w.startAgent(nil)
	a.IgnoreDeletions(true)
	created := w.create("forced")
	w.Applied(w.works, "forced")
	w.Delete(w.works, "forced")
	a.Await(t, "deletion", deletion(created.UID))
	w.update("forced", func(work *workv1.ManifestWork) { work.Finalizers = nil })
	w.Gone(w.works, "forced")

	// Created again under the name, it is another work, and what the agent says of the first does not
	// touch it.
	again := w.create("forced")
	a.Await(t, "new work", generation(again.UID, 1))
	w.Applied(w.works, "forced")
	report(a, a.Await(t, "deletion", deletion(created.UID)), condition(workv1.WorkDeleted, workv1.ReasonManifestsDeleted, 0))
	w.settle(a)
	work := w.get("forced")
	if work.UID != again.UID || !works.HasFinalizer(work) || !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) {
		t.Errorf("the new work: finalizers %v, conditions %v", work.Finalizers, work.Status.Conditions)
	}
}

func TestFinalizerTakenAwayComesBack(t *testing.T) {
	w := newWorld(t)
	w.startHub()
	a := w.startAgent(nil)
	created := w.create("stripped")
	w.Applied(w.works, "stripped")
	w.update("stripped", func(work *workv1.ManifestWork) { work.Finalizers = nil })
	w.await("stripped", "held again", works.HasFinalizer)
	w.settle(a)
	if n := len(a.Specs(created.UID)); n != 1 {
		t.Errorf("%d specs published, want 1", n)
	}
}

// TestFinalizerTakenAwayBeforeAnAnswer: a work whose cluster has reported nothing yet is not deleted there either.
func TestFinalizerTakenAwayBeforeAnAnswer(t *testing.T) {
	w := newWorld(t)
	w.startHub()
	a := w.silentAgent(nil)
	created := w.create("stripped")
	a.Await(t, "spec", generation(created.UID, 1))
	w.update("stripped", func(work *workv1.ManifestWork) { work.Finalizers = nil })
	w.await("stripped", "held again", works.HasFinalizer)
	changed := w.change("stripped", "2")
	a.Await(t, "changed spec", generation(created.UID, wire.Generation(changed.Generation)))
	for _, spec := range a.Specs(created.UID) {
		if spec.IsDeletion() {
			t.Errorf("its deletion is published: %+v", spec)
		}
	}
	a.SetSilent(false) // other hubs of this API are to find nothing pending
	w.Delete(w.works, "stripped")
	w.Gone(w.works, "stripped")
}

func TestRestartRepublishesNothingUnchanged(t *testing.T) {
	w := newWorld(t)
	first := w.startHub()
	a := w.startAgent(nil)
	uids := map[string]types.UID{}
	names := []string{"same", "edited", "relabelled", "deleted", "doomed"}
	for _, name := range names {
		uids[name] = w.create(name).UID
		w.Applied(w.works, name)
	}
	a.IgnoreDeletions(true)
	w.Delete(w.works, "doomed")
	doomed := a.Await(t, "deletion", deletion(uids["doomed"]))
	first.Stop()
	before := len(a.Specs(""))

	w.change("edited", "2")
	w.Delete(w.works, "deleted")
	uids["new"] = w.create("new").UID
	report(a, a.Specs(uids["same"])[0], condition(workv1.WorkApplied, "WhileAway", 1))

	second := w.startHub()
	a.Await(t, "edited work", generation(uids["edited"], 2))
	a.Await(t, "new work", generation(uids["new"], 1))
	a.Await(t, "deletion", deletion(uids["deleted"]))
	w.Applied(w.works, "edited")
	w.Applied(w.works, "new")
	w.await("same", "told what happened meanwhile", func(work *workv1.ManifestWork) bool {
		return meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied).Reason == "WhileAway"
	})
	a.IgnoreDeletions(false)
	w.settle(a)
	published := map[types.UID]int{}
	for _, spec := range a.Specs("")[before:] {
		published[spec.UID]++
	}
	for name, want := range map[string]int{"same": 0, "relabelled": 0, "edited": 1, "new": 1, "deleted": 1, "doomed": 1} {
		if got := published[uids[name]]; got != want {
			t.Errorf("%s: published %d times after the restart, want %d", name, got, want)
		}
	}
	if got := second.requestCounts(w.namespace, "relabelled"); len(got) > 0 {
		t.Errorf("requests about an unchanged work: %v", got)
	}
	for _, spec := range []*wire.Spec{doomed, a.Await(t, "deletion", deletion(uids["deleted"]))} {
		report(a, spec, condition(workv1.WorkDeleted, workv1.ReasonManifestsDeleted, 0))
	}
	w.Gone(w.works, "deleted")
	w.Gone(w.works, "doomed")
}

func TestAgentComesBackAfterLosingItsSession(t *testing.T) {
	w := newWorld(t)
	w.startHub()
	a := w.startAgent(nil)
	uids := map[string]types.UID{}
	for _, name := range []string{"same", "edited", "deleted"} {
		uids[name] = w.create(name).UID
		w.Applied(w.works, name)
	}
	a.Stop()
	w.Memory.Forget(w.namespace + "-agent")
	w.change("edited", "2")
	w.Delete(w.works, "deleted")
	uids["new"] = w.create("new").UID
	w.await("new", "published", works.HasFinalizer)

	// A work that the hub knows nothing of, as after it was removed by force while no hub ran.
	const unknown = types.UID("1f0e5e3c-0000-4000-8000-000000000000")
	holds := a.Holds()
	holds[unknown] = &wire.Spec{UID: unknown, Generation: 1}
	back := w.startAgent(holds)
	back.Await(t, "edited work", generation(uids["edited"], 2))
	back.Await(t, "new work", generation(uids["new"], 1))
	back.Await(t, "deletion", deletion(uids["deleted"]))
	back.Await(t, "deletion of what the hub does not have", deletion(unknown))
	w.Applied(w.works, "edited")
	w.Applied(w.works, "new")
	w.Gone(w.works, "deleted")
	w.settle(back)
	if n := len(back.Specs(uids["same"])); n != 0 {
		t.Errorf("the unchanged work was sent %d times", n)
	}
}

func TestTooLargeIsToldAndRecovers(t *testing.T) {
	w := newWorld(t)
	w.Memory.SetLimit(16 << 10)
	w.startHub()
	a := w.startAgent(nil)
	large := func(work *workv1.ManifestWork) {
		work.Spec.Workload.Manifests = []workv1.Manifest{manifest("large", strings.Repeat("x", 20<<10))}
	}
	small := func(work *workv1.ManifestWork) {
		work.Spec.Workload.Manifests = []workv1.Manifest{manifest("small", "x")}
	}
	refused := func(generation int64) func(*workv1.ManifestWork) bool {
		return func(work *workv1.ManifestWork) bool {
			c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
			return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "TooLarge" && c.ObservedGeneration == generation &&
				strings.Contains(c.Message, "16384 bytes")
		}
	}
	created := w.create("big", large)
	w.await("big", "refused", refused(1))
	w.update("big", small)
	w.Applied(w.works, "big")
	w.update("big", large)
	w.await("big", "refused again", refused(3))
	w.Delete(w.works, "big")
	a.Await(t, "deletion", deletion(created.UID))
	w.Gone(w.works, "big")
	w.settle(a)
}

func TestClusterThatTopicsDoNotNameIsTold(t *testing.T) {
	w := newWorld(t)
	only := wire.Topics{SourceEvents: "sources/hub1/clusters/elsewhere/sourceevents", AgentEvents: topics.AgentEvents}
	r := w.startHub(func(c *hub.Config) { c.Topics = only })
	w.create("lost")
	work := w.await("lost", "told", func(work *workv1.ManifestWork) bool {
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		return c != nil && c.Reason == "InvalidClusterName" && strings.Contains(c.Message, w.namespace)
	})
	if works.HasFinalizer(work) {
		t.Error("the finalizer was put on a work that no agent will ever take it from")
	}
	w.Delete(w.works, "lost")
	w.Gone(w.works, "lost")
	if got, want := r.requestCounts(w.namespace, "lost"), map[string]int{"update manifestworks/status": 1}; !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}

func TestStatusThatTheAPIRefusesIsTold(t *testing.T) {
	w := newWorld(t)
	w.startHub()
	a := w.startAgent(nil)
	created := w.create("odd")
	spec := a.Await(t, "spec", generation(created.UID, 1))
	w.Applied(w.works, "odd")
	long := strings.Repeat("x", 5000)
	status := workv1.ManifestWorkStatus{
		Conditions: []metav1.Condition{condition(workv1.WorkApplied, "Refused", 1)},
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
			Conditions: []metav1.Condition{},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				{Name: "raw", Value: workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &long}},
			}},
		}}},
	}
	a.Report(spec, status)
	work := w.await("odd", "told", func(work *workv1.ManifestWork) bool {
		return meta.IsStatusConditionFalse(work.Status.Conditions, "StatusStored")
	})
	if !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) {
		t.Errorf("the status before was lost: %v", work.Status.Conditions)
	}
	status.ResourceStatus.Manifests[0].StatusFeedbacks.Values = nil
	a.Report(spec, status)
	w.await("odd", "stored", func(work *workv1.ManifestWork) bool {
		return meta.FindStatusCondition(work.Status.Conditions, "StatusStored") == nil && len(work.Status.ResourceStatus.Manifests) == 1
	})
}

func TestTwoReplicas(t *testing.T) {
	w := newWorld(t)
	first := w.awaitReady(w.startHub(w.electing("first")))
	a := w.startAgent(nil)
	one := w.create("one")
	w.Applied(w.works, "one")
	second := w.awaitReady(w.startHub(w.electing("second")))
	if connected := second.Metric("workwire_source_connected"); connected != 0 {
		t.Error("the standby is connected to the broker")
	}
	two := w.create("two")
	w.Applied(w.works, "two")

	stopped := time.Now()
	first.Stop()
	three := w.create("three")
	w.Applied(w.works, "three")
	t.Logf("the next work was applied %s after the leader's stop began", time.Since(stopped))
	if connected := second.Metric("workwire_source_connected"); connected != 1 {
		t.Error("the new leader is not connected to the broker")
	}
	w.settle(a)
	for name, uid := range map[string]types.UID{"one": one.UID, "two": two.UID, "three": three.UID} {
		if n := len(a.Specs(uid)); n != 1 {
			t.Errorf("%s was published %d times", name, n)
		}
	}
}

func TestManyWorksCostTwoRequestsEach(t *testing.T) {
	const count = 60
	w := newWorld(t)
	r := w.startHub()
	a := w.startAgent(nil)
	var names []string
	for i := range count {
		names = append(names, w.create(fmt.Sprint("many-", i)).Name)
	}
	for _, name := range names {
		w.Applied(w.works, name)
	}
	want := map[string]int{"patch manifestworks": 1, "update manifestworks/status": 1}
	for _, name := range names {
		if got := r.requestCounts(w.namespace, name); !maps.Equal(got, want) {
			t.Errorf("%s: requests %v, want %v", name, got, want)
		}
	}
	if n := len(a.Specs("")); n != count {
		t.Errorf("%d specs published, want %d", n, count)
	}
	if got := r.Metric("workwire_hub_works"); got < count {
		t.Errorf("metric works is %v", got)
	}
}

func TestReadinessTellsWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	w.Memory.Cut("hub1-hub")
	r := w.startHub(func(c *hub.Config) { c.REST.Impersonate.UserName = "nobody" })
	awaitCheck(t, r, "works", "grant get, list and watch")
	awaitCheck(t, r, "broker", "not connected")
	r.Stop()

	allowed := w.startHub()
	awaitCheck(t, allowed, "broker", "not connected")
	w.Memory.Restore("hub1-hub")
	w.awaitReady(allowed)
}

func TestNewTellsEveryFault(t *testing.T) {
	_, err := hub.New(hub.Config{Source: "Hub 1", Topics: wire.Topics{SourceEvents: "x", AgentEvents: "y"}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"REST", "Transport", "--leader-election-name", "topics.sourceEvents", "topics.agentEvents"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not tell of %s", err, want)
		}
	}
	config := hub.Config{
		REST: plane.REST(), Source: "hub2", Topics: topics, Transport: memory.NewBroker().Client("x"), Election: leader.Options{Disabled: true},
		Logger: slog.New(slog.DiscardHandler),
	}
	if _, err = hub.New(config); err == nil || !strings.Contains(err.Error(), `another source than "hub2"`) {
		t.Errorf("another source's topics: %v", err)
	}
}

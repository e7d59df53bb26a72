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
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// cluster is the agent of the world's namespace.
func (w *world) cluster() *wirekit.Agent {
	w.t.Helper()
	return w.startAgent(w.broker.Client(w.namespace+"-agent"), nil)
}

// settle waits until everything that was under way before has arrived: a work made now is applied,
// and topics keep their order.
func (w *world) settle(a *wirekit.Agent) {
	w.t.Helper()
	work := w.create("settle-" + uuid.NewString())
	a.Await(w.t, "settling work", generation(work.UID, 1))
	w.await(work.Name, "applied", applied(1))
}

func TestLifeOfAWork(t *testing.T) {
	w := newWorld(t)
	r := w.startHub(alone())
	a := w.cluster()
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
	stored := w.await("web", "applied", applied(1))
	if len(stored.Status.Conditions) != 4 { // with Delivered and Ready
		t.Errorf("conditions %v", stored.Status.Conditions)
	}

	w.update("web", func(work *workv1.ManifestWork) { work.Spec.Workload.Manifests[0] = manifest("web", "2") })
	if second := a.Await(t, "edited spec", generation(created.UID, 2)); second.Action != wire.Update {
		t.Errorf("second spec: %s", second.Action)
	}
	w.await("web", "applied again", applied(2))

	w.update("web", func(work *workv1.ManifestWork) { work.Labels["team"] = "b" })
	a.Await(t, "new label", func(s *wire.Spec) bool { return s.UID == created.UID && s.Meta.Labels["team"] == "b" })
	w.settle(a)
	if n := len(a.Specs(created.UID)); n != 3 {
		t.Errorf("%d specs published, want 3: statuses must publish nothing", n)
	}

	a.IgnoreDeletions(true)
	w.delete("web")
	deleted := a.Await(t, "deletion", deletion(created.UID))
	report(a, deleted, condition(workv1.WorkDeleting, workv1.ReasonWorkDeleting, 3))
	waiting := w.await("web", "deleting", func(work *workv1.ManifestWork) bool {
		return work != nil && meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkDeleting)
	})
	if waiting.DeletionTimestamp == nil || !works.HasFinalizer(waiting) {
		t.Error("the work does not wait for its cluster")
	}
	report(a, deleted, condition(workv1.WorkDeleted, workv1.ReasonManifestsDeleted, 0))
	w.await("web", "gone", gone)
	w.settle(a)
	if n := len(a.Specs(created.UID)); n != 4 {
		t.Errorf("%d specs published, want 4", n)
	}

	// One finalizer put and one taken, three statuses (the one after the new label says nothing
	// new, the last one ends the work), and not a single read.
	want := map[string]int{"patch manifestworks": 2, "patch manifestworks/status": 3}
	if got := r.requestCounts(w.namespace, "web"); !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}

func TestForeignFinalizersStay(t *testing.T) {
	const other = "example.com/hold"
	w := newWorld(t)
	w.startHub(alone())
	a := w.cluster()
	created := w.create("held", func(work *workv1.ManifestWork) { work.Finalizers = []string{other} })
	w.await("held", "applied", applied(1))
	if got := w.get("held").Finalizers; len(got) != 2 || got[0] != other {
		t.Errorf("finalizers %v", got)
	}
	w.delete("held")
	a.Await(t, "deletion", deletion(created.UID))
	left := w.await("held", "released", func(work *workv1.ManifestWork) bool { return work != nil && !works.HasFinalizer(work) })
	if len(left.Finalizers) != 1 || left.Finalizers[0] != other || !meta.IsStatusConditionTrue(left.Status.Conditions, workv1.WorkDeleted) {
		t.Errorf("finalizers %v, conditions %v", left.Finalizers, left.Status.Conditions)
	}
	w.update("held", func(work *workv1.ManifestWork) { work.Finalizers = nil })
	w.await("held", "gone", gone)
	w.settle(a)
	if n := len(a.Specs(created.UID)); n != 2 {
		t.Errorf("%d specs published, want 2", n)
	}
}

func TestRemovedByForce(t *testing.T) {
	w := newWorld(t)
	w.startHub(alone())
	a := w.cluster()
	a.IgnoreDeletions(true)
	created := w.create("forced")
	w.await("forced", "applied", applied(1))
	w.delete("forced")
	a.Await(t, "deletion", deletion(created.UID))
	w.update("forced", func(work *workv1.ManifestWork) { work.Finalizers = nil })
	w.await("forced", "gone", gone)

	// Made anew under the name, it is another work, and what the agent says of the first does not
	// touch it.
	again := w.create("forced")
	a.Await(t, "new work", generation(again.UID, 1))
	w.await("forced", "applied", applied(1))
	report(a, a.Await(t, "deletion", deletion(created.UID)), condition(workv1.WorkDeleted, workv1.ReasonManifestsDeleted, 0))
	w.settle(a)
	work := w.get("forced")
	if work.UID != again.UID || !works.HasFinalizer(work) || !applied(1)(work) {
		t.Errorf("the new work: finalizers %v, conditions %v", work.Finalizers, work.Status.Conditions)
	}
}

func TestFinalizerTakenAwayComesBack(t *testing.T) {
	w := newWorld(t)
	w.startHub(alone())
	a := w.cluster()
	created := w.create("stripped")
	w.await("stripped", "applied", applied(1))
	w.update("stripped", func(work *workv1.ManifestWork) { work.Finalizers = nil })
	w.await("stripped", "held again", works.HasFinalizer)
	w.settle(a)
	if n := len(a.Specs(created.UID)); n != 1 {
		t.Errorf("%d specs published, want 1", n)
	}
}

func TestRestartRepublishesNothingUnchanged(t *testing.T) {
	w := newWorld(t)
	first := w.startHub(alone())
	a := w.cluster()
	uids := map[string]types.UID{}
	names := []string{"same", "edited", "relabelled", "deleted", "doomed"}
	for _, name := range names {
		uids[name] = w.create(name).UID
		w.await(name, "applied", applied(1))
	}
	a.IgnoreDeletions(true)
	w.delete("doomed")
	doomed := a.Await(t, "deletion", deletion(uids["doomed"]))
	first.stop()
	before := len(a.Specs(""))

	w.update("edited", func(work *workv1.ManifestWork) { work.Spec.Workload.Manifests[0] = manifest("edited", "2") })
	w.delete("deleted")
	uids["new"] = w.create("new").UID
	report(a, a.Specs(uids["same"])[0], condition(workv1.WorkApplied, "WhileAway", 1))

	second := w.startHub(alone())
	a.Await(t, "edited work", generation(uids["edited"], 2))
	a.Await(t, "new work", generation(uids["new"], 1))
	a.Await(t, "deletion", deletion(uids["deleted"]))
	w.await("edited", "applied", applied(2))
	w.await("new", "applied", applied(1))
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
	w.await("deleted", "gone", gone)
	w.await("doomed", "gone", gone)
}

func TestAgentComesBackAfterLosingItsSession(t *testing.T) {
	w := newWorld(t)
	w.startHub(alone())
	a := w.cluster()
	uids := map[string]types.UID{}
	for _, name := range []string{"same", "edited", "deleted"} {
		uids[name] = w.create(name).UID
		w.await(name, "applied", applied(1))
	}
	a.Stop()
	w.broker.Forget(w.namespace + "-agent")
	w.update("edited", func(work *workv1.ManifestWork) { work.Spec.Workload.Manifests[0] = manifest("edited", "2") })
	w.delete("deleted")
	uids["new"] = w.create("new").UID
	w.await("new", "published", works.HasFinalizer)

	// A work that the hub knows nothing of, as after it was removed by force while no hub ran.
	const unknown = types.UID("1f0e5e3c-0000-4000-8000-000000000000")
	holds := a.Holds()
	holds[unknown] = &wire.Spec{UID: unknown, Generation: 1}
	back := w.startAgent(w.broker.Client(w.namespace+"-agent"), holds)
	back.Await(t, "edited work", generation(uids["edited"], 2))
	back.Await(t, "new work", generation(uids["new"], 1))
	back.Await(t, "deletion", deletion(uids["deleted"]))
	back.Await(t, "deletion of what the hub does not have", deletion(unknown))
	w.await("edited", "applied", applied(2))
	w.await("new", "applied", applied(1))
	w.await("deleted", "gone", gone)
	w.settle(back)
	if n := len(back.Specs(uids["same"])); n != 0 {
		t.Errorf("the unchanged work was sent %d times", n)
	}
}

func TestTooLargeIsToldAndRecovers(t *testing.T) {
	w := newWorld(t)
	w.broker.SetLimit(16 << 10)
	w.startHub(alone())
	a := w.cluster()
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
	w.await("big", "applied", applied(2))
	w.update("big", large)
	w.await("big", "refused again", refused(3))
	w.delete("big")
	a.Await(t, "deletion", deletion(created.UID))
	w.await("big", "gone", gone)
	w.settle(a)
}

func TestClusterThatTopicsDoNotNameIsTold(t *testing.T) {
	w := newWorld(t)
	only := wire.Topics{SourceEvents: "sources/hub1/clusters/elsewhere/sourceevents", AgentEvents: topics.AgentEvents}
	r := w.startHubWith(func(c *hub.Config) { c.Topics = only })
	w.create("lost")
	work := w.await("lost", "told", func(work *workv1.ManifestWork) bool {
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		return c != nil && c.Reason == "InvalidClusterName" && strings.Contains(c.Message, w.namespace)
	})
	if works.HasFinalizer(work) {
		t.Error("the finalizer was put on a work that no agent will ever take it from")
	}
	w.delete("lost")
	w.await("lost", "gone", gone)
	if got, want := r.requestCounts(w.namespace, "lost"), map[string]int{"patch manifestworks/status": 1}; !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}

func TestStatusThatTheAPIRefusesIsTold(t *testing.T) {
	w := newWorld(t)
	w.startHub(alone())
	a := w.cluster()
	created := w.create("odd")
	spec := a.Await(t, "spec", generation(created.UID, 1))
	w.await("odd", "applied", applied(1))
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
	if !applied(1)(work) {
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
	first := w.startHub(w.electing("first"))
	w.awaitReady(first)
	a := w.cluster()
	one := w.create("one")
	w.await("one", "applied", applied(1))
	second := w.startHub(w.electing("second"))
	w.awaitReady(second)
	if connected := kit.Metric(t, second.registry, "workwire_source_connected"); connected != 0 {
		t.Error("the standby is connected to the broker")
	}
	two := w.create("two")
	w.await("two", "applied", applied(1))

	stopped := time.Now()
	first.stop()
	three := w.create("three")
	w.await("three", "applied", applied(1))
	t.Logf("the next work was applied %s after the leader's stop began", time.Since(stopped))
	if connected := kit.Metric(t, second.registry, "workwire_source_connected"); connected != 1 {
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
	const count = 200
	w := newWorld(t)
	r := w.startHub(alone())
	a := w.cluster()
	var names []string
	for i := range count {
		names = append(names, w.create(fmt.Sprint("many-", i)).Name)
	}
	for _, name := range names {
		w.await(name, "applied", applied(1))
	}
	want := map[string]int{"patch manifestworks": 1, "patch manifestworks/status": 1}
	for _, name := range names {
		if got := r.requestCounts(w.namespace, name); !maps.Equal(got, want) {
			t.Errorf("%s: requests %v, want %v", name, got, want)
		}
	}
	if n := len(a.Specs("")); n != count {
		t.Errorf("%d specs published, want %d", n, count)
	}
	if got := kit.Metric(t, r.registry, "workwire_hub_works"); got < count {
		t.Errorf("metric works is %v", got)
	}
}

func TestReadinessTellsWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	w.broker.Cut("hub1-hub")
	denied := plane.REST()
	denied.Impersonate.UserName = "nobody"
	r := w.startHubWith(func(c *hub.Config) { c.REST = denied })
	awaitCheck(t, r, "works", "grant get, list and watch")
	awaitCheck(t, r, "broker", "not connected")
	r.stop()

	allowed := w.startHub(alone())
	awaitCheck(t, allowed, "broker", "not connected")
	w.broker.Restore("hub1-hub")
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
	_, err = hub.New(hub.Config{
		REST: plane.REST(), Source: "hub2", Topics: topics, Transport: newWorld(t).broker.Client("x"), Election: alone(),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil || !strings.Contains(err.Error(), `another source than "hub2"`) {
		t.Errorf("another source's topics: %v", err)
	}
}

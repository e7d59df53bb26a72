package works_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/pace"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

const ours, other = workv1.ManifestWorkFinalizer, "example.com/other"

// frozen is a Controller whose cache has stopped following: it knows the work as it was then.
type frozen struct {
	*works.Controller
	events    *record.FakeRecorder
	t         *testing.T
	works     workclient.ManifestWorkInterface
	work      *workv1.ManifestWork // as the cache knows it
	requests  *kit.Requests        // of the Controller
	backlog   *pace.Lane           // of others
	forbidden atomic.Bool          // for the Controller: to update
}

func freeze(t *testing.T, finalizers []string, deleting bool) *frozen {
	t.Helper()
	return freezeOf(t, "", finalizers, deleting)
}

// freezeOf is freeze for a work of a replica set.
func freezeOf(t *testing.T, set string, finalizers []string, deleting bool) *frozen {
	t.Helper()
	client, err := versioned.NewForConfig(plane.REST())
	kit.NoError(t, err)
	f := &frozen{t: t, works: client.WorkV1().ManifestWorks(plane.Namespace(t, "works"))}
	f.work = f.create(finalizers)
	if set != "" {
		f.work.Labels = map[string]string{workv1.ReplicaSetLabelKey: set}
		f.work, err = f.works.Update(t.Context(), f.work, metav1.UpdateOptions{})
		kit.NoError(t, err)
	}
	if deleting {
		f.delete()
		f.work = f.get()
	}
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: slog.New(slog.DiscardHandler)})
	c, err := works.NewCache(informers, nil)
	kit.NoError(t, err)
	stop := kit.Run(t, "informers", informers.Run)
	kit.True(t, "the cache sees the work", func() bool { _, ok := c.ByUID(f.work.UID); return ok })
	stop()
	f.events = record.NewFakeRecorder(10)
	config := plane.REST()
	kit.Intercept(config, f.forbid)
	f.requests = kit.CountRequests(config)
	client, err = versioned.NewForConfig(config)
	kit.NoError(t, err)
	all := func(wire.ClusterName) bool { return true }
	gate := &pace.Gate{}
	f.backlog = gate.NewLane(1)
	f.Controller, err = works.New(works.Config{
		Pace: gate, Cache: c, Client: client, Addressable: all, Accepted: all, Served: all, Workers: 16, Recorder: f.events, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	kit.NoError(t, err)
	return f
}

// forbid answers updates as an API server does that does not allow them.
func (f *frozen) forbid(next http.RoundTripper, request *http.Request) (*http.Response, error) {
	if !f.forbidden.Load() || request.Method != http.MethodPut {
		return next.RoundTrip(request)
	}
	text, err := json.Marshal(apierrors.NewForbidden(workv1.Resource("manifestworks"), "w", nil).Status())
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: request,
	}, err
}

func (f *frozen) create(finalizers []string) *workv1.ManifestWork {
	f.t.Helper()
	work, err := f.works.Create(f.t.Context(), &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Finalizers: finalizers},
		Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{
			{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`)}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return work
}

func (f *frozen) delete() {
	f.t.Helper()
	if err := f.works.Delete(f.t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *frozen) get() *workv1.ManifestWork {
	f.t.Helper()
	work, err := f.works.Get(f.t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return work
}

func (f *frozen) setFinalizers(finalizers []string) {
	f.t.Helper()
	work := f.get()
	work.Finalizers = finalizers
	if _, err := f.works.Update(f.t.Context(), work, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// recreate replaces the work by another one of its name.
func (f *frozen) recreate(finalizers []string) {
	f.t.Helper()
	if len(f.get().Finalizers) > 0 {
		f.setFinalizers(nil)
	}
	if f.work.DeletionTimestamp == nil {
		f.delete()
	}
	f.create(finalizers)
}

func (f *frozen) status(condition, reason string) *wire.Status {
	return &wire.Status{UID: f.work.UID, Generation: 1, Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{
		Type: condition, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(time.Unix(1700000000, 0)),
	}}}}
}

func TestStatusesOfOneWorkInARow(t *testing.T) {
	f := freeze(t, []string{ours}, false)
	// The cache knows none of the writes: only what was written may count.
	for _, reason := range []string{"A", "B", "B", "A"} {
		kit.NoError(t, f.UpdateStatus(t.Context(), f.status(workv1.WorkApplied, reason)))
		if got := f.get().Status.Conditions; len(got) != 3 || got[0].Reason != reason || got[1].Type != workv1.WorkDelivered || got[2].Type != workv1.WorkReady {
			t.Fatalf("after %s: %v", reason, got)
		}
	}
	before := f.get().ResourceVersion
	kit.NoError(t, f.UpdateStatus(t.Context(), f.status(workv1.WorkApplied, "A")))
	if f.get().ResourceVersion != before {
		t.Error("the same status was written again")
	}
	refused := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: "TooLarge", Message: "m", ObservedGeneration: 2}
	kit.NoError(t, f.SetCondition(t.Context(), f.work.UID, refused))
	if got := meta.FindStatusCondition(f.get().Status.Conditions, workv1.WorkApplied); got.Reason != "TooLarge" || got.ObservedGeneration != 2 {
		t.Errorf("refusal: %v", got)
	}
	if event := <-f.events.Events; event != "Warning TooLarge m" {
		t.Errorf("the event of the refusal is %q", event)
	}
}

// TestStatusesGiveWay: while somebody changes works by hand, the status of such a work does not wait for what is written of replica sets, and those of
// replica sets do.
func TestStatusesGiveWay(t *testing.T) {
	for set, c := range map[string]struct {
		patience time.Duration
		want     error
	}{"": {kit.Patience, nil}, "fleet.web": {6 * pace.Pause, context.DeadlineExceeded}} {
		f := freezeOf(t, set, []string{ours}, false)
		place, err := f.backlog.Enter(t.Context(), "fleet.web")
		kit.NoError(t, err)
		for n := range 50 { // writes wait for each other
			place.Write(func() bool { time.Sleep(time.Duration(n/40) * time.Millisecond); return true })
		}
		f.backlog.GiveWay()
		ctx, cancel := context.WithTimeout(t.Context(), c.patience)
		if err := f.UpdateStatus(ctx, f.status(workv1.WorkApplied, "A")); !errors.Is(err, c.want) {
			t.Errorf("the status of a work of the replica set %q: %v, want %v", set, err, c.want)
		}
		cancel()
		place.Leave()
		kit.NoError(t, f.UpdateStatus(t.Context(), f.status(workv1.WorkApplied, "A")))
	}
}

func TestAWorkMadeAnewGetsNothing(t *testing.T) {
	t.Run("status", func(t *testing.T) {
		f := freeze(t, nil, false)
		f.recreate(nil)
		if err := f.UpdateStatus(t.Context(), f.status(workv1.WorkApplied, "Old")); err != nil {
			t.Error(err)
		}
		refused := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: "TooLarge"}
		if err := f.SetCondition(t.Context(), f.work.UID, refused); err != nil {
			t.Error(err)
		}
		if got := f.get().Status.Conditions; len(got) > 0 {
			t.Errorf("conditions %v", got)
		}
	})
	t.Run("release", func(t *testing.T) {
		f := freeze(t, []string{ours}, true)
		f.recreate([]string{ours})
		if err := f.UpdateStatus(t.Context(), f.status(workv1.WorkDeleted, "Old")); err != nil {
			t.Error(err)
		}
		if got := f.get(); !slices.Contains(got.Finalizers, ours) || len(got.Status.Conditions) > 0 {
			t.Errorf("finalizers %v, conditions %v", got.Finalizers, got.Status.Conditions)
		}
	})
}

func TestAWorkThatIsGoneIsNoError(t *testing.T) {
	for _, finalizers := range [][]string{nil, {ours}} {
		f := freeze(t, finalizers, len(finalizers) > 0)
		if len(finalizers) > 0 {
			f.setFinalizers(nil)
		} else {
			f.delete()
		}
		for _, condition := range []string{workv1.WorkApplied, workv1.WorkDeleted} {
			if err := f.UpdateStatus(t.Context(), f.status(condition, "R")); err != nil {
				t.Errorf("finalizers %v, %s: %v", finalizers, condition, err)
			}
		}
		unknown := f.status(workv1.WorkApplied, "R")
		unknown.UID = "unknown"
		if err := f.UpdateStatus(t.Context(), unknown); err != nil {
			t.Error(err)
		}
	}
}

func TestReleaseTakesOursOnly(t *testing.T) {
	for _, c := range []struct{ known, now, left []string }{
		{[]string{other, ours}, []string{other, ours}, []string{other}},
		{[]string{ours, other}, []string{ours, other}, []string{other}},
		{[]string{other, ours, "example.com/a"}, []string{ours, "example.com/a"}, []string{"example.com/a"}},
		{[]string{other, ours}, []string{other}, []string{other}},
	} {
		f := freeze(t, c.known, true)
		f.setFinalizers(c.now)
		if err := f.UpdateStatus(t.Context(), f.status(workv1.WorkDeleted, "R")); err != nil {
			t.Errorf("%v, known as %v: %v", c.now, c.known, err)
		}
		work := f.get()
		if fmt.Sprint(work.Finalizers) != fmt.Sprint(c.left) || !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkDeleted) {
			t.Errorf("%v, known as %v: left %v, conditions %v", c.now, c.known, work.Finalizers, work.Status.Conditions)
		}
	}
	f := freeze(t, []string{ours}, true)
	if err := f.UpdateStatus(t.Context(), f.status(workv1.WorkDeleted, "R")); err != nil {
		t.Error(err)
	}
	if _, err := f.works.Get(t.Context(), "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the last finalizer is gone, the work is not: %v", err)
	}
}

func TestFailuresAskForAnotherCall(t *testing.T) {
	f := freeze(t, []string{ours, other}, true)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, condition := range []string{workv1.WorkApplied, workv1.WorkDeleted} {
		if err := f.UpdateStatus(ended, f.status(condition, "R")); err == nil {
			t.Errorf("%s: no error", condition)
		}
	}
	if err := f.SetCondition(ended, f.work.UID, metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionFalse}); err == nil {
		t.Error("SetCondition: no error")
	}
}

// TestOlderStatusDoesNotReplaceNewer: a hub whose cache is behind, beside another one, does not replace what an agent has
// reported meanwhile by what it derives from the status that it knows.
func TestOlderStatusDoesNotReplaceNewer(t *testing.T) {
	f := freeze(t, []string{ours}, false)
	reported := f.work.DeepCopy()
	reported.Status.Conditions = f.status(workv1.WorkAvailable, "Reported").Status.Conditions
	if _, err := f.works.UpdateStatus(t.Context(), reported, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: "TooLarge", LastTransitionTime: metav1.Now()}
	if err := f.SetCondition(t.Context(), f.work.UID, refused); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	has := func(want ...string) {
		t.Helper()
		conditions := f.get().Status.Conditions
		for _, kind := range want {
			if meta.FindStatusCondition(conditions, kind) == nil {
				t.Errorf("no condition %s in %v", kind, conditions)
			}
		}
	}
	has(workv1.WorkAvailable)
	// The next attempt knows what is stored.
	if err := f.SetCondition(t.Context(), f.work.UID, refused); err != nil {
		t.Error(err)
	}
	has(workv1.WorkAvailable, workv1.WorkApplied, workv1.WorkReady)
}

// TestAStatusIsNothingElse: the spec, labels and annotations of a work, and who manages them, are what they were before its
// status was written.
func TestAStatusIsNothingElse(t *testing.T) {
	f := freeze(t, []string{ours}, false)
	applied, err := f.works.Patch(t.Context(), "w", types.ApplyPatchType, []byte(`{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork",
		"metadata":{"name":"w","labels":{"a":"b"},"annotations":{"c":"d"}},"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`),
		metav1.PatchOptions{FieldManager: "gitops"})
	kit.NoError(t, err)
	rest := func(work *workv1.ManifestWork) *workv1.ManifestWork {
		work = work.DeepCopy()
		work.Status, work.ResourceVersion = workv1.ManifestWorkStatus{}, ""
		work.ManagedFields = slices.DeleteFunc(work.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Subresource == "status" })
		return work
	}
	for _, reason := range []string{"A", "B"} { // the first time the cache is behind, the second time it is not
		kit.NoError(t, f.UpdateStatus(t.Context(), f.status(workv1.WorkApplied, reason)))
		got := f.get()
		if condition := meta.FindStatusCondition(got.Status.Conditions, workv1.WorkApplied); condition == nil || condition.Reason != reason {
			t.Errorf("condition %+v, want reason %s", condition, reason)
		}
		if got, want := rest(got), rest(applied); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("the rest of the work is\n%+v, want\n%+v", got, want)
		}
	}
	var writes []string
	for _, request := range f.requests.Take(kit.Request.Writes) {
		writes = append(writes, request.String())
	}
	if want := []string{"update manifestworks/status", "patch manifestworks/status", "update manifestworks/status"}; !slices.Equal(writes, want) {
		t.Errorf("writes %v, want %v", writes, want)
	}
}

// TestAHubThatMayNotUpdate patches: the ClusterRoles of earlier versions do not allow it more.
func TestAHubThatMayNotUpdate(t *testing.T) {
	f := freeze(t, []string{ours}, false)
	f.forbidden.Store(true)
	kit.NoError(t, f.UpdateStatus(t.Context(), f.status(workv1.WorkApplied, "A")))
	refused := metav1.Condition{Type: workv1.WorkAvailable, Status: metav1.ConditionFalse, Reason: "R", LastTransitionTime: metav1.Now()}
	kit.NoError(t, f.SetCondition(t.Context(), f.work.UID, refused))
	conditions := f.get().Status.Conditions
	if meta.FindStatusCondition(conditions, workv1.WorkApplied) == nil || meta.FindStatusCondition(conditions, workv1.WorkAvailable) == nil {
		t.Errorf("conditions %v", conditions)
	}
}

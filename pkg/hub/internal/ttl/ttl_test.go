package ttl_test

import (
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/ttl"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// finished returns a work that has been complete since a time, with a time to live in seconds.
func finished(at time.Time, seconds int64, change ...func(*workv1.ManifestWork)) *workv1.ManifestWork {
	work := &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Spec:       workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{TTLSecondsAfterFinished: &seconds}},
		Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{
			Type: workv1.WorkComplete, Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRulesAggregated,
			LastTransitionTime: metav1.NewTime(at), ObservedGeneration: 2,
		}}},
	}
	for _, f := range change {
		f(work)
	}
	return work
}

func TestDue(t *testing.T) {
	at := time.Unix(1000, 0)
	condition := func(change func(*metav1.Condition)) func(*workv1.ManifestWork) {
		return func(w *workv1.ManifestWork) { change(&w.Status.Conditions[0]) }
	}
	for name, c := range map[string]struct {
		work *workv1.ManifestWork
		due  int64 // 0: never
	}{
		"later":                       {finished(at, 30), 1030},
		"at once":                     {finished(at, 0), 1000},
		"in 317 years":                {finished(at, 9_999_999_999), 1000 + math.MaxInt64/int64(time.Second)},
		"the longest time to live":    {finished(at, math.MaxInt64), 1000 + math.MaxInt64/int64(time.Second)},
		"below zero":                  {finished(at, -5), 1000},
		"by a clock that was not set": {finished(time.Unix(10, 0), 30, func(w *workv1.ManifestWork) { w.CreationTimestamp = metav1.NewTime(at) }), 1030},
		"without a time to live":      {finished(at, 1, func(w *workv1.ManifestWork) { w.Spec.DeleteOption.TTLSecondsAfterFinished = nil }), 0},
		"without an option":           {finished(at, 1, func(w *workv1.ManifestWork) { w.Spec.DeleteOption = nil }), 0},
		"not complete":                {finished(at, 1, condition(func(c *metav1.Condition) { c.Status = metav1.ConditionFalse })), 0},
		"unknown":                     {finished(at, 1, condition(func(c *metav1.Condition) { c.Status = metav1.ConditionUnknown })), 0},
		"no rule for it":              {finished(at, 1, condition(func(c *metav1.Condition) { c.Type = workv1.WorkApplied })), 0},
		"complete before a change":    {finished(at, 1, condition(func(c *metav1.Condition) { c.ObservedGeneration = 1 })), 0},
		"being deleted":               {finished(at, 1, func(w *workv1.ManifestWork) { w.DeletionTimestamp = &metav1.Time{Time: at} }), 0},
		"of a replica set":            {finished(at, 1, func(w *workv1.ManifestWork) { w.Labels = map[string]string{workv1.ReplicaSetLabelKey: "ns.set"} }), 0},
	} {
		t.Run(name, func(t *testing.T) {
			due, ok := ttl.Due(c.work)
			if ok != (c.due != 0) || ok && due.Unix() != c.due {
				t.Errorf("due at %v, %v; want %d", due.Unix(), ok, c.due)
			}
		})
	}
}

// TestFinishedWorksAreDeleted checks that works are deleted when their time to live has passed, and
// that works that are not finished stay.
func TestFinishedWorksAreDeleted(t *testing.T) {
	client := versioned.NewForConfigOrDie(plane.REST())
	namespace, ctx := plane.Namespace(t, "ttl"), t.Context()
	cluster := client.WorkV1().ManifestWorks(namespace)
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: kit.Logger(t)})
	cache, err := works.NewCache(informers, nil)
	kit.NoError(t, err)
	events := record.NewFakeRecorder(100)
	c, err := ttl.New(ttl.Config{Works: cache, Client: client, Recorder: events, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	kit.Run(t, "informers", informers.Run)
	kit.Run(t, "controller", c.Run)

	create := func(name string, seconds int64, since time.Duration) {
		t.Helper()
		work := finished(time.Now().Add(-since), seconds)
		work.Name, work.Namespace = name, namespace
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
			Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`)}}}
		status := work.Status
		work, err := cluster.Create(ctx, work, metav1.CreateOptions{})
		kit.NoError(t, err)
		if since == 0 {
			return
		}
		work.Status = status
		work.Status.Conditions[0].ObservedGeneration = work.Generation
		if _, err := cluster.UpdateStatus(ctx, work, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("open", 0, 0)
	create("at-once", 0, time.Second)
	create("past", 2, time.Minute)
	create("soon", 3, 2*time.Second)
	create("later", 3600, time.Minute)
	for _, name := range []string{"at-once", "past", "soon"} {
		kit.Await(t, cluster, name, "is deleted", func(work *workv1.ManifestWork) bool { return work == nil })
		const want = "Normal Finished Deleted: it was complete for ttlSecondsAfterFinished of "
		if event := kit.Receive(t, "the event for "+name, events.Events); !strings.HasPrefix(event, want) {
			t.Errorf("the event is %q", event)
		}
	}
	for _, name := range []string{"open", "later"} {
		if _, err := cluster.Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewReportsEveryFault(t *testing.T) {
	if _, err := ttl.New(ttl.Config{}); err == nil || !strings.Contains(err.Error(), "Works is required") || !strings.Contains(err.Error(), "Client is required") {
		t.Errorf("%v", err)
	}
}

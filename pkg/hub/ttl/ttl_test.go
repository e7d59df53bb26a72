package ttl_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/workwire/workwire/deploy/crds"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/controller"
	"github.com/workwire/workwire/pkg/hub/ttl"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Hub, func(p *controlplane.Plane) error {
		plane = p
		return crds.Install(context.Background(), p.REST(), crds.Hub()...)
	})
}

// finished is a work that was complete at a time and may live for so long.
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
		"later":                    {finished(at, 30), 1030},
		"at once":                  {finished(at, 0), 1000},
		"below zero":               {finished(at, -5), 1000},
		"without a time to live":   {finished(at, 1, func(w *workv1.ManifestWork) { w.Spec.DeleteOption.TTLSecondsAfterFinished = nil }), 0},
		"without an option":        {finished(at, 1, func(w *workv1.ManifestWork) { w.Spec.DeleteOption = nil }), 0},
		"not complete":             {finished(at, 1, condition(func(c *metav1.Condition) { c.Status = metav1.ConditionFalse })), 0},
		"unknown":                  {finished(at, 1, condition(func(c *metav1.Condition) { c.Status = metav1.ConditionUnknown })), 0},
		"no rule for it":           {finished(at, 1, condition(func(c *metav1.Condition) { c.Type = workv1.WorkApplied })), 0},
		"complete before a change": {finished(at, 1, condition(func(c *metav1.Condition) { c.ObservedGeneration = 1 })), 0},
		"being deleted":            {finished(at, 1, func(w *workv1.ManifestWork) { w.DeletionTimestamp = &metav1.Time{Time: at} }), 0},
		"of a replica set":         {finished(at, 1, func(w *workv1.ManifestWork) { w.Labels = map[string]string{workv1.ReplicaSetLabelKey: "ns.set"} }), 0},
	} {
		t.Run(name, func(t *testing.T) {
			due, ok := ttl.Due(c.work)
			if ok != (c.due != 0) || ok && due.Unix() != c.due {
				t.Errorf("due at %v, %v; want %d", due.Unix(), ok, c.due)
			}
		})
	}
}

// TestFinishedWorksGo: on a real API server, works go when their time has come,
// those that changed in between do not, and what is not finished stays.
func TestFinishedWorksGo(t *testing.T) {
	client := versioned.NewForConfigOrDie(plane.REST())
	namespace := plane.Namespace(t, "ttl")
	cluster := client.WorkV1().ManifestWorks(namespace)
	ctx, cancel := context.WithCancel(t.Context())
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: logger})
	cache, err := works.New(works.Config{Informers: informers})
	if err != nil {
		t.Fatal(err)
	}
	events := record.NewFakeRecorder(100)
	collector, err := ttl.New(ttl.Config{Works: cache, Client: client, Recorder: events, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _ = informers.Run(ctx) }()
	go func() { ended <- collector.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	create := func(name string, seconds int64, since time.Duration) {
		t.Helper()
		work := finished(time.Now().Add(-since), seconds)
		work.Name, work.Namespace = name, namespace
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
			Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`)}}}
		status := work.Status
		work, err := cluster.Create(ctx, work, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
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
	create("past", 30, time.Minute)
	create("soon", 3, 2*time.Second)
	create("later", 3600, time.Minute)
	for _, name := range []string{"at-once", "past", "soon"} {
		eventually(t, name+" is gone", func() error {
			work, err := cluster.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("%+v, %w", work, err)
		})
		select {
		case event := <-events.Events:
			if want := "Normal Finished Deleted: it was complete for ttlSecondsAfterFinished of "; len(event) < len(want) || event[:len(want)] != want {
				t.Errorf("the event is %q", event)
			}
		case <-time.After(patience):
			t.Errorf("no event for %s", name)
		}
	}
	for _, name := range []string{"open", "later"} {
		if _, err := cluster.Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const patience = 30 * time.Second

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

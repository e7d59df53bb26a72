package pods

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/test/kit"
)

// workload returns a Deployment at a version.
func workload(t *testing.T, version int) *unstructured.Unstructured {
	t.Helper()
	object := map[string]any{}
	kit.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: ns, resourceVersion: "%d"},
		spec: {selector: {matchLabels: {app: web}}}, status: {conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: exceeded quota}]}}`, version), &object))
	return &unstructured.Unstructured{Object: object}
}

// TestNext asks at several times about a workload that is not ready since start, without the right
// to list pods.
func TestNext(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	asked, answer := 0, error(apierrors.NewServiceUnavailable("not now"))
	r := NewReader()
	known := Known{}
	for i, step := range []struct {
		at      time.Duration
		version int
		answer  error
		asked   int
		again   time.Duration
		text    string
	}{
		{0, 1, answer, 0, patience, ""},
		{time.Second, 2, answer, 0, patience - time.Second, ""},
		{patience, 2, answer, 1, minDelay, ""},
		{patience + time.Second, 2, answer, 1, minDelay - time.Second, ""},
		{patience + time.Second, 3, answer, 1, minDelay - time.Second, ""},
		{patience + minDelay, 3, answer, 2, 2 * minDelay, ""},
		{patience + minDelay + time.Second, 3, answer, 2, 2*minDelay - time.Second, ""},
		{patience + 2*minDelay, 4, answer, 3, 4 * minDelay, ""}, // it has changed
		{time.Minute, 4, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")), 4, forbiddenDelay, "the agent may not list pods in namespace ns, which would tell why"},
		{2 * time.Minute, 5, answer, 4, forbiddenDelay - time.Minute, "the agent may not list pods in namespace ns, which would tell why"},
		{time.Minute + forbiddenDelay, 5, answer, 5, minDelay, "the agent may not list pods in namespace ns, which would tell why"},
	} {
		answer = step.answer
		var again time.Duration
		known, again = r.Next(t.Context(), known, Request{Workload: workload(t, step.version), Since: start, Who: "the agent",
			Client: func(context.Context) (rest.Interface, error) { asked++; return nil, answer }}, start.Add(step.at))
		if asked != step.asked || again != step.again || known.Text != step.text {
			t.Errorf("step %d: asked %d times, again in %v, %q; want %+v", i, asked, again, known.Text, step)
		}
	}
}

// TestRate asks about many workloads at once.
func TestRate(t *testing.T) {
	r, asked := NewReader(), 0
	for range 100 {
		_, again := r.Next(t.Context(), Known{}, Request{Workload: workload(t, 1), Who: "the agent",
			Client: func(context.Context) (rest.Interface, error) { asked++; return nil, errors.New("no") }}, time.Now())
		if again <= 0 {
			t.Fatal("nobody asks again")
		}
	}
	if asked < burst || asked > burst+60*perSecond { // a minute of a slow machine
		t.Errorf("%d lists", asked)
	}
}

func TestNoPods(t *testing.T) {
	if got, want := noPods(workload(t, 1)), "FailedCreate: exceeded quota"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPodOfItsOwn(t *testing.T) {
	object := map[string]any{}
	kit.NoError(t, yaml.Unmarshal([]byte(`{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: none}}}]}}`), &object))
	known, again := NewReader().Next(t.Context(), Known{}, Request{Workload: &unstructured.Unstructured{Object: object}}, time.Now())
	if known.Text != "ErrImagePull: none" || again != 0 {
		t.Errorf("%q, again in %v", known.Text, again)
	}
}

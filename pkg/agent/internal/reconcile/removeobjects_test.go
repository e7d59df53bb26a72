package reconcile

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/restmapper"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

func TestRemovalWaits(t *testing.T) {
	now := time.Now()
	live := &unstructured.Unstructured{Object: map[string]any{}}
	deleted := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}}}
	refused := lastRemoval{backoff: backoff{failures: 4}.failed(now), outcome: apply.RemovalOutcome{Err: errors.New("no")}}
	unseen := refused
	unseen.unseen = true
	for name, test := range map[string]struct {
		removal lastRemoval
		live    object.Live
		want    time.Duration
	}{
		"refused":                         {refused, object.Live{State: object.Present, Object: live}, 810 * time.Millisecond},
		"refused, not known":              {refused, object.Live{}, 810 * time.Millisecond},
		"refused, gone now":               {refused, object.Live{State: object.Absent}, 0},
		"refused, without label":          {unseen, object.Live{State: object.Absent}, 810 * time.Millisecond},
		"refused, somebody else deletes":  {refused, object.Live{State: object.Present, Object: deleted}, 0},
		"finalizers":                      {lastRemoval{}, object.Live{State: object.Present, Object: deleted}, 0},
		"it exists again with another id": {lastRemoval{}, object.Live{State: object.Present, Object: live}, 0},
	} {
		if got := max(test.removal.waits(test.live, now), 0); got != test.want {
			t.Errorf("%s: waits %v, want %v", name, got, test.want)
		}
	}
}

func TestNoteRemoval(t *testing.T) {
	var h history
	ref, now := object.Ref{Name: "a"}, time.Now()
	no := apply.RemovalOutcome{Err: errors.New("no")}
	for i, step := range []struct {
		outcome  apply.RemovalOutcome
		first    bool
		failures int
	}{
		{no, true, 1}, {no, false, 2}, {no, false, 3},
		{apply.RemovalOutcome{}, true, 0}, {apply.RemovalOutcome{}, false, 0},
		{no, false, 1},
		{apply.RemovalOutcome{Step: plan.Hold}, true, 0}, {apply.RemovalOutcome{}, true, 0}, {apply.RemovalOutcome{}, false, 0},
	} {
		if first := h.noteRemoval(ref, step.outcome, now); first != step.first || h.lastRemovals[ref].failures != step.failures {
			t.Errorf("step %d: first %t, %+v", i, first, h.lastRemovals[ref])
		}
	}
	if h.isZero() {
		t.Error("a history with a removal is zero")
	}
	h.noteRemoval(ref, apply.RemovalOutcome{Gone: true}, now)
	if left := h.left([]applied.Resource{{Ref: ref}}); len(left) > 0 {
		t.Errorf("it is gone, and left are %v", left)
	}
	if !h.noteRemoval(ref, no, now) || h.lastRemovals[ref].failures != 1 || len(h.left([]applied.Resource{{Ref: ref}})) == 0 {
		t.Errorf("it has come back: %+v", h.lastRemovals[ref])
	}
}

// TestRemovals: what waits is no error of this attempt, and what is gone is not pending.
func TestRemovals(t *testing.T) {
	no := apply.RemovalOutcome{Err: errors.New("no")}
	for name, test := range map[string]struct {
		outcomes []apply.RemovalOutcome
		waiting  []bool
		failed   bool
		pending  bool
	}{
		"nothing":         {},
		"gone":            {outcomes: []apply.RemovalOutcome{{Gone: true}}, waiting: []bool{false}},
		"deleted":         {outcomes: []apply.RemovalOutcome{{}}, waiting: []bool{false}, pending: true},
		"refused":         {outcomes: []apply.RemovalOutcome{{Gone: true}, no}, waiting: []bool{false, false}, failed: true, pending: true},
		"refused, before": {outcomes: []apply.RemovalOutcome{no}, waiting: []bool{true}, pending: true},
	} {
		r := removals{outcomes: test.outcomes, waiting: test.waiting}
		if (r.err() != nil) != test.failed || r.pending() != test.pending {
			t.Errorf("%s: %v, pending %t", name, r.err(), r.pending())
		}
	}
	for _, c := range [][3]time.Duration{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}} {
		if got := sooner(c[0], c[1]); got != c[2] {
			t.Errorf("of %d and %d, %d is sooner", c[0], c[1], got)
		}
	}
}

// TestOrphanedKind: an object is not deleted as long as nobody can say whether a rule names its kind.
func TestOrphanedKind(t *testing.T) {
	answer := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answer)
		_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap"},{"name":"secrets","namespaced":true,"kind":"Secret"}]}`)
	}))
	t.Cleanup(server.Close)
	res := applied.Resource{Ref: object.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace: "ns", Name: "a"}}
	for name, test := range map[string]struct {
		answer         int
		kind           string
		orphan, failed bool
	}{
		"its kind":            {http.StatusOK, "ConfigMap", true, false},
		"another kind":        {http.StatusOK, "Secret", false, false},
		"no kind":             {http.StatusOK, "Nothing", false, false},
		"nothing is served":   {http.StatusNotFound, "ConfigMap", false, false},
		"not known now":       {http.StatusServiceUnavailable, "ConfigMap", false, true},
		"the resource":        {http.StatusServiceUnavailable, "configmaps", true, false},
		"no rule is about it": {http.StatusServiceUnavailable, "", false, false},
	} {
		answer = test.answer
		mapper, err := restmapper.New(restmapper.Config{Client: kit.RESTClient(t, &rest.Config{Host: server.URL, QPS: -1})})
		kit.NoError(t, err)
		rules := []workv1.OrphaningRule{{Resource: "ConfigMap", Namespace: "ns", Name: "b"}}
		if test.kind != "" {
			rules = append(rules, workv1.OrphaningRule{Resource: test.kind, Namespace: "ns", Name: "a"})
		}
		r := &Reconciler{Config: Config{RESTMapper: mapper}}
		removal, err := r.removalOf(t.Context(), res, &workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan, SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: rules},
		}})
		if removal.Orphan != test.orphan || (err != nil) != test.failed {
			t.Errorf("%s: orphan %t, %v", name, removal.Orphan, err)
		}
	}
}

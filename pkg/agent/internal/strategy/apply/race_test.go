package apply_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// on sets a strategy for the objects of one kind.
func on(group, resource string, strategy *workv1.UpdateStrategy) func(*workv1.ManifestWorkSpec) {
	return func(s *workv1.ManifestWorkSpec) {
		s.ManifestConfigs = append(s.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: resource, Namespace: "*", Name: "*"},
			UpdateStrategy:     strategy,
		})
	}
}

const (
	jobText = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"NS","name":"pi"},"spec":{SELECTOR"backoffLimit":4,
		"template":{LABELS"spec":{"restartPolicy":"Never","containers":[{"name":"pi","image":"IMAGE",
		"command":["perl","-Mbignum=bpi","-wle","print bpi(2000)"]}]}}}}`
	manualSelector = `"manualSelector":true,"selector":{"matchLabels":{"job":"pi"}},`
	jobLabels      = `"metadata":{"labels":{"job":"pi"}},`
)

// Jobs get fields from the API server that nobody can change. They are no drift, neither while the
// Job runs nor when it is done, nor for an agent that has restarted. A change that is refused fails
// in the API server's words.
func TestJob(t *testing.T) {
	t.Parallel()
	applied := on("batch", "jobs", strategytest.ServerSide(nil))
	for name, test := range map[string]struct {
		change           func(*workv1.ManifestWorkSpec)
		selector, labels string
		created, refused string // requests
	}{
		"Update, without selector":          {created: "1× POST 201", refused: "1× GET 200, 2× PUT 422"},
		"Update, with manualSelector":       {selector: manualSelector, labels: jobLabels, created: "1× POST 201", refused: "1× GET 200, 2× PUT 422"},
		"CreateOnly":                        {change: on("batch", "jobs", &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}), created: "1× POST 201"},
		"ServerSideApply, without selector": {change: applied, created: "1× PATCH 201", refused: "1× PATCH 422"},
		"ServerSideApply, manualSelector":   {change: applied, selector: manualSelector, labels: jobLabels, created: "1× PATCH 201", refused: "1× PATCH 422"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpoke(t)
			text := func(image string) string {
				return strings.NewReplacer("SELECTOR", test.selector, "LABELS", test.labels, "IMAGE", image).Replace(jobText)
			}
			manifests := s.parse(test.change, text("perl:5.34.0"))
			ref := manifests[0].Ref
			s.applied(manifests, test.created)
			s.applied(manifests, "")
			s.eventually(ref, "completion", func(live *unstructured.Unstructured) bool {
				return nested(t, live, "status", "succeeded") == int64(1) && nested(t, live, "status", "completionTime") != nil
			})
			s.see(ref)
			s.applied(manifests, "")
			s.restart()
			s.see(ref)
			s.applied(manifests, "")
			uid := s.get(ref).GetUID()

			outcome := s.apply(s.parse(test.change, text("perl:5.36.0")))[0]
			s.wantRequests(test.refused)
			if test.refused == "" {
				if outcome.Action != apply.Unchanged {
					t.Errorf("got %s, %v", outcome.Action, outcome.Err)
				}
			} else if got := strategytest.ErrorText(outcome.Err); outcome.Action != apply.Failed ||
				!strings.HasPrefix(got, `Job.batch "pi" is invalid: spec.template: Invalid value:`) || !strings.HasSuffix(got, "field is immutable") {
				t.Errorf("got %s, %v", outcome.Action, outcome.Err)
			}
			if s.get(ref).GetUID() != uid {
				t.Error("the Job was recreated")
			}
			// Taken back, all is well.
			s.applied(manifests, "")
		})
	}
}

// An autoscaler takes the replicas of a Deployment. A manifest that claims them is told so; one
// that leaves them is applied.
func TestReplicasOfAutoscaler(t *testing.T) {
	t.Parallel() // the autoscaler looks every 15 seconds
	s := newSpoke(t)
	applied := on("apps", "deployments", strategytest.ServerSide(nil))
	const scaler = `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"namespace":"NS","name":"h"},"spec":{"minReplicas":2,"maxReplicas":5,
		"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}}`
	replicas := func(count string) []strategy.Manifest {
		return s.parse(applied, deployment("%REPLICAS%", `"replicas":`+count+`,`), scaler)
	}
	manifests := replicas("1")
	ref := manifests[0].Ref
	s.applied(manifests, "1× PATCH 201, 1× POST 201")
	scaled := func(live *unstructured.Unstructured) bool { return nested(t, live, "spec", "replicas") == int64(2) }
	s.eventually(ref, "scaling", scaled)
	s.see(ref)
	refused := func(count string) {
		t.Helper()
		const want = `Apply failed with 1 conflict: conflict with "kube-controller-manager" with subresource "scale" using apps/v1: .spec.replicas`
		if got := strategytest.ErrorText(s.apply(replicas(count))[0].Err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		s.requests.take()
		if !scaled(s.get(ref)) {
			t.Errorf("replicas %v", nested(t, s.get(ref), "spec", "replicas"))
		}
	}
	refused("1")
	pruned := s.parse(applied, deployment("%REPLICAS%", `"minReadySeconds":1,`), scaler)
	s.applied(pruned, "1× PATCH 200")
	s.see(ref)
	s.applied(pruned, "")
	refused("3")
}

// Two works share a Deployment, each with the fields that it owns.
func TestTwoWorksShareByFieldManager(t *testing.T) {
	s := newSpoke(t)
	work := func(owner metav1.OwnerReference, config *workv1.ServerSideApplyConfig, text string) error {
		t.Helper()
		return s.applier.Apply(t.Context(), s.parse(on("apps", "deployments", strategytest.ServerSide(config)), text), apply.Options{Owner: owner})[0].Err
	}
	second := s.newOwner("hello-work-replica-patch")
	replicas := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"NS","name":"d"},"spec":{"replicas":3}}`
	another := &workv1.ServerSideApplyConfig{Force: true, FieldManager: "work-agent-another"}
	if err := work(s.owner, nil, deployment("%REPLICAS%", `"replicas":1,`)); err != nil {
		t.Fatal(err)
	}
	if err := work(second, another, replicas); err != nil {
		t.Fatal(err)
	}
	ref := s.parse(nil, replicas)[0].Ref
	live := s.get(ref)
	if nested(t, live, "spec", "replicas") != int64(3) || len(live.GetOwnerReferences()) != 2 {
		t.Errorf("replicas %v, owners %v", nested(t, live, "spec", "replicas"), live.GetOwnerReferences())
	}
	if got := managers(live); got != "work-agent Apply, work-agent-another Apply" {
		t.Errorf("managers %s", got)
	}
	// The first one leaves the replicas, or hears of the conflict.
	if err := work(s.owner, nil, deployment()); err != nil {
		t.Error(err)
	}
	const want = `Apply failed with 1 conflict: conflict with "work-agent-another": .spec.replicas`
	if got := strategytest.ErrorText(work(s.owner, nil, deployment("%REPLICAS%", `"replicas":2,`))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if live = s.get(ref); nested(t, live, "spec", "replicas") != int64(3) {
		t.Errorf("replicas %v", nested(t, live, "spec", "replicas"))
	}
	// One goes; the other one's object stays.
	s.rolledOut(ref)
	for _, owner := range []metav1.OwnerReference{s.owner, second} {
		if exists := s.exists(ref); !exists {
			t.Error("it is gone too early")
		}
		if removed := s.applier.Remove(t.Context(), []plan.Removal{{Ref: ref}}, false, owner.UID)[0]; removed.Err != nil {
			t.Error(removed.Err)
		}
	}
	if s.exists(ref) {
		t.Error("it stays after both")
	}
}

// With an update strategy that writes, two works that declare different values fight; with
// CreateOnly the first one keeps quiet.
func TestTwoWorksRaceForAnObject(t *testing.T) {
	s := newSpoke(t)
	second := s.newOwner("second")
	other := s.parse(nil, data(`{"a":"second"}`))
	last := map[object.Ref]*strategy.Manifest{other[0].Ref: &other[0]}
	applySecond := func() apply.Outcome {
		t.Helper()
		outcome := s.applier.Apply(t.Context(), other, apply.Options{Owner: second, Previous: func(ref object.Ref) *strategy.Manifest { return last[ref] }})[0]
		if outcome.Err != nil {
			t.Fatal(outcome.Err)
		}
		return outcome
	}
	first := s.parse(nil, data(`{"a":"first"}`))
	s.applied(first, "1× POST 201")
	for range 2 {
		if outcome := applySecond(); outcome.Action != apply.Updated {
			t.Errorf("the second one: %s", outcome.Action)
		}
		if outcome := s.apply(first)[0]; outcome.Action != apply.Updated {
			t.Errorf("the first one: %s", outcome.Action)
		}
	}
	applySecond()
	s.requests.take()
	quiet := strategytest.Configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly})
	s.applied(s.parse(quiet, data(`{"a":"first"}`)), "")
	if outcome := applySecond(); outcome.Action != apply.Unchanged {
		t.Errorf("the second one alone: %s", outcome.Action)
	}
	if live := s.get(first[0].Ref); dataOf(t, live) != `{"a":"second"}` || len(live.GetOwnerReferences()) != 2 {
		t.Errorf("data %s, owners %v", dataOf(t, live), live.GetOwnerReferences())
	}
}

package apply_test

import (
	"crypto/md5"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func dataOf(t *testing.T, obj *unstructured.Unstructured) string {
	t.Helper()
	return asJSON(t, obj.Object["data"])
}

// labelledData is a ConfigMap; changing its label is a change of what is not ignored.
func labelledData(label, text string) string {
	return strings.Replace(data(text), `"name":"c"`, `"name":"c","labels":{"l":"`+label+`"}`, 1)
}

func TestOnSpokePresent(t *testing.T) {
	s := newSpoke(t)
	parse := func(label, text string) []strategy.Manifest {
		return s.parse(strategytest.IgnoreFields(strategytest.OnPresent(".data")), labelledData(label, text))
	}
	manifests := parse("1", `{"a":"1","b":"1"}`)
	ref := manifests[0].Ref
	// Whether it is new has to be known: what is sent depends on it.
	if outcome := s.applied(manifests, "1× GET 404, 1× PATCH 201")[0]; outcome.Action != apply.Created {
		t.Errorf("got %s", outcome.Action)
	}
	live := s.get(ref)
	if got := managers(live); got != "work-agent Apply" || dataOf(t, live) != `{"a":"1","b":"1"}` ||
		live.GetAnnotations()[workv1.ManifestConfigSpecHashAnnotationKey] == "" || live.GetLabels()[object.AgentLabel] != agentHash {
		t.Errorf("managers %s, metadata %v, data %s", got, live.Object["metadata"], dataOf(t, live))
	}
	s.applied(manifests, "")

	// Another actor changes an ignored field, and one that is not: drift stays. theirs applies a
	// value as another actor does.
	theirs := func(value string, force bool) {
		t.Helper()
		patch := strings.ReplaceAll(strings.Replace(data(`{"a":"%"}`), "%", value, 1), "NS", s.namespace)
		if _, err := s.resource(ref).Patch(t.Context(), ref.Name, types.ApplyPatchType, []byte(patch),
			metav1.PatchOptions{FieldManager: "theirs", Force: &force}); err != nil {
			t.Errorf("another actor cannot apply its own field: %v", err)
		}
		s.see(ref)
	}
	theirs("theirs", true)
	s.patch(ref, "other", `{"metadata":{"labels":{"l":"theirs"}}}`)
	s.applied(manifests, "")
	// So does it when the work changes nothing but what is ignored, and later.
	manifests = parse("1", `{"a":"2","b":"2","c":"2"}`)
	s.applied(manifests, "")
	s.restart()
	s.see(ref)
	s.applied(manifests, "")

	// A change of something else is applied. Ignored fields keep what they have, whoever wrote
	// them.
	manifests = parse("2", `{"a":"2","b":"2","c":"2"}`)
	outcome := s.apply(manifests)[0]
	if got := strategytest.ErrorText(outcome.Err); got != `Apply failed with 1 conflict: conflict with "other" using v1: .metadata.labels.l` {
		t.Errorf("got %q", got)
	}
	s.patch(ref, "other", `{"metadata":{"labels":{"l":null}}}`)
	s.requests.take()
	if outcome = s.applied(manifests, "1× GET 200, 1× PATCH 200")[0]; outcome.Action != apply.Updated {
		t.Errorf("got %s", outcome.Action)
	}
	live = s.get(ref)
	if dataOf(t, live) != `{"a":"theirs","b":"1"}` || live.GetLabels()["l"] != "2" {
		t.Errorf("data %s, labels %v", dataOf(t, live), live.GetLabels())
	}
	s.applied(manifests, "")

	// The other one changes its field as before, without a conflict.
	theirs("applied", false)
	s.applied(manifests, "")
	manifests = parse("3", `{"c":"3"}`)
	s.applied(manifests, "1× GET 200, 1× PATCH 200")
	s.wantData(ref, `{"a":"applied","b":"1"}`)

	// Deleted, it comes back whole.
	s.delete(ref)
	s.cache.Learn(ref, nil)
	s.applied(manifests, "1× GET 404, 1× PATCH 201")
	s.wantData(ref, `{"c":"3"}`)
}

func TestOnSpokeChange(t *testing.T) {
	s := newSpoke(t)
	parse := func(text string) []strategy.Manifest {
		return s.parse(strategytest.IgnoreFields(strategytest.OnChange(".data")), data(text))
	}
	manifests := parse(`{"a":"1","b":"1"}`)
	ref := manifests[0].Ref
	s.applied(manifests, "1× GET 404, 1× PATCH 201")
	s.patch(ref, "other", `{"data":{"b":"theirs"}}`)
	s.applied(manifests, "")
	// Once the work changes, all of it counts again.
	outcome := s.apply(parse(`{"a":"2","b":"1"}`))[0]
	if got := strategytest.ErrorText(outcome.Err); got != `Apply failed with 1 conflict: conflict with "other" using v1: .data.b` {
		t.Errorf("got %q", got)
	}
	s.wantRequests("1× PATCH 409")
	s.applied(parse(`{"a":"2"}`), "1× PATCH 200")
	s.wantData(ref, `{"a":"2","b":"theirs"}`)
}

// An object that another agent for ManifestWorks applied from this manifest is taken over as it is:
// it gets the label by which it is watched, and nothing else.
func TestIgnoreFieldsAppliedByAnotherAgent(t *testing.T) {
	s := newSpoke(t)
	manifests := s.parse(strategytest.IgnoreFields(strategytest.OnPresent(".data")), data(`{"a":"1"}`))
	ref := manifests[0].Ref
	sum := md5.Sum([]byte("&{map[apiVersion:v1 kind:ConfigMap metadata:map[name:c namespace:" + s.namespace + "]]}"))
	theirs := strategytest.Decode(t, strings.ReplaceAll(data(`{"a":"drifted"}`), "NS", s.namespace))
	theirs.SetAnnotations(map[string]string{workv1.ManifestConfigSpecHashAnnotationKey: hex.EncodeToString(sum[:])})
	theirs.SetOwnerReferences([]metav1.OwnerReference{s.owner})
	if _, err := s.resource(ref).Apply(t.Context(), ref.Name, theirs, metav1.ApplyOptions{FieldManager: "work-agent"}); err != nil {
		t.Fatal(err)
	}
	s.applied(manifests, "1× GET 200, 1× PATCH 200")
	live := s.get(ref)
	if got := managers(live); dataOf(t, live) != `{"a":"drifted"}` || live.GetLabels()[object.AgentLabel] != agentHash || got != "work-agent Apply, work-agent Update" {
		t.Errorf("data %s, labels %v, managers %s", dataOf(t, live), live.GetLabels(), got)
	}
	s.applied(manifests, "")
	// deleteOption takes effect all the same, and back.
	orphaned := s.parse(func(w *workv1.ManifestWorkSpec) {
		strategytest.IgnoreFields(strategytest.OnPresent(".data"))(w)
		strategytest.Orphan(w)
	}, data(`{"a":"1"}`))
	s.applied(orphaned, "1× PATCH 200")
	if live = s.get(ref); len(live.GetOwnerReferences()) != 0 || dataOf(t, live) != `{"a":"drifted"}` {
		t.Errorf("owners %v, data %s", live.GetOwnerReferences(), dataOf(t, live))
	}
	s.applied(orphaned, "")
	s.applied(manifests, "1× PATCH 200")
	if diff := cmp.Diff([]metav1.OwnerReference{s.owner}, s.get(ref).GetOwnerReferences()); diff != "" {
		t.Error(diff)
	}
}

// Fields of a Deployment, named in each of the languages: what is left alone stays at the next
// roll-out, be it the work's own value or an autoscaler's.
func TestIgnoreFieldsOfDeployment(t *testing.T) {
	s := newSpoke(t)
	ignore := strategytest.IgnoreFields(workv1.IgnoreField{
		Condition:         workv1.IgnoreFieldsConditionOnSpokePresent,
		JSONPaths:         []string{".spec.replicas"},
		JSONPointers:      []string{"/spec/template/metadata/annotations/example.com~1restarted"},
		JQPathExpressions: []string{`.spec.template.spec.containers[] | select(.name == "c") | .image`},
	})
	text := func(image, more string) string {
		text := deployment("%REPLICAS%", `"paused":true,"replicas":2,`+more, "%IMAGE%", image)
		return strings.Replace(text, `"template":{"metadata":{`, `"template":{"metadata":{"annotations":{"example.com/restarted":"never"},`, 1)
	}
	first := s.parse(ignore, text("x:1", ""))
	ref := first[0].Ref
	s.applied(first, "1× GET 404, 1× PATCH 201")
	values := func() string {
		live := s.get(ref)
		container := nested(t, live, "spec", "template", "spec", "containers").([]any)[0].(map[string]any)
		return asJSON(t, []any{
			nested(t, live, "spec", "replicas"), container["image"],
			nested(t, live, "spec", "template", "metadata", "annotations", "example.com/restarted"), nested(t, live, "spec", "minReadySeconds"),
		})
	}
	s.paused(ref)
	s.applied(s.parse(ignore, text("x:2", "")), "")
	s.applied(s.parse(ignore, text("x:2", `"minReadySeconds":1,`)), "1× GET 200, 1× PATCH 200")
	if got, want := values(), `[2,"x:1","never",1]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s.patch(ref, "autoscaler", `{"spec":{"replicas":7}}`, "scale")
	s.patch(ref, "kubectl", `{"spec":{"template":{"metadata":{"annotations":{"example.com/restarted":"now"}},"spec":{"containers":[{"name":"c","image":"x:hot"}]}}}}`)
	s.paused(ref)
	s.applied(s.parse(ignore, text("x:3", `"minReadySeconds":1,`)), "")
	s.applied(s.parse(ignore, text("x:3", `"minReadySeconds":2,`)), "1× GET 200, 1× PATCH 200")
	if got, want := values(), `[7,"x:hot","now",2]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s.patch(ref, "autoscaler", `{"spec":{"replicas":8}}`, "scale")
	if got, want := values(), `[8,"x:hot","now",2]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestIgnoreFieldsOfSecret(t *testing.T) {
	s := newSpoke(t)
	text := `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"NS","name":"s"},"stringData":{"password":"%","user":"%"}}`
	ignore := strategytest.IgnoreFields(strategytest.OnPresent(".stringData.password"))
	first := s.parse(ignore, strings.ReplaceAll(text, "%", "old"))
	s.applied(first, "1× GET 404, 1× PATCH 201")
	s.applied(s.parse(ignore, strings.ReplaceAll(text, "%", "new")), "1× GET 200, 1× PATCH 200")
	s.wantData(first[0].Ref, `{"password":"b2xk","user":"bmV3"}`)
}

// meddler does something between two requests of the agent.
type meddler struct {
	next   http.RoundTripper
	after  string // method
	meddle func()
}

func (m *meddler) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := m.next.RoundTrip(request)
	if request.Method == m.after && m.meddle != nil {
		meddle := m.meddle
		m.meddle = nil
		meddle()
	}
	return response, err
}

// meddle arranges that something happens after the agent's next request of a method.
func (s *spoke) meddle(after string, do func()) {
	s.t.Helper()
	known := s.cache.known
	counter := &counter{}
	s.restart(func(c *apply.Config) {
		c.Client = client(s.t, func(next http.RoundTripper) http.RoundTripper {
			counter.next = &meddler{next: next, after: after, meddle: do}
			return counter
		})
	})
	s.requests, s.cache.known = counter, known
}

// The object goes, or changes, between reading and applying: what was made for the object as it was
// is recreated.
func TestIgnoreFieldsOfWhatChangesMeanwhile(t *testing.T) {
	s := newSpoke(t)
	parse := func(label string) []strategy.Manifest {
		return s.parse(strategytest.IgnoreFields(strategytest.OnPresent(".data")), labelledData(label, `{"a":"1"}`))
	}
	manifests := parse("1")
	ref := manifests[0].Ref
	s.applied(manifests, "1× GET 404, 1× PATCH 201")
	s.meddle("GET", func() {
		if err := s.resource(ref).Delete(t.Context(), ref.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	s.applied(parse("2"), "1× GET 200, 1× GET 404, 1× PATCH 201, 1× PATCH 409")
	if live := s.get(ref); dataOf(t, live) != `{"a":"1"}` {
		t.Errorf("deleted meanwhile: data %s", dataOf(t, live))
	}
	s.meddle("GET", func() {
		if _, err := s.resource(ref).Patch(t.Context(), ref.Name, types.MergePatchType, []byte(`{"data":{"a":"2"}}`), metav1.PatchOptions{FieldManager: "other"}); err != nil {
			t.Error(err)
		}
	})
	s.applied(parse("3"), "2× GET 200, 1× PATCH 200, 1× PATCH 409")
	if live := s.get(ref); dataOf(t, live) != `{"a":"2"}` {
		t.Errorf("changed meanwhile: data %s", dataOf(t, live))
	}
}

package agent_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// attack is what the author of a work does to the agent, with its first manifest.
type attack struct {
	manifest string
	config   string // of the first manifest, the object "big"
	// What the first manifest shows; the work, if inWork is set.
	kind, reason, message string
	inWork                bool
}

// attacks have one work over each budget (docs/limits.md).
func attacks() map[string]attack {
	keys := []string{}
	for i := range 3000 {
		keys = append(keys, fmt.Sprintf("k%d: x", i))
	}
	wide := "{apiVersion: v1, kind: ConfigMap, metadata: {name: OBJECT, namespace: NAMESPACE}, data: {" + strings.Join(keys, ", ") + "}}"
	long := "{apiVersion: v1, kind: ConfigMap, metadata: {name: OBJECT, namespace: NAMESPACE}, data: {long: " + strings.Repeat("x", 30_000) + "}}"
	deep := "{apiVersion: v1, kind: ConfigMap, metadata: {name: OBJECT, namespace: NAMESPACE}, data: " +
		strings.Repeat("{a: ", 300) + "b" + strings.Repeat("}", 300) + "}"
	path := func(paths ...string) string {
		var all []string
		for i, p := range paths {
			all = append(all, fmt.Sprintf("{name: p%d, path: %q}", i, p))
		}
		return "feedbackRules: [{type: JSONPaths, jsonPaths: [" + strings.Join(all, ", ") + "]}]"
	}
	jq := func(expression string) string {
		return fmt.Sprintf("updateStrategy: {type: ServerSideApply, serverSideApply: {ignoreFields: [{jqPathExpressions: [%q]}]}}", expression)
	}
	rules := func(count int, rest string) string {
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf("{type: CEL, condition: C%d, %s}", i, rest))
		}
		return "conditionRules: [" + strings.Join(all, ", ") + "]"
	}
	const synced, failed, ignore = workv1.ManifestStatusFeedbackSynced, workv1.ReasonStatusFeedbackSyncFailed, workv1.ReasonAppliedManifestSSAIgnoreFieldError
	return map[string]attack{
		"path":     {manifest: wide, config: path("['data'" + strings.Repeat(",'data'", 500) + "]..k1"), kind: synced, reason: failed, message: "visit"},
		"value":    {manifest: long, config: path(".data.long"), kind: synced, reason: failed, message: "30000 bytes, at most 16384"},
		"jq-steps": {manifest: wide, config: jq(".. as $a | .. as $b | select($a == $b) | .data"), kind: workv1.ManifestApplied, reason: ignore, message: "too many steps"},
		"jq-grows": {manifest: wide, config: jq(`"x" * 1000000000 | .data`), kind: workv1.ManifestApplied, reason: ignore, message: "the operator * is not available"},
		"cel": {manifest: wide, config: rules(1, `celExpressions: ["object.data.all(a, object.data.all(b, object.data.all(c, a != b || b != c || true)))"]`),
			kind: "C0", reason: workv1.ReasonConditionRuleExpressionError, message: "cost limit exceeded"},
		"messages": {manifest: long, config: rules(64, "messageExpression: object.data.long"),
			kind: "C63", reason: workv1.ReasonConditionRuleEvaluated, message: "… (cut, "},
		"rules":   {manifest: long, config: rules(65, "message: x"), kind: workv1.ManifestApplied, reason: workv1.ReasonAppliedManifestFailed, message: "at most 64"},
		"nesting": {manifest: deep, kind: workv1.ManifestApplied, reason: workv1.ReasonAppliedManifestFailed, message: "nested deeper than 256 levels"},
		"number":  {inWork: true, kind: workv1.WorkApplied, reason: workv1.ReasonInvalidManifestWork, message: "5002 manifests exceed the limit of 5000"},
	}
}

// maxHeap is the heap that the agent, with its test, may need beyond what it had. jq alone could
// have taken gigabytes.
const maxHeap = 512 << 20

// TestBudgets has one agent apply a work over each budget: a condition says so, at its manifest. The
// manifest beside it is applied, another work goes on, and memory stays bounded. It is not parallel to
// other tests, because it looks at the heap.
func TestBudgets(t *testing.T) {
	w := newSerialWorld(t)
	raw := w.rawSource("hub1")
	raw.send(raw.spec("other", "uid-other", 1, configMap("other", "1")), nil)
	w.data("other", "1")
	peak := watchHeap(t)
	all := attacks()
	for name, a := range all {
		fine := configMap("fine-"+name, "1")
		spec := raw.spec(name, types.UID(name), 1, strings.ReplaceAll(a.manifest, "OBJECT", "big-"+name), fine)
		if a.inWork {
			raw.send(raw.spec(name, types.UID(name), 1, configMap("before", "1"), fine), nil)
			spec = raw.spec(name, types.UID(name), 2)
		}
		var data []byte
		if a.inWork {
			data = many(t, w, spec)
		}
		if a.config != "" {
			work := &workv1.ManifestWorkSpec{Workload: w.work("", strings.ReplaceAll(a.manifest, "OBJECT", "big-"+name), fine).Spec.Workload}
			w.options(work, "- resourceIdentifier: {resource: configmaps, namespace: NAMESPACE, name: big-"+name+"}\n  "+a.config+"\n")
			spec.Bundle = wire.NewBundle(work)
		}
		raw.send(spec, data)
	}
	for name, a := range all {
		raw.showsBudget(name, a)
		w.data("fine-"+name, "1")
	}
	raw.send(raw.spec("other", "uid-other", 2, configMap("other", "2")), nil)
	w.data("other", "2")
	w.data("before", "1")
	if grown := peak(); grown > maxHeap {
		t.Errorf("the heap has grown by %d MB, at most %d are allowed", grown>>20, maxHeap>>20)
	} else {
		t.Logf("the heap has grown by %d MB", grown>>20)
	}
}

// many returns the data of a spec with more manifests than are allowed.
func many(t *testing.T, w *fixture, spec *wire.Spec) []byte {
	t.Helper()
	manifest := w.work("", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: NAMESPACE}}").Spec.Workload.Manifests[0]
	work := &workv1.ManifestWorkSpec{}
	for range 5002 {
		work.Workload.Manifests = append(work.Workload.Manifests, manifest)
	}
	data, err := json.Marshal(wire.NewBundle(work))
	kit.NoError(t, err)
	return data
}

// showsBudget waits until the first manifest of a work, or the work, shows the condition of an attack,
// and the second manifest is applied.
func (r *rawSource) showsBudget(name string, a attack) {
	r.Helper()
	kit.Eventually(r, name+" shows that it is over a budget", func() error {
		last := r.last(name).Status
		conditions, manifests := last.Conditions, last.ResourceStatus.Manifests
		if len(manifests) != 2 {
			return fmt.Errorf("it has %d manifests", len(manifests))
		}
		if !a.inWork {
			conditions = manifests[0].Conditions
		}
		switch c := meta.FindStatusCondition(conditions, a.kind); {
		case c == nil || c.Reason != a.reason || !strings.Contains(c.Message, a.message):
			return fmt.Errorf("%s is %.300v", a.kind, c)
		case !meta.IsStatusConditionTrue(manifests[1].Conditions, workv1.ManifestApplied):
			return errors.New("the manifest beside it is not applied")
		}
		return nil
	})
}

// watchHeap returns a function that returns how much the heap had grown at most since now.
func watchHeap(t *testing.T) func() uint64 {
	t.Helper()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before, most := heap(), uint64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				most = max(most, heap())
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-done
		return max(most, before) - before
	}
}

// TestErrorsHoldNoSecret has rules that fail over the password of a Secret: statuses and log have the
// failures, and nothing of the password.
func TestErrorsHoldNoSecret(t *testing.T) {
	w := newWorld(t)
	const password = "hunter2-of-rules"
	encoded := base64.StdEncoding.EncodeToString([]byte(password))
	_, err := w.cluster.CoreV1().Secrets(w.namespace).Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, StringData: map[string]string{"password": password},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	log := &kit.Log{}
	raw := w.rawSource("hub1", func(c *agent.Config) { c.Logger = log.Logger() })
	expressions := []string{
		"int(object.data.password) == 1", "object.data[object.data.password] == ''", "ip(object.data.password) == ip('::1')",
		"url(object.data.password) == url('/')", "'a'.matches('(' + object.data.password)", "duration(object.data.password) == duration('1s')",
		"[?object.data.password] == []", "quantity(object.data.password) == quantity('1')", "object.data.password",
	}
	var rules []string
	for i, expression := range expressions {
		rules = append(rules, fmt.Sprintf("{type: CEL, condition: C%d, celExpressions: [%q]}", i, expression),
			fmt.Sprintf("{type: CEL, condition: M%d, messageExpression: %q}", i, "string("+expression+") + 1"))
	}
	work := w.work("", "{apiVersion: v1, kind: Secret, metadata: {name: foreign, namespace: NAMESPACE}}",
		"{apiVersion: v1, kind: Secret, metadata: {name: own, namespace: NAMESPACE}, stringData: {password: "+password+"}}")
	w.options(&work.Spec, "- resourceIdentifier: {resource: secrets, namespace: NAMESPACE, name: foreign}\n"+
		"  updateStrategy: {type: ReadOnly}\n  conditionRules: ["+strings.Join(rules, ", ")+"]\n"+
		"- resourceIdentifier: {resource: secrets, namespace: NAMESPACE, name: own}\n"+
		`  updateStrategy: {type: ServerSideApply, serverSideApply: {ignoreFields: [{jqPathExpressions: [".stringData.password | tonumber | select(. == 1)"]}]}}`+"\n")
	spec := raw.spec("spy", "uid-spy", 1)
	spec.Bundle = wire.NewBundle(&work.Spec)
	raw.send(spec, nil)
	want := []string{fmt.Sprintf("C%d=False", len(expressions)-1), "C0=False", "C1=False", "C2=False", "C3=False", "C4=False", "C5=False", "C6=False", "C7=False"}
	raw.shows(1, 0, "", want...)
	kit.Eventually(t, "the jq expression fails", func() error {
		if manifests := raw.last("uid-spy").Status.ResourceStatus.Manifests; !meta.IsStatusConditionFalse(manifests[1].Conditions, workv1.ManifestApplied) {
			return fmt.Errorf("%+v", manifests[1].Conditions)
		}
		return nil
	})
	for place, text := range map[string]string{"log": log.String(), "status": asJSON(w, raw.last("uid-spy"))} {
		for _, part := range []string{password, encoded, encoded[:12], "hunter2"} {
			if strings.Contains(text, part) {
				t.Errorf("%q is in the %s: %s", part, place, text)
			}
		}
	}
}

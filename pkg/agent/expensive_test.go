package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestExpensiveExpressions: beside works with the most expensive expressions, cheap ones of the same and of another
// source are applied, and who wrote the expensive ones is told. What they cost others is measured by test/hostile.
func TestExpensiveExpressions(t *testing.T) {
	const hostile = 6
	w := newWorld(t)
	w.Topics = wire.Topics{
		SourceEvents: "sources/+/clusters/+/sourceevents", AgentEvents: "sources/+/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
	raw := w.rawExpensiveSource()
	other := w.source("hub2")
	for i := range hostile {
		name := fmt.Sprintf("hostile-%d", i)
		spec := raw.spec(name, types.UID(name), 1)
		spec.Bundle = wire.NewBundle(w.expensive(name, i))
		raw.send(spec, nil)
	}
	w.deploy(other, "other", configMap("other", "0"))
	raw.send(raw.spec("same", "uid-same", 1, configMap("same", "0")), nil)
	w.data("same", "0")
	raw.dryRunWaits()
	kit.Eventually(t, "an expensive work says that it is", func() error {
		for i := range hostile {
			for _, m := range raw.last(fmt.Sprintf("hostile-%d", i)).Status.ResourceStatus.Manifests {
				for _, c := range m.Conditions {
					if strings.Contains(c.Message, "cost too much together") || strings.Contains(c.Message, "it takes too many steps") { // where the time ends first
						return nil
					}
				}
			}
		}
		return fmt.Errorf("none does")
	})
}

// dryRunWaits asks for dry runs with expensive expressions until one is told to come again.
func (r *rawSource) dryRunWaits() {
	r.Helper()
	asked := 0
	kit.Eventually(r, "a dry run is told to come again", func() error {
		asked++
		id := fmt.Sprintf("dry-%d", asked)
		r.peer.Publish(r, r.topic, &wire.DryRun{ID: id, Source: "hub1", Cluster: cluster, Work: "dry", Bundle: wire.NewBundle(r.expensive("dry", 0))}, nil)
		answer := wirekit.Next(r, r.peer, "answer "+id, func(a *wire.DryRunAnswer) bool { return a.ID == id })
		if !strings.Contains(answer.Failure, "try again in ") {
			return fmt.Errorf("it is told %q", answer.Failure)
		}
		return nil
	})
}

// rawExpensiveSource is rawSource of an agent of several sources, which asks all of them at once.
func (w *fixture) rawExpensiveSource() *rawSource {
	w.Helper()
	raw := &rawSource{
		fixture: w, topic: fmt.Sprintf("sources/hub1/clusters/%s/sourceevents", cluster),
		peer: wirekit.Connect(w, w.Memory.Client("hub1"), "sources/hub1/clusters/+/agentevents", "clusters/+/agentbroadcast"),
	}
	w.agent()
	wirekit.Next(w, raw.peer, "the agent asks for specs", func(*wire.SpecResync) bool { return true })
	return raw
}

// expensive returns a work with the most expensive expressions, of jq, JSONPath or CEL by i.
func (w *fixture) expensive(name string, i int) *workv1.ManifestWorkSpec {
	w.Helper()
	var keys []string
	for k := range 500 {
		keys = append(keys, fmt.Sprintf("k%d: x", k))
	}
	const objects = 4
	var manifests []string
	config := ""
	for o := range objects {
		manifests = append(manifests, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s-%d, namespace: NAMESPACE}, data: {%s}}",
			name, o, strings.Join(keys, ", ")))
		config += fmt.Sprintf("- resourceIdentifier: {resource: configmaps, namespace: NAMESPACE, name: %s-%d}\n  ", name, o)
		switch i % 3 {
		case 0:
			config += `updateStrategy: {type: ServerSideApply, serverSideApply: {ignoreFields: [{jqPathExpressions: [` +
				`".. as $a | .. as $b | select($a == $b) | .data?", "..|..|..|..", "..|tostring|tostring|tostring|select(test(\".*x.*y\"))"]}]}}` + "\n"
		case 1:
			path := "['data'" + strings.Repeat(",'data'", 400) + "]..k1"
			config += fmt.Sprintf("feedbackRules: [{type: JSONPaths, jsonPaths: [{name: a, path: %q}, {name: b, path: %q}]}]\n", path, path+"0")
		default:
			var rules []string
			for r := range 10 {
				rules = append(rules, fmt.Sprintf(`{type: CEL, condition: C%d, celExpressions: ["object.data.all(a, object.data.all(b, a != b || %d > 0 || true))"]}`, r, i))
			}
			config += "conditionRules: [" + strings.Join(rules, ", ") + "]\n"
		}
	}
	spec := &workv1.ManifestWorkSpec{Workload: w.work("", manifests...).Spec.Workload}
	w.options(spec, config)
	return spec
}

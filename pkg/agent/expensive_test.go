package agent_test

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestExpensiveExpressions has the author of 100 works use the most expensive expressions. A work of another source is
// changed about as quickly as beside 100 works with the same objects and without expressions, which have to be written
// as well; and cheap ones of the same source too. The agent needs little memory.
func TestExpensiveExpressions(t *testing.T) {
	const hostile, rounds = 100, 40
	w := newSerialWorld(t)
	w.topics = wire.Topics{
		SourceEvents: "sources/+/clusters/+/sourceevents", AgentEvents: "sources/+/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
	raw := w.rawExpensiveSource()
	other := w.source("hub2")
	w.deploy(other, "other", configMap("other", "0"))
	raw.send(raw.spec("same", "uid-same", 1, configMap("same", "0")), nil)
	w.data("same", "0")
	generation := wire.Generation(1)
	measure := func(value string) (p99, p99Same time.Duration) {
		var took, same []time.Duration
		for i := range rounds {
			text := fmt.Sprint(value, i)
			start := time.Now()
			w.change(other, "other", configMap("other", text))
			w.data("other", text)
			took = append(took, time.Since(start))
			start = time.Now()
			generation++
			raw.send(raw.spec("same", "uid-same", generation, configMap("same", text)), nil)
			w.data("same", text)
			same = append(same, time.Since(start))
		}
		slices.Sort(took)
		slices.Sort(same)
		return took[len(took)*99/100], same[len(same)*99/100]
	}
	var plain, specs [hostile]*wire.Spec
	for i := range specs {
		for prefix, all := range map[string]*[hostile]*wire.Spec{"plain": &plain, "hostile": &specs} {
			name := fmt.Sprintf("%s-%d", prefix, i)
			work := w.expensive(name, i)
			if all == &plain {
				work.ManifestConfigs = nil
			}
			all[i] = raw.spec(name, types.UID(name), 1)
			all[i].Bundle = wire.NewBundle(work)
		}
	}
	for _, spec := range plain {
		raw.send(spec, nil)
	}
	quiet, quietSame := measure("quiet-")
	limit, limitSame := max(3*quiet, 250*time.Millisecond), max(3*quietSame, time.Second)
	defer debug.SetGCPercent(debug.SetGCPercent(25)) // of the heap, little is to be garbage
	peak := watchHeap(t)
	var loaded, loadedSame time.Duration
	for again := range wire.Generation(2) { // once more if the machine was busy with other things
		for _, spec := range specs {
			spec.Generation = 1 + again
			raw.send(spec, nil)
		}
		if loaded, loadedSame = measure(fmt.Sprintf("loaded-%d-", again)); loaded <= limit && loadedSame <= limitSame {
			break
		}
	}
	grown := peak()
	t.Logf("99th percentile beside plain works %v, beside expensive ones %v; of the same source %v and %v; the heap has grown by %d MB", quiet, loaded, quietSame, loadedSame, grown>>20)
	if loaded > limit {
		t.Errorf("a work of another source took %v, at most %v is allowed", loaded, limit)
	}
	if loadedSame > limitSame {
		t.Errorf("a work of the same source took %v, at most %v is allowed", loadedSame, limitSame)
	}
	if grown > 64<<20 {
		t.Errorf("the heap has grown by %d MB, at most 64 are allowed", grown>>20)
	}
	raw.dryRunWaits()
	kit.Eventually(t, "an expensive work says that it is", func() error {
		for i := range hostile {
			for _, m := range raw.last(fmt.Sprintf("hostile-%d", i)).Status.ResourceStatus.Manifests {
				for _, c := range m.Conditions {
					if strings.Contains(c.Message, "cost too much together") {
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
func (w *world) rawExpensiveSource() *rawSource {
	w.Helper()
	raw := &rawSource{
		world: w, topic: fmt.Sprintf("sources/hub1/clusters/%s/sourceevents", cluster),
		peer: wirekit.Connect(w, w.broker.Client("hub1"), "sources/hub1/clusters/+/agentevents", "clusters/+/agentbroadcast"),
	}
	w.agent()
	wirekit.Next(w, raw.peer, "the agent asks for specs", func(*wire.SpecResync) bool { return true })
	return raw
}

// expensive returns a work with the most expensive expressions, of jq, JSONPath or CEL by i.
func (w *world) expensive(name string, i int) *workv1.ManifestWorkSpec {
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

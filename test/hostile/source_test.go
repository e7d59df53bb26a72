package hostile

import (
	"fmt"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/test/kit/wirekit"
)

// attackAgent sends n events of the hostile source to the agent, which serves it and the hub.
func attackAgent(t *testing.T, n int, event func(w *world, i int) cloudevents.Event) {
	w := newWorld(t, 0)
	tr := w.connect(string(w.rogue))
	w.suffer(w.inPeace(w.agent), attack{t.Name(), sending(w, tr, w.toAgent(), n, event)})
}

// TestSourceAsksInFewBytes: questions and specs with 349,000 entries each.
func TestSourceAsksInFewBytes(t *testing.T) {
	hashes, buckets := wirekit.Compressed(list(`{"statusHashes":[`, `{}`, `]}`)), wirekit.Compressed(list(`{"buckets":{"count":1,"indices":[0]},"statusHashes":[`, `{}`, `]}`))
	manifests, configs := wirekit.Compressed(list(`{"manifests":[`, `{}`, `]}`)), wirekit.Compressed(list(`{"manifests":[{}],"manifestConfigs":[`, `{}`, `]}`))
	attackAgent(t, 400, func(w *world, i int) cloudevents.Event {
		work := types.UID(fmt.Sprintf("w%d", i))
		switch i % 4 {
		case 0:
			return w.fromSource(manifestBundles+"status.resync_request", "", hashes)
		case 1:
			return w.fromSource(manifestBundles+"status.resync_request", "", buckets)
		case 2:
			return w.fromSource(manifestBundles+"spec.create_request", work, manifests)
		default:
			return w.fromSource(manifestBundles+"spec.create_request", work, configs)
		}
	})
}

// TestSourceExpressions: works whose paths and rules cost as much as they may.
func TestSourceExpressions(t *testing.T) {
	const works, objects = 100, 20
	var keys []string
	for i := range 150 { // more would use up what a single expression may take, and end the others
		keys = append(keys, fmt.Sprintf(`"k%d":"v%d"`, i, i))
	}
	data := strings.Join(keys, ",")
	repeated := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	var paths []string
	for i := range 24 {
		paths = append(paths, fmt.Sprintf(`".. as $a | .. as $b | select($a == %d and $b == 1)"`, i))
	}
	values := repeated(64, `{"name":"v","path":"..data..x"}`)
	rules := repeated(8, `{"condition":"Slow","type":"CEL","celExpressions":["object.data.all(a, object.data.all(b, object.data[a] != 'x' && b != 'y'))"]}`)
	attackAgent(t, 2*works, func(w *world, i int) cloudevents.Event {
		var manifests []string
		for n := range objects {
			manifests = append(manifests, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"slow-%d-%d","namespace":%q},"data":{"generation":"%d",%s}}`,
				i%works, n, w.Targets[honest], i/works, data))
		}
		config := fmt.Sprintf(`{"resourceIdentifier":{"resource":"configmaps","name":"*","namespace":"*"},`+
			`"updateStrategy":{"type":"ServerSideApply","serverSideApply":{"ignoreFields":[{"condition":"OnSpokePresent","jqPathExpressions":[%s]}]}},`+
			`"feedbackScrapeType":"Watch","feedbackRules":[{"type":"JSONPaths","jsonPaths":[%s]}],"conditionRules":[%s]}`, strings.Join(paths, ","), values, rules)
		e := w.fromSource(manifestBundles+"spec.update_request", types.UID(fmt.Sprintf("slow-%d", i%works)),
			wirekit.Compressed(fmt.Sprintf(`{"manifests":[%s],"manifestConfigs":[%s]}`, strings.Join(manifests, ","), config)))
		e.SetExtension("resourceversion", fmt.Sprint(1+i/works))
		return e
	})
}

// TestSourceFillsTheLogs: messages that are refused, and deletions of works that nobody has.
func TestSourceFillsTheLogs(t *testing.T) {
	attackAgent(t, 1_500, func(w *world, i int) cloudevents.Event {
		work := types.UID(fmt.Sprintf("w%d-%s", i, strings.Repeat("a", 5_000)))
		switch i % 3 {
		case 0:
			return w.fromSource(manifestBundles+"spec.create_request", work, []byte(`{"manifests":[`))
		case 1:
			e := w.fromSource(manifestBundles+"spec.delete_request", work, nil)
			e.SetExtension("deletiontimestamp", "2026-01-01T00:00:00Z")
			return e
		default:
			e := w.fromSource(manifestBundles+"spec.create_request", work, []byte(`{"manifests":[{}]}`))
			e.SetExtension("clustername", string(w.evil))
			return e
		}
	})
}

package hostile

import (
	"fmt"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/test/kit/wirekit"
)

// attackHub sends n events of the hostile cluster to the hub, which it has works of.
func attackHub(t *testing.T, works, n int, event func(w *world, i int) cloudevents.Event) {
	w := newWorld(t, works)
	tr := w.connect(string(w.evil))
	w.suffer(w.inPeace(w.hub), attack{t.Name(), sending(w, tr, w.toHub(), n, event)})
}

// TestClusterAsksInFewBytes: 149 bytes are 349,000 entries of a question.
func TestClusterAsksInFewBytes(t *testing.T) {
	questions := [][]byte{
		wirekit.Compressed(list(`{"partial":true,"resourceVersions":[`, `{}`, `]}`)), wirekit.Compressed(list(`{"resourceVersions":[`, `{}`, `]}`)),
	}
	attackHub(t, 1, 400, func(w *world, i int) cloudevents.Event {
		return w.fromCluster(manifestBundles+"spec.resync_request", "", i, questions[i/200%2])
	})
}

// TestClusterReportsEmptyItems: a status of the same kind.
func TestClusterReportsEmptyItems(t *testing.T) {
	status := wirekit.Compressed(list(`{"resourceStatus":[`, `{}`, `]}`))
	attackHub(t, 20, 100, func(w *world, i int) cloudevents.Event {
		return w.fromCluster(manifestBundles+"status.update_request", w.mine[i%len(w.mine)].UID, i, status)
	})
}

// TestClusterNamesWithoutEnd: ids and names of a megabyte, which a source would have to remember.
func TestClusterNamesWithoutEnd(t *testing.T) {
	long := strings.Repeat("a", most-200)
	attackHub(t, 1, 600, func(w *world, i int) cloudevents.Event {
		if i%6 == 5 {
			e := w.fromCluster(manifestBundles+"status.update_request", types.UID(fmt.Sprintf("unknown-%d-%s", i, long[:20_000])), i,
				wirekit.Compressed(fmt.Sprintf(`{"conditions":[{"type":"DeletionHeld","status":"True","reason":"R","message":"%s"}]}`, long[:500_000])))
			e.SetExtension("metadata", fmt.Sprintf(`{"name":"%s","namespace":"n"}`, long[:20_000]))
			return e
		}
		return w.fromCluster(manifestBundles+"spec.resync_request", "", i,
			wirekit.Compressed(fmt.Sprintf(`{"resourceVersions":[{"resourceID":"%d-%s","resourceVersion":1}],"partial":%v}`, i, long, i%2 == 0)))
	})
}

// TestClusterFillsTheStore: statuses of a megabyte, each of which the API would store.
func TestClusterFillsTheStore(t *testing.T) {
	attackHub(t, 30, 300, func(w *world, i int) cloudevents.Event {
		var conditions []string
		for c := range 31 {
			conditions = append(conditions, fmt.Sprintf(`{"type":"C%d","status":"True","reason":"R","lastTransitionTime":"2026-01-01T00:00:00Z","message":"%d%s"}`,
				c, i, strings.Repeat("a", 32_700)))
		}
		return w.fromCluster(manifestBundles+"status.update_request", w.mine[i%len(w.mine)].UID, i,
			wirekit.Compressed(`{"conditions":[`+strings.Join(conditions, ",")+`]}`))
	})
}

// TestClusterFillsTheLogs: messages that are refused, with long texts that somebody may want to read, and unknown
// works whose deletion is published.
func TestClusterFillsTheLogs(t *testing.T) {
	long := strings.Repeat("a", 25_000)
	attackHub(t, 1, 1_500, func(w *world, i int) cloudevents.Event {
		status := func(uid types.UID) cloudevents.Event {
			return w.fromCluster(manifestBundles+"status.update_request", uid, i, []byte(`{"conditions":[]}`))
		}
		switch i % 4 {
		case 0:
			var versions []string
			for v := range 600 {
				versions = append(versions, fmt.Sprintf(`{"resourceID":"5f3c6c1e-%06d-%06d-aaaaaaaaaaaaaaaaaa","resourceVersion":1}`, i, v))
			}
			return w.fromCluster(manifestBundles+"spec.resync_request", "", i,
				wirekit.Compressed(`{"resourceVersions":[`+strings.Join(versions, ",")+`],"partial":true}`))
		case 1:
			e := status(types.UID(long))
			e.SetExtension("metadata", fmt.Sprintf(`{"name":"%s"}`, long))
			return e
		case 2:
			e := status(w.mine[0].UID)
			e.SetExtension("resourceversion", long)
			return e
		default:
			e := status(w.mine[0].UID)
			e.SetExtension("clustername", string(w.neighbour))
			return e
		}
	})
}

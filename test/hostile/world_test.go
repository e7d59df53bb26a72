package hostile

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/wirekit"
	kitworld "github.com/workwire/workwire/test/kit/world"
)

// The clusters of a world: an honest one, and the hostile one.
const honest, hostile = 0, 1

// world has a hub, a broker and the agent of an honest cluster, as processes. A second cluster, accepted, and a second
// source, which the agent serves, are the attackers. One goroutine at a time may use it, except send.
type world struct {
	*kitworld.Processes
	rogue           wire.SourceID    // the hostile source
	neighbour, evil wire.ClusterName // the honest cluster; the hostile one
	hub, agent      *process.Process
	others          *probe
	mine            []*workv1.ManifestWork // works of the hostile cluster
}

// newWorld starts everything, with works of the hostile cluster. The end of the test stops it and deletes the works.
func newWorld(t *testing.T, works int) *world {
	t.Helper()
	given := kitworld.New(t, kitworld.Options{Hub: hubPlane, Spokes: []*controlplane.Plane{spokePlane, spokePlane}})
	t.Cleanup(func() { forget(given) })
	w := &world{Processes: given.Processes(*programs), rogue: given.Other, neighbour: given.Clusters[honest], evil: given.Clusters[hostile]}
	for _, cluster := range w.Clusters {
		_, err := w.Client().ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: string(cluster)}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}, metav1.CreateOptions{})
		kit.NoError(t, err)
	}
	w.StartBroker(w.rogue)
	w.hub = w.StartHub("hub", w.audited("hub"))
	w.agent = w.startAgent(honest)
	for i := range works {
		w.mine = append(w.mine, w.create(hostile, fmt.Sprintf("mine-%d", i)))
	}
	w.others = newProbe(w)
	return w
}

func (w *world) audited(name string) string {
	return "--audit-log=" + filepath.Join(w.Dir, name+"-audit.log")
}

func (w *world) startAgent(i int) *process.Process {
	w.Helper()
	name := "agent-of-" + string(w.Clusters[i])
	return w.StartAgent(i, name, w.audited(name))
}

// forget deletes the works and clusters, which the next world has nothing to do with.
func forget(w *kitworld.World) {
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	for i, cluster := range w.Clusters {
		works := w.Works(i)
		list, err := works.List(ctx, metav1.ListOptions{})
		if err != nil {
			w.Error(err)
			continue
		}
		for _, work := range list.Items {
			_, _ = works.Patch(ctx, work.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		if err := works.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			w.Error(err)
		}
		_ = w.Client().ClusterV1().ManagedClusters().Delete(ctx, string(cluster), metav1.DeleteOptions{})
	}
}

// create creates a work with a ConfigMap of the same name.
func (w *world) create(cluster int, name string) *workv1.ManifestWork {
	w.Helper()
	return w.Create(w.Works(cluster), w.Work(cluster, name, "0", name))
}

// applied reports whether the status of work says that its agent has applied the latest generation.
func applied(work *workv1.ManifestWork) bool {
	c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == work.Generation
}

// connect connects with the credentials of user until the end of the test.
func (w *world) connect(user string) transport.Transport {
	w.Helper()
	tr := w.Transport(user, user+"-intruder", w.Topics, slog.New(slog.DiscardHandler))
	wirekit.Connect(w, tr)
	return tr
}

// toHub and toAgent are the topics on which the hostile cluster speaks to the hub, and the hostile source to the agent.
func (w *world) toHub() string {
	return fmt.Sprintf("sources/%s/clusters/%s/agentevents", w.Source, w.evil)
}

func (w *world) toAgent() string {
	return fmt.Sprintf("sources/%s/clusters/%s/sourceevents", w.rogue, w.neighbour)
}

// send publishes events, 8 at a time.
func send(ctx context.Context, tr transport.Transport, topic string, events []cloudevents.Event) error {
	var next atomic.Int64
	var sending sync.WaitGroup
	failed := make(chan error, 8)
	for range 8 {
		sending.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(events); i = int(next.Add(1)) - 1 {
				if err := tr.Publish(ctx, topic, events[i]); err != nil {
					failed <- fmt.Errorf("event %d: %w", i, err)
					return
				}
			}
		})
	}
	sending.Wait()
	close(failed)
	return <-failed
}

// sending prepares n events for each attempt, and sends them.
func sending(w *world, tr transport.Transport, topic string, n int, event func(w *world, i int) cloudevents.Event) func(attempt int) func(context.Context) error {
	return func(attempt int) func(context.Context) error {
		events := make([]cloudevents.Event, n)
		for i := range events {
			events[i] = event(w, attempt*n+i)
		}
		return func(ctx context.Context) error { return send(ctx, tr, topic, events) }
	}
}

const manifestBundles = "io.open-cluster-management.works.v1alpha1.manifestbundles."

// fromCluster returns an event of the hostile cluster, about a work.
func (w *world) fromCluster(eventType string, uid types.UID, sequence int, data []byte) cloudevents.Event {
	return event(eventType, string(w.evil)+"-agent", data, map[string]string{
		"resourceid": string(uid), "resourceversion": "1", "clustername": string(w.evil), "originalsource": string(w.Source),
		"sequenceid": fmt.Sprint(sequenceAt(time.Now()) + int64(sequence)), "statushash": fmt.Sprintf("%064x", sequence),
	})
}

// fromSource returns an event of the hostile source, about a work.
func (w *world) fromSource(eventType string, uid types.UID, data []byte) cloudevents.Event {
	return event(eventType, string(w.rogue), data, map[string]string{
		"resourceid": string(uid), "resourceversion": "1", "clustername": string(w.neighbour), "originalsource": "",
		"metadata": fmt.Sprintf(`{"name":%q,"namespace":%q,"uid":%q}`, uid, w.neighbour, uid),
	})
}

// sequenceAt returns the first sequence id of a time.
func sequenceAt(at time.Time) int64 {
	var s wire.Sequence
	return int64(s.Next(at))
}

func event(eventType, sender string, data []byte, extensions map[string]string) cloudevents.Event {
	e := cloudevents.New()
	e.SetID(kit.Unique("e"))
	e.SetType(eventType)
	e.SetSource(sender)
	e.SetTime(time.Now())
	for name, value := range extensions {
		e.SetExtension(name, value)
	}
	if data != nil {
		_ = e.SetData("application/json", data) // bytes are taken as they are
	}
	return e
}

// most is what compressed data may have uncompressed.
const most = 1 << 20

// list returns before, as many copies of item as there is room for in compressed data, and after.
func list(before, item, after string) string {
	n := (most - len(before) - len(after)) / (len(item) + 1)
	text := bytes.Repeat([]byte(item+","), n)
	return before + string(text[:len(text)-1]) + after
}

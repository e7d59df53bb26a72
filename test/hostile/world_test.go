package hostile

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokerkit"
	"github.com/workwire/workwire/test/kit/process"
)

// world has a hub, a broker and the agent of an honest cluster. A second cluster, accepted, and a second
// source, which the agent serves, are the attackers. One goroutine at a time may use it, except send.
type world struct {
	*testing.T
	source, rogue   wire.SourceID    // the hub; the hostile source
	neighbour, evil wire.ClusterName // the honest cluster; the hostile one
	target          string           // the namespace of objects on the cluster of the agent

	client     workclient.Interface
	dir        string
	broker     *brokerkit.Broker
	hub, agent *process.Process
	others     []*process.Process // further agents
	honest     *probe
	mine       []*workv1.ManifestWork // works of the hostile cluster
}

// newWorld starts everything, with works of the hostile cluster. The end of the test stops it and deletes the works.
func newWorld(t *testing.T, works int) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir(), source: wire.SourceID(kit.Unique("hub")), rogue: wire.SourceID(kit.Unique("rogue")),
		neighbour: wire.ClusterName(hubPlane.Namespace(t, "neighbour")), evil: wire.ClusterName(hubPlane.Namespace(t, "evil")),
		target: spokePlane.Namespace(t, "target"), client: workclient.NewForConfigOrDie(hubPlane.REST())}
	t.Cleanup(w.close)
	for _, cluster := range []wire.ClusterName{w.neighbour, w.evil} {
		_, err := w.client.ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: string(cluster)}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}, metav1.CreateOptions{})
		kit.NoError(t, err)
	}
	var err error
	w.broker, err = brokerkit.Start(t.Context(), brokerkit.Config{Dir: w.dir, Program: w.program("work-broker"), Source: w.source,
		Others: []wire.SourceID{w.rogue}, Clusters: []wire.ClusterName{w.neighbour, w.evil}})
	kit.NoError(t, err)
	w.hub = w.start("hub", "work-hub", string(w.source), hubPlane.Kubeconfig, "--source-id="+string(w.source))
	w.agent = w.startAgent(w.neighbour)
	for i := range works {
		w.mine = append(w.mine, w.create(w.evil, fmt.Sprintf("mine-%d", i)))
	}
	w.honest = newProbe(w)
	return w
}

func (w *world) program(name string) string { return filepath.Join(*programs, name) }

// start starts a hub or an agent as the user of the broker.
func (w *world) start(name, program, user, kubeconfig string, args ...string) *process.Process {
	w.Helper()
	file, err := w.broker.WriteTransport(user, w.broker.Addr)
	kit.NoError(w, err)
	p, err := process.Start(w.dir, name, append([]string{w.program(program), "--disable-leader-election", "--listen-address=127.0.0.1:0",
		"--kubeconfig=" + kubeconfig, "--transport-config=" + file, "--audit-log=" + filepath.Join(w.dir, name+"-audit.log")}, args...)...)
	kit.NoError(w, err)
	return p
}

func (w *world) startAgent(cluster wire.ClusterName) *process.Process {
	w.Helper()
	return w.start("agent-of-"+string(cluster), "work-agent", string(cluster), spokePlane.Kubeconfig,
		"--cluster-name="+string(cluster), "--agent-id="+string(cluster))
}

// alive fails the test when a program has ended by itself.
func (w *world) alive() {
	w.Helper()
	for _, p := range append([]*process.Process{w.broker.Process, w.hub, w.agent}, w.others...) {
		kit.NoError(w, p.Died())
	}
}

// close stops the programs, shows the ends of their logs if the test has failed, and deletes the works, which
// the next world has nothing to do with.
func (w *world) close() {
	var running *process.Process
	if w.broker != nil {
		running = w.broker.Process
	}
	for _, p := range append(w.others, w.agent, w.hub, running) {
		if err := p.Stop(); err != nil {
			w.Error(err)
		}
		if p != nil && w.Failed() {
			text, _ := os.ReadFile(p.Log)
			text = text[max(0, len(text)-4_000):]
			w.Logf("the end of the log of %s:\n%s", p.Name, bytes.ToValidUTF8(text, nil))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	for _, cluster := range []wire.ClusterName{w.neighbour, w.evil} {
		works := w.works(cluster)
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
		_ = w.client.ClusterV1().ManagedClusters().Delete(ctx, string(cluster), metav1.DeleteOptions{})
	}
}

func (w *world) works(cluster wire.ClusterName) workclientv1.ManifestWorkInterface {
	return w.client.WorkV1().ManifestWorks(string(cluster))
}

// create creates a work with a ConfigMap of the same name.
func (w *world) create(cluster wire.ClusterName, name string) *workv1.ManifestWork {
	w.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(w.configMap(string(cluster)+"-"+name, "0"))}}}
	work, err := w.works(cluster).Create(w.Context(), work, metav1.CreateOptions{})
	kit.NoError(w, err)
	return work
}

// configMap returns a manifest.
func (w *world) configMap(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"k":%q}}`, name, w.target, value)
}

// applied reports whether the status of work says that its agent has applied the latest generation.
func applied(work *workv1.ManifestWork) bool {
	c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == work.Generation
}

// connect connects with the credentials of user until the end of the test.
func (w *world) connect(user string) transport.Transport {
	w.Helper()
	return w.join(user+"-intruder", user, func(transport.Message) {})
}

// join is connect with subscriptions.
func (w *world) join(clientID, user string, received func(transport.Message), subscriptions ...string) transport.Transport {
	w.Helper()
	tr, err := mqtt.New(mqtt.Config{Broker: w.broker.Transport(user), ClientID: clientID, Logger: slog.New(slog.DiscardHandler)})
	kit.NoError(w, err)
	connected := make(chan struct{})
	connect := sync.OnceFunc(func() { close(connected) })
	kit.Run(w, clientID, func(ctx context.Context) error {
		return tr.Run(ctx, transport.Handler{
			Subscriptions: subscriptions,
			Connected:     func(context.Context, transport.Connection) { connect() },
			Received: func(_ context.Context, m transport.Message) {
				received(m)
				m.Ack()
			},
		})
	})
	kit.Receive(w, clientID+" connects", connected)
	return tr
}

// toHub and toAgent are the topics on which the hostile cluster speaks to the hub, and the hostile source to the agent.
func (w *world) toHub() string {
	return fmt.Sprintf("sources/%s/clusters/%s/agentevents", w.source, w.evil)
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
		"resourceid": string(uid), "resourceversion": "1", "clustername": string(w.evil), "originalsource": string(w.source),
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

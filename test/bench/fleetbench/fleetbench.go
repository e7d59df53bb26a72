// Package fleetbench measures a whole fleet: replica sets of a real hub API reach the simulated agents
// of many clusters by a real hub and a real broker, from nothing, after a change, and after the
// death of the broker and of the hub.
package fleetbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/baseline"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/bench/subject"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/procs"
)

const source wire.SourceID = "hub1"

const (
	namespace = "fleet"   // of the replica sets
	limit     = time.Hour // of one measurement
)

// Options say what to measure. All are required.
type Options struct {
	Hub   string // program
	Sizes []int  // clusters
	Works int    // of each cluster: so many replica sets
}

// Names of the rows, after the size.
const (
	nothing = "from nothing"
	change  = "one template changed"
	beside  = "one work beside it, p99"
	brokers = "broker killed, one template changed"
	hubs    = "hub killed, one template changed"
	bytes   = "bytes of one template change"
	memory  = "memory of the hub"
	broker  = "memory of the broker"
	plane   = "memory of the control plane"
)

func name(size int, row string) string { return fmt.Sprintf("fleet of %d: %s", size, row) }

// Rows are the rows about fleets, in the order of the table.
func Rows(o Options) (rows []*report.Row) {
	for _, size := range o.Sizes {
		for _, row := range []struct{ name, target, unit string }{
			{nothing, fmt.Sprintf("%d works", size*o.Works), "s"},
			{change, fmt.Sprintf("%d works", size), "s"},
			{beside, "≤ 2 times that with nothing beside", "ms"},
			{bytes, "to agents and back", "KB a cluster"},
			{brokers, fmt.Sprintf("%d works", size), "s"},
			{hubs, fmt.Sprintf("%d works", size), "s"},
			{memory, fmt.Sprintf("%d works", size*o.Works), "MB"},
			{broker, fmt.Sprintf("%d connections", size+1), "MB"},
			{plane, fmt.Sprintf("%d works", size*o.Works), "MB"},
		} {
			r := &report.Row{Name: name(size, row.name), Target: row.target, Unit: row.unit}
			if row.name == beside {
				most := 2.0
				r.Ratio, r.Most = true, &most
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// world is a fleet.
type world struct {
	subject.Subject
	Options
	size     int
	client   versioned.Interface
	fleet    *events.Fleet
	clusters []wire.ClusterName
	version  int // of the templates
}

// Run measures the rows of board that are about fleets. Each size has surroundings of its own.
func Run(ctx context.Context, c subject.Config, o Options, board *report.Board) error {
	for _, size := range o.Sizes {
		if !board.Wants(name(size, nothing), name(size, change), name(size, beside), name(size, bytes), name(size, brokers), name(size, hubs), name(size, memory), name(size, broker), name(size, plane)) {
			continue
		}
		for run := range c.Runs {
			w := &world{Subject: subject.Subject{Config: c, Board: board}, Options: o, size: size}
			if err := w.run(ctx, run); err != nil {
				return fmt.Errorf("run %d of a fleet of %d: %w", run+1, size, err)
			}
		}
	}
	return nil
}

func (w *world) run(ctx context.Context, run int) (err error) {
	defer func() { err = errors.Join(err, w.fleet.Close(), w.Stop(), w.Close()) }()
	if err := w.setUp(ctx); err != nil {
		return err
	}
	for _, part := range []struct {
		row     string
		measure func(context.Context) error
	}{{nothing, w.fromNothing}, {change, w.change}, {brokers, w.brokerKilled}, {hubs, w.hubKilled}} {
		before, err := w.Cost(ctx)
		if err != nil {
			return err
		}
		traffic := w.traffic()
		start := time.Now()
		if err := part.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.row, errors.Join(err, w.Program.Died()))
		}
		took := time.Since(start)
		after, err := w.Cost(ctx)
		if err != nil {
			return err
		}
		spent := after.Since(before)
		detail := spent.Detail("hub")
		detail["everybody"] = spent.Served
		// What was killed has taken its CPU time with it.
		switch part.row {
		case brokers:
			delete(detail, "brokerCPUSeconds")
		case hubs:
			delete(detail, "hubCPUSeconds")
		}
		for what, n := range w.traffic() {
			detail[what] = n - traffic[what]
		}
		w.add(part.row, took.Seconds(), detail)
		w.Progress("run %d: %s: %.1f s", run+1, name(w.size, part.row), took.Seconds())
		if part.row == change {
			n := detail["receivedBytes"].(int64) + detail["sentBytes"].(int64)
			w.add(bytes, float64(n)/1000/float64(w.size), nil)
			if err := w.memory(); err != nil {
				return err
			}
			w.ProfileMemory(ctx, run, "fleet-hub")
			if err := w.besideRollout(ctx); err != nil {
				return fmt.Errorf("%s: %w", beside, err)
			}
		}
	}
	return nil
}

func (w *world) add(row string, measured float64, detail map[string]any) {
	w.Board.Add(name(w.size, row), report.Sample{Measured: measured, Detail: detail})
}

func (w *world) traffic() map[string]int64 {
	return map[string]int64{
		"receivedMessages": w.fleet.ReceivedMessages.Load(), "receivedBytes": w.fleet.ReceivedBytes.Load(),
		"sentMessages": w.fleet.SentMessages.Load(), "sentBytes": w.fleet.SentBytes.Load(),
	}
}

// memory reads the RSS of hub, broker and control plane.
func (w *world) memory() error {
	hub, err := procs.Of(w.Program.PID())
	if err != nil {
		return err
	}
	used, err := procs.Of(w.Broker.PID())
	if err != nil {
		return err
	}
	for row, u := range map[string]procs.Usage{memory: hub, broker: used, plane: w.Plane.Usage()} {
		w.add(row, float64(u.RSS)/1e6, map[string]any{"peakMB": float64(u.Peak) / 1e6})
	}
	return nil
}

// setUp starts the surroundings, the hub and the agents, and waits until all clusters are available.
func (w *world) setUp(ctx context.Context) (err error) {
	w.Progress("starting a hub, a broker and %d simulated agents", w.size)
	for i := range w.size {
		w.clusters = append(w.clusters, wire.ClusterName(fmt.Sprintf("cluster-%05d", i)))
	}
	if err := w.Start(ctx, controlplane.Hub, source, w.clusters...); err != nil {
		return err
	}
	if w.client, err = versioned.NewForConfig(w.Plane.REST()); err != nil {
		return err
	}
	if err := w.makeClusters(ctx); err != nil {
		return err
	}
	if err := w.Plane.AddFinalizers(ctx, namespace); err != nil { // as a hub is installed
		return err
	}
	if err := w.launch(ctx); err != nil {
		return err
	}
	if w.fleet, err = events.NewFleet(ctx, w.Broker.Transport, source, w.clusters); err != nil {
		return err
	}
	return procs.Poll(ctx, limit, "the Placement selects all clusters", func(ctx context.Context) error {
		placement, err := w.client.ClusterV1beta1().Placements(namespace).Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && int(placement.Status.NumberOfSelectedClusters) != w.size {
			err = fmt.Errorf("%d of %d", placement.Status.NumberOfSelectedClusters, w.size)
		}
		return errors.Join(err, procs.Pause(ctx, time.Second))
	})
}

// makeClusters makes the clusters and a Placement that selects all of them.
func (w *world) makeClusters(ctx context.Context) error {
	_, err := baseline.Each(w.size, func(i int) error {
		if err := w.Plane.Namespace(ctx, string(w.clusters[i])); err != nil {
			return err
		}
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: string(w.clusters[i])}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
		_, err := w.client.ClusterV1().ManagedClusters().Create(ctx, cluster, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Plane.Namespace(ctx, namespace); err != nil {
		return err
	}
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Name: clusterv1beta2.GlobalSet},
		Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: clusterv1beta2.GlobalSet}}
	if _, err := w.client.ClusterV1beta2().ManagedClusterSetBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = w.client.ClusterV1beta1().Placements(namespace).Create(ctx, &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	return err
}

func (w *world) launch(ctx context.Context) (err error) {
	w.Program, w.Listen, err = w.StartHub(ctx, w.Hub, source, "hub", "--disable-leader-election")
	return err
}

func set(i int) string { return fmt.Sprintf("set-%d", i) }

// template is the spec of the works of set i: two ConfigMaps.
func template(i, version int) (spec workv1.ManifestWorkSpec) {
	for j := range 2 {
		spec.Workload.Manifests = append(spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%d","namespace":"default"},"data":%s}`, set(i), j, baseline.Data(fmt.Sprint(version)))}})
	}
	return spec
}

// fromNothing makes the replica sets and waits until all clusters have reported all works.
func (w *world) fromNothing(ctx context.Context) error {
	for i := range w.Works {
		made := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: set(i)}}
		made.Spec.ManifestWorkTemplate = template(i, w.version)
		made.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: namespace}}
		if _, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(namespace).Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range w.Works {
		if err := w.rolledOut(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// changeTemplate changes the template of the first replica set.
func (w *world) changeTemplate(ctx context.Context) error {
	w.version++
	spec := template(0, w.version)
	patch := fmt.Appendf(nil, `{"spec":{"manifestWorkTemplate":{"workload":{"manifests":[%s,%s]}}}}`, spec.Workload.Manifests[0].Raw, spec.Workload.Manifests[1].Raw)
	_, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(namespace).Patch(ctx, set(0), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (w *world) change(ctx context.Context) error {
	if err := w.changeTemplate(ctx); err != nil {
		return err
	}
	return w.rolledOut(ctx, 0)
}

// brokerKilled kills the broker, starts it again, and changes a template meanwhile.
func (w *world) brokerKilled(ctx context.Context) error {
	if err := errors.Join(w.Broker.Kill(), w.changeTemplate(ctx), w.Broker.Start(ctx)); err != nil {
		return err
	}
	return w.rolledOut(ctx, 0)
}

// hubKilled kills the hub, starts it again, and changes a template meanwhile.
func (w *world) hubKilled(ctx context.Context) error {
	if err := errors.Join(w.Program.Kill(), w.changeTemplate(ctx), w.launch(ctx)); err != nil {
		return err
	}
	return w.rolledOut(ctx, 0)
}

// rolledOut waits until the newest template of set i is applied on all clusters, according to the hub.
func (w *world) rolledOut(ctx context.Context, i int) error {
	return procs.Poll(ctx, limit, set(i)+" has reached all clusters", func(ctx context.Context) error {
		s, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(namespace).Get(ctx, set(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != workv1alpha1.ReasonComplete || c.ObservedGeneration != s.Generation || s.Status.Summary.Applied != w.size {
			return errors.Join(fmt.Errorf("%d of %d works are applied: %+v", s.Status.Summary.Applied, w.size, c), w.Program.Died(), procs.Pause(ctx, 100*time.Millisecond))
		}
		return nil
	})
}

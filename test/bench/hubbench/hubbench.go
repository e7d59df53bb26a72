// Package hubbench measures a work-hub between a real API and a real broker. The agents are
// simulated: each has its own connection, receives its specs, and publishes the statuses that it is
// told to.
package hubbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/deploy/policies"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/baseline"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/plane"
	"github.com/workwire/workwire/test/bench/procs"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/bench/subject"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
)

const source wire.SourceID = "hub1"

// Options say what to measure. All are required.
type Options struct {
	Hub      string // program
	Works    int
	Clusters int
}

// Names of the rows.
const (
	published = "hub: works published"
	admitted  = "hub: works published, finalizer by policy"
	taken     = "hub: statuses received"
	asked     = "hub: API requests per work"
	memory    = "hub: memory"
	takeover  = "hub: takeover"
)

// Rows are the rows about hubs, in the order of the table.
func Rows(o Options) []*report.Row {
	half, most, two, six := 0.5, 0.6, 2.0, 6.0
	return []*report.Row{
		{Name: published, Target: "≥ 0.5 of the API's own creates", Unit: "works/s", Ratio: true, Least: &half},
		{Name: admitted, Target: "≥ 0.5 of the API's own creates", Unit: "works/s", Ratio: true, Least: &half},
		{Name: taken, Target: "≥ 0.6 of the API's own status patches", Unit: "statuses/s", Ratio: true, Least: &most},
		{Name: asked, Target: "2: finalizer and status", Most: &two},
		{Name: memory, Target: fmt.Sprintf("at %d works", o.Works), Unit: "MB"},
		{Name: takeover, Target: fmt.Sprintf("≤ 6 s at %d works", o.Works), Unit: "s", Most: &six},
	}
}

// world is what is measured, and what measures it.
type world struct {
	subject.Subject
	Options
	works    versioned.Interface
	agents   *events.Agents
	clusters []wire.ClusterName
}

// Run measures the rows of board that are about hubs.
func Run(ctx context.Context, c subject.Config, o Options, board *report.Board) (err error) {
	others := board.Wants(published, admitted, taken, asked, memory)
	if !others && !board.Wants(takeover) {
		return nil
	}
	w := &world{Subject: subject.Subject{Config: c, Board: board}, Options: o}
	for i := range o.Clusters {
		w.clusters = append(w.clusters, wire.ClusterName(fmt.Sprintf("cluster-%03d", i)))
	}
	defer func() { err = errors.Join(err, w.Stop(), w.agents.Close(), w.Close()) }()
	if err := w.setUp(ctx); err != nil {
		return err
	}
	for run := range c.Runs {
		if others {
			err = w.measure(ctx, run)
		}
		if err == nil && board.Wants(takeover) {
			err = w.measureTakeover(ctx, run)
		}
		if err != nil {
			return fmt.Errorf("run %d of the hub: %w", run+1, errors.Join(err, w.Program.Died()))
		}
	}
	return nil
}

func (w *world) setUp(ctx context.Context) (err error) {
	w.Progress("starting a hub API, a broker and %d simulated agents", w.Clusters)
	if err := w.Start(ctx, controlplane.Hub, source, w.clusters...); err != nil {
		return err
	}
	if w.works, err = versioned.NewForConfig(w.Plane.REST()); err != nil {
		return err
	}
	for _, cluster := range w.clusters {
		if err := w.Plane.Namespace(ctx, string(cluster)); err != nil {
			return err
		}
	}
	w.agents, err = events.NewAgents(ctx, w.Broker.Transport, source, w.clusters)
	return err
}

// measure creates works and reports on them: first with no hub, then with one.
func (w *world) measure(ctx context.Context, run int) error {
	create, patch, err := w.alone(ctx, run)
	if err != nil {
		return err
	}
	w.Progress("run %d: the hub API alone: %.0f creates/s, %.0f status patches/s", run+1, create, patch)
	if err := w.launch(ctx); err != nil {
		return err
	}
	before, err := w.Cost(ctx)
	if err != nil {
		return err
	}
	stop := w.profile(ctx, run, "hub-publish")
	rate, detail, err := w.publish(ctx, fmt.Sprintf("work-%d", run), before)
	if err != nil {
		return err
	}
	stop()
	middle, err := w.Cost(ctx)
	if err != nil {
		return err
	}
	w.Board.Add(published, report.Sample{Measured: rate, Baseline: create, Detail: detail})
	w.Progress("run %d: %s: %.0f/s", run+1, published, rate)

	stop = w.profile(ctx, run, "hub-intake")
	start := time.Now()
	if err := w.agents.Report(ctx); err != nil {
		return err
	}
	sent := time.Since(start)
	if err := w.stored(ctx, w.Works); err != nil {
		return err
	}
	all := time.Since(start)
	stop()
	if err := w.verify(ctx); err != nil {
		return err
	}
	after, err := w.Cost(ctx)
	if err != nil {
		return err
	}
	detail = after.Since(middle).Detail("hub")
	detail["sentSeconds"], detail["storedSeconds"] = sent.Seconds(), all.Seconds()
	rate = float64(w.Works) / all.Seconds()
	w.Board.Add(taken, report.Sample{Measured: rate, Baseline: patch, Detail: detail})
	spent := after.Since(before)
	w.Board.Add(asked, report.Sample{Measured: float64(spent.Requests.Others) / float64(w.Works),
		Detail: map[string]any{"everybody": spent.Served}})
	w.Progress("run %d: %s: %.0f/s", run+1, taken, rate)
	used, err := procs.Of(w.Program.PID())
	if err != nil {
		return err
	}
	w.Board.Add(memory, report.Sample{Measured: float64(used.RSS) / 1e6, Detail: map[string]any{"peakMB": float64(used.Peak) / 1e6}})
	w.ProfileMemory(ctx, run, "hub")
	if err := errors.Join(w.Stop(), w.clear(ctx)); err != nil {
		return err
	}
	return w.measureAdmitted(ctx, run, create)
}

// measureAdmitted publishes as many works, which the API server gives the finalizer
// (deploy/policies/finalizers.yaml). create is what it does alone, without that policy.
func (w *world) measureAdmitted(ctx context.Context, run int, create float64) (err error) {
	if err := w.admit(ctx); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, install.RemovePolicies(context.WithoutCancel(ctx), w.Plane.REST(), policies.Finalizers()))
	}()
	if err := w.launch(ctx); err != nil {
		return err
	}
	before, err := w.Cost(ctx)
	if err != nil {
		return err
	}
	rate, detail, err := w.publish(ctx, fmt.Sprintf("admitted-%d", run), before)
	if err != nil {
		return err
	}
	w.Board.Add(admitted, report.Sample{Measured: rate, Baseline: create, Detail: detail})
	w.Progress("run %d: %s: %.0f/s", run+1, admitted, rate)
	return errors.Join(w.Stop(), w.clear(ctx))
}

// admit puts the policy in force, and waits until it is.
func (w *world) admit(ctx context.Context) error {
	if err := install.Policies(ctx, w.Plane.REST(), policies.Finalizers()); err != nil {
		return err
	}
	works := w.works.WorkV1().ManifestWorks(string(w.clusters[0]))
	probe := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	probe.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe","namespace":"default"}}`)}}}
	return poll(ctx, time.Minute, "the policy of finalizers is in force", func(ctx context.Context) error {
		made, err := works.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(made.Finalizers) == 0 {
			err = errors.New("it adds none")
		}
		return err
	})
}

// poll calls check until it returns nil.
func poll(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if procs.Pause(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("wait until %s: not within %v: %w", what, limit, err)
		}
	}
}

// publish creates works and waits until all are published: works a second.
func (w *world) publish(ctx context.Context, prefix string, before subject.Cost) (float64, map[string]any, error) {
	w.agents.Expect(w.Works)
	start := time.Now()
	api, err := baseline.NewAPI(w.Plane.REST())
	if err != nil {
		return 0, nil, err
	}
	works := baseline.ManifestWorks{API: api, Prefix: prefix, Clusters: w.clusters}
	created, err := works.Create(ctx, w.Works)
	if err != nil {
		return 0, nil, err
	}
	all, err := w.agents.Await(ctx, start)
	if err != nil {
		return 0, nil, err
	}
	after, err := w.Cost(ctx)
	if err != nil {
		return 0, nil, err
	}
	detail := after.Since(before).Detail("hub")
	detail["createdSeconds"], detail["publishedSeconds"] = created.Seconds(), all.Seconds()
	return float64(w.Works) / all.Seconds(), detail, nil
}

// alone creates as many works and patches their statuses with no hub: works and statuses a second.
func (w *world) alone(ctx context.Context, run int) (create, patch float64, err error) {
	api, err := baseline.NewAPI(w.Plane.REST())
	if err != nil {
		return 0, 0, err
	}
	// The API server makes much of what it needs for a resource at its first use.
	warm := baseline.ManifestWorks{API: api, Prefix: fmt.Sprintf("warm-%d", run), Clusters: w.clusters}
	if _, err := warm.Create(ctx, min(w.Works, 100)); err != nil {
		return 0, 0, err
	}
	if _, err := warm.PatchStatus(ctx, status); err != nil {
		return 0, 0, err
	}
	works := baseline.ManifestWorks{API: api, Prefix: fmt.Sprintf("alone-%d", run), Clusters: w.clusters}
	created, err := works.Create(ctx, w.Works)
	if err != nil {
		return 0, 0, err
	}
	patched, err := works.PatchStatus(ctx, status)
	if err != nil {
		return 0, 0, err
	}
	return float64(w.Works) / created.Seconds(), float64(w.Works) / patched.Seconds(), w.clear(ctx)
}

func status() workv1.ManifestWorkStatus { return events.Well(1) }

// clear deletes all works, whatever holds them.
func (w *world) clear(ctx context.Context) error {
	_, err := baseline.Each(len(w.clusters), func(i int) error {
		works := w.works.WorkV1().ManifestWorks(string(w.clusters[i]))
		list, err := works.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, work := range list.Items {
			if len(work.Finalizers) == 0 {
				continue
			}
			work.Finalizers = nil
			if _, err := works.Update(ctx, &work, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return works.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	return err
}

// launch starts the hub and waits until it is at work.
func (w *world) launch(ctx context.Context) (err error) {
	w.Program, w.Listen, err = w.start(ctx, "hub", "--disable-leader-election")
	if err != nil {
		return err
	}
	if err := w.settled(ctx); err != nil { // a hub of before cluster sets
		w.Progress("%v", err)
	}
	return ctx.Err()
}

// settled waits for the last writes of a hub that starts, which are not about works: the statuses of
// the cluster sets that it makes.
func (w *world) settled(ctx context.Context) error {
	return poll(ctx, 10*time.Second, "the hub writes the statuses of its ManagedClusterSets", func(ctx context.Context) error {
		for _, name := range []string{clusterv1beta2.DefaultSet, clusterv1beta2.GlobalSet} {
			set, err := w.works.ClusterV1beta2().ManagedClusterSets().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(set.Status.Conditions) == 0 {
				return errors.New(name + " has none")
			}
		}
		return nil
	})
}

// start starts a hub and waits until it is ready. It returns its address for metrics, too.
func (w *world) start(ctx context.Context, name string, args ...string) (*process.Process, string, error) {
	transport, err := w.Broker.WriteTransport(string(source), w.Broker.Addr)
	if err != nil {
		return nil, "", err
	}
	p, err := process.Start(w.Dir, name, append([]string{w.Hub, "--source-id=" + string(source), "--kubeconfig=" + w.Plane.Kubeconfig,
		"--transport-config=" + transport, "--listen-address=127.0.0.1:0", "--profiling"}, args...)...)
	if err != nil {
		return nil, "", err
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	address, err := p.Line(bounded, process.Listening)
	if err != nil {
		return p, "", err
	}
	return p, address, poll(ctx, time.Minute, name+" is ready", func(ctx context.Context) error {
		_, err := procs.Get(ctx, "http://"+address+"/readyz")
		return errors.Join(err, p.Died())
	})
}

// stored waits until the hub says that it has written so many statuses: reading its metrics costs
// the API server nothing.
func (w *world) stored(ctx context.Context, n int) error {
	return poll(ctx, 10*time.Minute, "all statuses are stored", func(ctx context.Context) error {
		text, err := procs.Get(ctx, "http://"+w.Listen+"/metrics")
		if err != nil {
			return err
		}
		metrics, err := plane.Parse(string(text), "workwire_hub_status_writes_total")
		if err != nil {
			return err
		}
		if written := int(metrics.Sum("workwire_hub_status_writes_total", "result=written")); written < n {
			return fmt.Errorf("%d of %d statuses are stored", written, n)
		}
		return nil
	})
}

// verify looks whether every work has its status: the hub's own word is not taken for it.
func (w *world) verify(ctx context.Context) error {
	list, err := w.works.WorkV1().ManifestWorks("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	missing := 0
	for i := range list.Items {
		if len(list.Items[i].Status.Conditions) == 0 {
			missing++
		}
	}
	if missing > 0 || len(list.Items) != w.Works {
		return fmt.Errorf("%d works, of which %d have no status; want %d with one", len(list.Items), missing, w.Works)
	}
	return nil
}

func (w *world) profile(ctx context.Context, run int, name string) (wait func()) {
	return w.ProfileCPU(ctx, run, name, time.Duration(w.Works)*time.Millisecond/2)
}

// Package hubbench measures a work-hub between a real API and a real broker. The agents are
// simulated: each has its own connection, receives its specs, and publishes the statuses that it is
// told to.
package hubbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/baseline"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/bench/subject"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/postgreskit"
	"github.com/workwire/workwire/test/kit/procs"
)

const source wire.SourceID = "hub1"

// Options say what to measure. All are required.
type Options struct {
	Hub      string // program
	Works    int
	Clusters int
	// StartWorks is how many works a hub finds when its start is measured.
	StartWorks int
}

// Names of the rows.
const (
	published = "hub: works published, finalizer by the hub"
	admitted  = "hub: works published"
	taken     = "hub: statuses received"
	asked     = "hub: API requests per work"
	memory    = "hub: memory"
	takeover  = "hub: takeover"

	startCPU    = "hub: CPU of a start"
	startMemory = "hub: memory after a start"

	postgresPublished = "hub in PostgreSQL: works published"
	postgresTaken     = "hub in PostgreSQL: statuses received"
)

// Rows are the rows about hubs, in the order of the table.
func Rows(o Options) []*report.Row {
	half, most, two, six, twenty := 0.5, 0.6, 2.0, 6.0, 20.0
	return []*report.Row{
		{Name: published, Target: "of the API's own creates", Unit: "works/s", Ratio: true},
		{Name: admitted, Target: "≥ 0.5 of the API's own creates", Unit: "works/s", Ratio: true, Least: &half},
		{Name: taken, Target: "≥ 0.6 of the API's own status writes", Unit: "statuses/s", Ratio: true, Least: &most},
		{Name: asked, Target: "2: finalizer and status", Most: &two},
		{Name: memory, Target: fmt.Sprintf("at %d works", o.Works), Unit: "MB"},
		{Name: takeover, Target: fmt.Sprintf("≤ 6 s at %d works", o.Works), Unit: "s", Most: &six},
		{Name: startCPU, Target: fmt.Sprintf("≤ 20 s at %d works of %d clusters", o.StartWorks, o.StartWorks/startClusterWorks), Unit: "s", Most: &twenty},
		{Name: startMemory, Target: fmt.Sprintf("at %d works", o.StartWorks), Unit: "MB"},
		{Name: postgresPublished, Target: "of that API's own creates", Unit: "works/s", Ratio: true},
		{Name: postgresTaken, Target: "of that API's own status writes", Unit: "statuses/s", Ratio: true},
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
func Run(ctx context.Context, c subject.Config, o Options, board *report.Board) error {
	load, starts := board.Wants(published, admitted, taken, asked, memory), board.Wants(startCPU, startMemory)
	if load || starts || board.Wants(takeover) {
		err := newWorld(c, o, board).run(ctx, func(w *world, run int) (err error) {
			if load {
				err = w.measure(ctx, run)
			}
			if err == nil && board.Wants(takeover) {
				err = w.measureTakeover(ctx, run)
			}
			if err == nil && starts {
				err = w.measureStart(ctx, run)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if !board.Wants(postgresPublished, postgresTaken) {
		return nil
	}
	if _, ok := kit.PostgreSQL.Find(); !ok {
		for _, row := range []string{postgresPublished, postgresTaken} {
			board.Miss(row, "PostgreSQL is not installed")
		}
		return nil
	}
	return inPostgreSQL(ctx, newWorld(c, o, board))
}

// inPostgreSQL measures a hub whose API has its data in a PostgreSQL database that waits for the disk,
// as etcd does.
func inPostgreSQL(ctx context.Context, w *world) (err error) {
	server, err := postgreskit.Run(ctx, w.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	database, err := server.Make(ctx)
	if err != nil {
		return err
	}
	w.Datastore = server.URL(database)
	return w.run(ctx, func(w *world, run int) error {
		_, err := w.against(ctx, run, postgresPublished, postgresTaken, func(loaded) error { return nil })
		return err
	})
}

func newWorld(c subject.Config, o Options, board *report.Board) *world {
	w := &world{Subject: subject.Subject{Config: c, Board: board}, Options: o}
	for i := range o.Clusters {
		w.clusters = append(w.clusters, wire.ClusterName(fmt.Sprintf("cluster-%03d", i)))
	}
	return w
}

// run measures so often as it is wanted, between a beginning and an end of w.
func (w *world) run(ctx context.Context, measure func(w *world, run int) error) (err error) {
	defer func() { err = errors.Join(err, w.Stop(), w.agents.Close(), w.Close()) }()
	if err := w.setUp(ctx); err != nil {
		return err
	}
	for run := range w.Runs {
		if err := measure(w, run); err != nil {
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

// measure creates works and reports on them with a hub, which adds the finalizers, and creates works with
// one that need not.
func (w *world) measure(ctx context.Context, run int) error {
	alone, err := w.against(ctx, run, published, taken, func(load loaded) error {
		w.Board.Add(asked, report.Sample{Measured: float64(load.spent.Requests.Others-load.pending) / float64(w.Works),
			Detail: map[string]any{"everybody": load.spent.Served, "pending": load.pending}})
		used, err := procs.Of(w.Program.PID())
		if err != nil {
			return err
		}
		w.Board.Add(memory, report.Sample{Measured: float64(used.RSS) / 1e6, Detail: map[string]any{"peakMB": float64(used.Peak) / 1e6}})
		w.ProfileMemory(ctx, run, "hub")
		return nil
	})
	if err != nil {
		return err
	}
	sample, err := w.measureAdmitted(ctx, run)
	if err != nil {
		return err
	}
	w.add(run, admitted, sample, alone)
	return nil
}

// against measures what a hub publishes and takes in, against what the API does with no hub before and after it.
// It calls then while the hub still runs, and returns how long twice as many creations took with no hub.
func (w *world) against(ctx context.Context, run int, published, taken string, then func(loaded) error) (creates time.Duration, err error) {
	before, err := w.alone(ctx, run, "before")
	if err != nil {
		return 0, err
	}
	load, err := w.load(ctx, run)
	if err != nil {
		return 0, err
	}
	if err := then(load); err != nil {
		return 0, err
	}
	if err := errors.Join(w.Stop(), w.clear(ctx)); err != nil {
		return 0, err
	}
	after, err := w.alone(ctx, run, "after")
	if err != nil {
		return 0, err
	}
	creates = before.create + after.create
	w.add(run, published, load.published, creates)
	w.add(run, taken, load.taken, before.status+after.status)
	return creates, nil
}

// add adds a sample to a row, against the time that twice as many works took with no hub.
func (w *world) add(run int, row string, sample report.Sample, alone time.Duration) {
	sample.Baseline = 2 * float64(w.Works) / alone.Seconds()
	w.Board.Add(row, sample)
	w.Progress("run %d: %s: %.0f/s, the API alone %.0f/s", run+1, row, sample.Measured, sample.Baseline)
}

// loaded is what a hub did, in works a second, and what that has cost.
type loaded struct {
	published, taken report.Sample
	pending          int // statuses which say that an agent has not answered yet
	spent            subject.Cost
}

// load creates works and reports on them, with a hub, which runs at the end.
func (w *world) load(ctx context.Context, run int) (l loaded, err error) {
	if err := w.launch(ctx); err != nil {
		return l, err
	}
	before, err := w.Cost(ctx)
	if err != nil {
		return l, err
	}
	stop := w.profile(ctx, run, "hub-publish")
	if l.published, err = w.publish(ctx, fmt.Sprintf("work-%d", run), before); err != nil {
		return l, err
	}
	stop()
	stop = w.profile(ctx, run, "hub-intake")
	if l.taken, err = w.intake(ctx); err != nil {
		return l, err
	}
	stop()
	// Agents report once all works are published: of some, the hub writes before that they are pending.
	if l.pending, err = w.StatusWrites(ctx, "delivery"); err != nil {
		return l, err
	}
	after, err := w.Cost(ctx)
	l.spent = after.Since(before)
	return l, err
}

// intake has the agents report on all works.
func (w *world) intake(ctx context.Context) (report.Sample, error) {
	before, err := w.Cost(ctx)
	if err != nil {
		return report.Sample{}, err
	}
	start := time.Now()
	if err := w.agents.Report(ctx); err != nil {
		return report.Sample{}, err
	}
	sent := time.Since(start)
	if err := w.Stored(ctx, w.Works); err != nil {
		return report.Sample{}, err
	}
	if err := procs.Poll(ctx, 10*time.Minute, "all works have their status", w.verify); err != nil {
		return report.Sample{}, err
	}
	all := time.Since(start)
	after, err := w.Cost(ctx)
	detail := after.Since(before).Detail("hub")
	detail["sentSeconds"], detail["storedSeconds"] = sent.Seconds(), all.Seconds()
	return report.Sample{Measured: float64(w.Works) / all.Seconds(), Detail: detail}, err
}

// measureAdmitted publishes as many works, which the API server gives the finalizer
// (deploy/policies/finalizers).
func (w *world) measureAdmitted(ctx context.Context, run int) (sample report.Sample, err error) {
	if err := w.Plane.AddFinalizers(ctx, string(w.clusters[0])); err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, w.Plane.RemoveFinalizerPolicy(context.WithoutCancel(ctx))) }()
	if err := w.launch(ctx); err != nil {
		return sample, err
	}
	before, err := w.Cost(ctx)
	if err != nil {
		return sample, err
	}
	if sample, err = w.publish(ctx, fmt.Sprintf("admitted-%d", run), before); err != nil {
		return sample, err
	}
	return sample, errors.Join(w.Stop(), w.clear(ctx))
}

// publish creates works and waits until all are published: works a second.
func (w *world) publish(ctx context.Context, prefix string, before subject.Cost) (report.Sample, error) {
	w.agents.Expect(w.Works)
	start := time.Now()
	api, err := baseline.NewAPI(w.Plane.REST())
	if err != nil {
		return report.Sample{}, err
	}
	works := baseline.ManifestWorks{API: api, Prefix: prefix, Clusters: w.clusters}
	created, err := works.Create(ctx, w.Works)
	if err != nil {
		return report.Sample{}, err
	}
	all, err := w.agents.Await(ctx, start)
	if err != nil {
		return report.Sample{}, err
	}
	after, err := w.Cost(ctx)
	detail := after.Since(before).Detail("hub")
	detail["createdSeconds"], detail["publishedSeconds"] = created.Seconds(), all.Seconds()
	return report.Sample{Measured: float64(w.Works) / all.Seconds(), Detail: detail}, err
}

// alone is how long the API takes for as many works, and for their statuses, with no hub.
type alone struct{ create, status time.Duration }

// alone creates as many works and writes their statuses with no hub. When is part of their names.
func (w *world) alone(ctx context.Context, run int, when string) (a alone, err error) {
	api, err := baseline.NewAPI(w.Plane.REST())
	if err != nil {
		return a, err
	}
	// The API server makes much of what it needs for a resource at its first use.
	warm := baseline.ManifestWorks{API: api, Prefix: fmt.Sprintf("warm-%s-%d", when, run), Clusters: w.clusters}
	if _, err := warm.Create(ctx, min(w.Works, 100)); err != nil {
		return a, err
	}
	if _, err := warm.WriteStatus(ctx, status); err != nil {
		return a, err
	}
	works := baseline.ManifestWorks{API: api, Prefix: fmt.Sprintf("alone-%s-%d", when, run), Clusters: w.clusters}
	if a.create, err = works.Create(ctx, w.Works); err != nil {
		return a, err
	}
	if a.status, err = works.WriteStatus(ctx, status); err != nil {
		return a, err
	}
	w.Progress("run %d: the hub API alone, %s: %.0f creates/s, %.0f status writes/s", run+1, when,
		float64(w.Works)/a.create.Seconds(), float64(w.Works)/a.status.Seconds())
	return a, w.clear(ctx)
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
	w.Program, w.Listen, err = w.StartHub(ctx, w.Hub, source, "hub", "--disable-leader-election")
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
	return procs.Poll(ctx, 10*time.Second, "the hub writes the statuses of its ManagedClusterSets", func(ctx context.Context) error {
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

// verify looks whether every work has its status: the hub's own word is not taken for it.
func (w *world) verify(ctx context.Context) error {
	list, err := w.works.WorkV1().ManifestWorks("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	missing := 0
	for i := range list.Items {
		if !meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, workv1.WorkApplied) {
			missing++
		}
	}
	if missing > 0 || len(list.Items) != w.Works {
		return errors.Join(fmt.Errorf("%d works, of which %d are not applied; want %d that are", len(list.Items), missing, w.Works), procs.Pause(ctx, 500*time.Millisecond))
	}
	return nil
}

func (w *world) profile(ctx context.Context, run int, name string) (wait func()) {
	if w.Datastore != "" {
		return func() {} // the names are those of the usual run
	}
	return w.ProfileCPU(ctx, run, name, time.Duration(w.Works)*time.Millisecond/2)
}

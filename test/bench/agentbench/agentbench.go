// Package agentbench measures an agent: a work-agent, or any other program that speaks the
// protocol.
package agentbench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/baseline"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/bench/subject"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/procs"
)

const (
	source    wire.SourceID    = "bench"
	cluster   wire.ClusterName = "cluster1"
	nobody    wire.ClusterName = "nobody" // for what goes through the broker alone
	namespace                  = "bench"  // of the objects
	objects                    = 2        // of a work
)

// Options say what to measure. All are required but AgentArgs.
type Options struct {
	Agent     []string      // the program, and what comes before its flags
	AgentArgs []string      // more flags
	Works     int           // of the usual load
	Scale     int           // of the large one
	Latencies int           // works created one at a time
	Samples   int           // changes healed, and fed back, one at a time
	Steady    time.Duration // how long nothing happens
	Idle      time.Duration // in which nothing happens, to tell a day's bytes
	Settle    time.Duration // after a load, before its memory is read
	Away      time.Duration // of the broker, in the long restart
	Large     int           // objects of the large work
}

// world is what is measured, and what measures it.
type world struct {
	subject.Subject
	Options
	api    *baseline.API
	source *events.Source
	maker  events.Maker
	own    bool         // the agent is this project's, with metrics and profiles
	anchor []*wire.Spec // the work that keeps the agent's watch up
}

// Run measures the rows of board that are about agents.
func Run(ctx context.Context, c subject.Config, o Options, board *report.Board) (err error) {
	stages := []stage{
		{(*world).throughput, throughputRows}, {(*world).latency, latencyRows}, {(*world).large, largeRows},
		{(*world).reconnect, reconnectRows}, {(*world).scale, scaleRows},
		{(*world).uplink, uplinkRows}, {(*world).small, smallRows}, {(*world).readiness, readinessRows},
	}
	wanted := stages[:0]
	for _, s := range stages {
		if board.Wants(s.rows...) {
			wanted = append(wanted, s)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	w := &world{
		Subject: subject.Subject{Config: c, Board: board}, Options: o,
		maker: events.Maker{Source: source, Cluster: cluster, Namespace: namespace},
	}
	defer func() { err = errors.Join(err, w.Stop(), w.source.Close(), w.Close()) }()
	if err := w.setUp(ctx); err != nil {
		return err
	}
	for run := range c.Runs {
		for _, s := range wanted {
			if err := s.measure(w, ctx, run); err != nil {
				return fmt.Errorf("run %d: %s …: %w", run+1, s.rows[0], errors.Join(err, w.Program.Died()))
			}
		}
	}
	return nil
}

type stage struct {
	measure func(w *world, ctx context.Context, run int) error
	rows    []string
}

func (w *world) setUp(ctx context.Context) (err error) {
	help, _ := exec.CommandContext(ctx, w.Agent[0], append(w.Agent[1:len(w.Agent):len(w.Agent)], "--help")...).CombinedOutput() // that of others may fail
	w.own = strings.Contains(string(help), "--profiling") && strings.Contains(string(help), "--listen-address")
	w.Progress("starting a cluster, a broker and a source")
	if err := w.Start(ctx, controlplane.Spoke, source, cluster, nobody); err != nil {
		return err
	}
	if err := w.Plane.Namespace(ctx, namespace); err != nil {
		return err
	}
	if err := install.CRDs(ctx, w.Plane.REST(), widgets()); err != nil {
		return err
	}
	if w.api, err = baseline.NewAPI(w.Plane.REST()); err != nil {
		return err
	}
	w.source, err = events.NewSource(ctx, w.Broker.Transport(string(source)), source, cluster)
	return err
}

// launch starts the agent and waits until it has asked for its works.
func (w *world) launch(ctx context.Context) error { return w.launchAt(ctx, w.Broker.Addr) }

// launchAt is launch with the broker's address as the agent sees it.
func (w *world) launchAt(ctx context.Context, address string) error {
	transport, err := w.Broker.WriteTransport(string(cluster), address)
	if err != nil {
		return err
	}
	return w.launchWith(ctx, transport)
}

// launchWith is launch with a transport configuration and further flags.
func (w *world) launchWith(ctx context.Context, transport string, flags ...string) (err error) {
	argv := append(append([]string(nil), w.Agent...),
		"--spoke-kubeconfig="+w.Plane.Kubeconfig, "--workload-source-driver=mqtt", "--workload-source-config="+transport,
		"--spoke-cluster-name="+string(cluster), "--cloudevents-client-id="+string(cluster)+"-agent",
		"--cloudevents-client-codecs=manifestbundle", "--disable-leader-election")
	if w.own {
		argv = append(argv, "--listen-address=127.0.0.1:0", "--profiling")
	}
	start := time.Now()
	if w.Program, err = process.Start(w.Dir, "agent", append(append(argv, flags...), w.AgentArgs...)...); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, err := w.source.AwaitAsked(bounded, start); err != nil {
		return err
	}
	if w.own {
		w.Listen, err = w.Program.Line(bounded, process.Listening)
	}
	return err
}

// begin starts the agent with one work, so that what it learns at the first, the kind and the
// watch, is not measured.
func (w *world) begin(ctx context.Context) error {
	if err := w.launch(ctx); err != nil {
		return err
	}
	w.anchor = w.maker.Works("anchor", 1, objects)
	if _, err := w.publish(ctx, w.anchor, events.Applied(1)); err != nil {
		return err
	}
	_, err := w.awaitRecords(ctx)
	return err
}

// awaitRecords waits until neither a status has come nor the agent has written to the API server for
// longer than it puts writes off, and returns how long the writes went on.
func (w *world) awaitRecords(ctx context.Context) (time.Duration, error) {
	const quiet = 1500 * time.Millisecond
	begin := time.Now()
	last, writes := begin, -1
	for time.Since(last) < quiet {
		if err := procs.Pause(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
		requests, err := w.Plane.Requests(ctx)
		if err != nil {
			return 0, err
		}
		if requests.Others != writes {
			if writes >= 0 {
				last = time.Now()
			}
			writes = requests.Others
		}
	}
	return last.Sub(begin), w.source.AwaitQuiet(ctx, time.Second)
}

// end removes the works given, and the anchor, and stops the agent.
func (w *world) end(ctx context.Context, specs []*wire.Spec) error {
	if _, err := w.publish(ctx, events.Deleted(append(specs[:len(specs):len(specs)], w.anchor...)), events.Gone); err != nil {
		return err
	}
	if err := w.source.AwaitQuiet(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	return w.Stop()
}

// publish is Source.Publish within a time that no usable agent exceeds.
func (w *world) publish(ctx context.Context, specs []*wire.Spec, met func(*wire.Status) bool) (events.Took, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+time.Duration(len(specs))*100*time.Millisecond)
	defer cancel()
	return w.source.Publish(ctx, specs, met)
}

// cost is what a part of a run has cost those that take part.
type cost struct {
	subject.Cost
	events events.Counts
}

func (w *world) cost(ctx context.Context) (cost, error) {
	spent, err := w.Cost(ctx)
	return cost{spent, w.source.Counts()}, err
}

func (c cost) since(before cost) cost {
	return cost{c.Since(before.Cost), c.events.Since(before.events)}
}

// detail is c for the record.
func (c cost) detail() map[string]any {
	detail := c.Detail("agent")
	detail["watches"], detail["statuses"], detail["requestsOfEverybody"] = c.Requests.Watches, c.events.Statuses, c.Served
	return detail
}

// memory reads the agent's memory after it has had time to settle.
func (w *world) memory(ctx context.Context) (procs.Usage, error) {
	if err := procs.Pause(ctx, w.Settle); err != nil {
		return procs.Usage{}, err
	}
	return procs.Of(w.Program.PID())
}

func rate(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

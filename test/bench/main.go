// Command bench measures the agent and the hub on this machine, and in the same run what the API
// server and the broker do without them. make bench builds and runs it; see docs/performance.md. It
// is a module of its own.
//
//	bin/bench --runs=3
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/runtime/command"
	"github.com/workwire/workwire/test/bench/agentbench"
	"github.com/workwire/workwire/test/bench/brokerbench"
	"github.com/workwire/workwire/test/bench/fleetbench"
	"github.com/workwire/workwire/test/bench/hubbench"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/bench/subject"
	"github.com/workwire/workwire/test/bench/writebench"
	"github.com/workwire/workwire/test/kit/mqttflood"
)

func main() {
	mqttflood.Main()
	os.Exit(command.Main(newCommand(os.Stdout, os.Stderr)))
}

type options struct {
	bin, agent, hub, broker, jsonFile, profile, only, logs          string
	agentArgs                                                       []string
	runs, works, scale, hubWorks, stored, clients, back, fleetWorks int
	fleet                                                           []int
	quick, markdown                                                 bool

	wanted *regexp.Regexp // read by validate
}

func newCommand(out, progress io.Writer) *cobra.Command {
	o := &options{bin: "bin", broker: "work-broker", runs: 3, works: 1000, scale: 10_000, hubWorks: 10_000, clients: 2000, back: 10_000, fleetWorks: 10, fleet: []int{1000}}
	return command.New(command.Config{
		Use:   "bench",
		Short: "Measure the agent and the hub against their surroundings",
		Long: "Measures agent, hub, broker and a fleet on this machine against what the API server, the broker alone and Mosquitto do in the same run.\n" +
			"With the defaults it takes about 45 minutes on 2 idle cores.",
		Sections: []command.Section{
			{Title: "What is measured", Bind: func(fs *pflag.FlagSet) {
				fs.StringVar(&o.bin, "bin", o.bin, "directory of the programs of make build")
				fs.StringVar(&o.agent, "agent", o.agent, "agent to measure: path, and what comes before its flags, by OCM's names of which it is called; default: work-agent in --bin")
				fs.StringArrayVar(&o.agentArgs, "agent-arg", o.agentArgs, "one more flag for the agent; may be given several times")
				fs.StringVar(&o.hub, "hub", o.hub, "hub to measure; default: work-hub in --bin")
				fs.StringVar(&o.broker, "broker", o.broker, "broker between them: work-broker, mosquitto, or rabbitmq: a container on the Docker Engine of this machine, with the image of hack/rabbitmq-image.sh")
			}},
			{Title: "How much", Bind: func(fs *pflag.FlagSet) {
				fs.IntVar(&o.runs, "runs", o.runs, "times that each figure is measured, at least 1; the table has the median")
				fs.IntVar(&o.works, "works", o.works, "works of the usual load, at least 10")
				fs.IntVar(&o.scale, "scale", o.scale, "works of the large load, more than --works")
				fs.IntVar(&o.hubWorks, "hub-works", o.hubWorks, "works given to the hub, at least 10")
				fs.IntVar(&o.stored, "stored", o.stored, "works that a hub's API has besides while the cost of writes is measured, at least 0")
				fs.IntVar(&o.clients, "broker-clients", o.clients, "connections at rest, at least 10")
				fs.IntVar(&o.back, "broker-back", o.back, "connections that must be back after a restart of the broker, at least 10; each takes a file descriptor here and in the broker")
				fs.IntSliceVar(&o.fleet, "fleet", o.fleet, "sizes of the fleets in clusters, each at least 1; each cluster takes a file descriptor here and in the broker")
				fs.IntVar(&o.fleetWorks, "fleet-works", o.fleetWorks, "works of each cluster of a fleet, at least 1")
				fs.StringVar(&o.only, "only", o.only, "regular expression: only rows with such names; default: all")
				fs.BoolVar(&o.quick, "quick", o.quick, "one run of everything with small numbers, to try it out: the figures mean nothing")
			}},
			{Title: "What comes out", Bind: func(fs *pflag.FlagSet) {
				fs.BoolVar(&o.markdown, "markdown", o.markdown, "print the table for docs/performance.md")
				fs.StringVar(&o.jsonFile, "json", o.jsonFile, "file for all figures of all runs as JSON; default: none")
				fs.StringVar(&o.profile, "profile", o.profile, "directory for CPU and memory profiles of the first run; they slow that down a little; default: none")
				fs.StringVar(&o.logs, "logs", o.logs, "directory that keeps the logs of the programs; default: a temporary one, removed at the end")
			}},
		},
		Validate: o.validate,
		Run:      func(ctx context.Context) error { return o.run(ctx, out, progress) },
	})
}

func (o *options) validate() []error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	var err error
	o.wanted, err = regexp.Compile(o.only)
	check(err == nil, "--only: %v", err)
	check(slices.Contains([]string{"work-broker", "mosquitto", "rabbitmq"}, o.broker), "--broker must be work-broker, mosquitto or rabbitmq, got %q", o.broker)
	check(o.runs >= 1, "--runs must be at least 1, got %d", o.runs)
	check(o.works >= 10, "--works must be at least 10, got %d", o.works)
	check(o.scale > o.works, "--scale must be more than --works (%d), got %d", o.works, o.scale)
	check(o.hubWorks >= 10, "--hub-works must be at least 10, got %d", o.hubWorks)
	check(o.stored >= 0, "--stored must be at least 0, got %d", o.stored)
	check(o.clients >= 10, "--broker-clients must be at least 10, got %d", o.clients)
	check(o.fleetWorks >= 1, "--fleet-works must be at least 1, got %d", o.fleetWorks)
	check(len(o.fleet) > 0 && slices.Min(o.fleet) >= 1, "--fleet must be numbers of at least 1, got %v", o.fleet)
	check(o.back >= 10, "--broker-back must be at least 10, got %d", o.back)
	return errs
}

// run measures the chosen rows and prints them.
func (o *options) run(ctx context.Context, out, progress io.Writer) (err error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	dir := o.logs
	if dir == "" {
		if dir, err = os.MkdirTemp("", "workwire-bench-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(dir)
			} else {
				err = fmt.Errorf("%w\nthe logs are in %s", err, dir)
			}
		}()
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	start := time.Now()
	agentOptions, hubOptions, writeOptions := o.agentOptions(bin), o.hubOptions(bin), o.writeOptions()
	brokerOptions, fleetOptions := o.brokerOptions(bin), o.fleetOptions(bin)
	surroundings := subject.Config{Broker: o.broker, Control: filepath.Join(bin, "controlplane"), Dir: dir, Profile: o.profile, Runs: o.runs}
	if o.broker == "work-broker" {
		surroundings.Broker = filepath.Join(bin, o.broker)
	}
	if o.quick {
		surroundings.Runs = 1
	}
	surroundings.Progress = func(format string, args ...any) {
		fmt.Fprintf(progress, "%7.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	rows := slices.Concat(agentbench.Rows(agentOptions), hubbench.Rows(hubOptions), writebench.Rows(writeOptions), brokerbench.Rows(brokerOptions), fleetbench.Rows(fleetOptions))
	board := report.NewBoard(o.wanted, rows...)
	if len(board.Rows()) == 0 {
		return fmt.Errorf("--only=%s: no such figure", o.only)
	}
	result := &report.Report{Began: start, Machine: o.machine(ctx, bin), Runs: surroundings.Runs, Rows: board.Rows(), Options: map[string]int{
		"works": agentOptions.Works, "scale": agentOptions.Scale, "hubWorks": hubOptions.Works, "hubClusters": hubOptions.Clusters,
		"brokerClients": brokerOptions.Clients, "brokerBack": brokerOptions.Back, "brokerTrips": brokerOptions.Trips, "brokerLogins": brokerOptions.Logins,
	}}
	measured := agentbench.Run(ctx, surroundings, agentOptions, board)
	if measured == nil {
		measured = hubbench.Run(ctx, surroundings, hubOptions, board)
	}
	if measured == nil {
		measured = writebench.Run(ctx, surroundings, writeOptions, board)
	}
	if measured == nil {
		measured = brokerbench.Run(ctx, surroundings, brokerOptions, board)
	}
	if measured == nil {
		measured = fleetbench.Run(ctx, surroundings, fleetOptions, board)
	}
	result.Took = time.Since(start)
	return errors.Join(measured, o.show(result, out)) // show what was measured
}

func (o *options) agentOptions(bin string) agentbench.Options {
	agent := strings.Fields(o.agent)
	if len(agent) == 0 {
		agent = []string{filepath.Join(bin, "work-agent")}
	}
	a := agentbench.Options{
		Agent: agent, AgentArgs: o.agentArgs, Works: o.works, Scale: o.scale, Latencies: 205, Samples: 100, Steady: time.Minute,
		Idle:   130 * time.Second, // two digests, and keep-alives
		Settle: 5 * time.Second, Away: 5 * time.Second, Large: 500,
	}
	if o.quick {
		a.Works, a.Scale, a.Latencies, a.Samples, a.Large = 20, 60, 10, 5, 50
		a.Idle, a.Steady, a.Settle, a.Away = time.Second, 2*time.Second, 100*time.Millisecond, 200*time.Millisecond
	}
	return a
}

func (o *options) hubOptions(bin string) hubbench.Options {
	h := hubbench.Options{Hub: cmp.Or(o.hub, filepath.Join(bin, "work-hub")), Works: o.hubWorks, Clusters: 100, StartWorks: 10 * o.hubWorks}
	if o.quick {
		h.Works, h.Clusters, h.StartWorks = 50, 5, 500
	}
	return h
}

func (o *options) writeOptions() writebench.Options {
	if o.quick {
		return writebench.Options{Requests: 20}
	}
	return writebench.Options{Requests: o.works, Stored: o.stored}
}

func (o *options) brokerOptions(bin string) brokerbench.Options {
	b := brokerbench.Options{
		Broker: filepath.Join(bin, "work-broker"), Clients: o.clients, Clusters: 100, Trips: 20_000, Back: o.back, Logins: 1000, Settle: 5 * time.Second, Flood: 8 * time.Second,
	}
	if o.quick {
		b.Clients, b.Clusters, b.Trips, b.Back, b.Logins, b.Settle, b.Flood = 20, 3, 20, 20, 3, 0, 200*time.Millisecond
	}
	return b
}

func (o *options) fleetOptions(bin string) fleetbench.Options {
	f := fleetbench.Options{Hub: cmp.Or(o.hub, filepath.Join(bin, "work-hub")), Sizes: o.fleet, Works: o.fleetWorks}
	if o.quick {
		f.Sizes, f.Works = []int{3}, 2
	}
	return f
}

func (o *options) machine(ctx context.Context, bin string) report.Machine {
	m := report.ThisMachine()
	m.Broker, m.Agent = o.broker, cmp.Or(o.agent, "work-agent")
	version, err := exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), "version", "--client").Output()
	if err == nil {
		_, rest, _ := strings.Cut(string(version), "Client Version: ")
		m.Kubernetes, _, _ = strings.Cut(rest, "\n")
	}
	return m
}

// show prints the table and writes the JSON.
func (o *options) show(r *report.Report, out io.Writer) error {
	show := r.Table
	if o.markdown {
		show = r.Markdown
	}
	if err := show(out); err != nil || o.jsonFile == "" {
		return err
	}
	text, err := json.MarshalIndent(r.Summary(), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.jsonFile, append(text, '\n'), 0o600)
}

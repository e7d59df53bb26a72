package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/process"
)

// laterFaults are those that came after the others.
var laterFaults = []fault{
	{name: "step the agent's clock by hours", run: func(w *world) {
		w.stopAgent()
		w.startSteppedAgent()
		for _, step := range []time.Duration{3 * time.Hour, -5 * time.Hour, 0, -12 * time.Hour, 12 * time.Hour} {
			w.setClock(step)
			w.during(0, 3)
			w.converge()
		}
		kit.NoError(w, w.agent.Kill())
		w.startSteppedAgent() // by 12 hours from its start
		w.during(0, 3)
		w.converge()
		kit.NoError(w, w.agent.Kill())
		w.startAgent()
		w.during(0, 3)
	}},
	{name: "restore the API of the agent's cluster from a snapshot", soak: true, run: func(w *world) {
		w.during(0, 2)
		w.settleRepairs()
		b := w.snapshotCluster()
		w.during(time.Second, 6)
		w.settleRepairs()
		w.restoreCluster(b)
		w.converge()
	}},
}

// settleRepairs writes the works whose objects somebody else has changed, so that the repairs after
// a restore are no conflict.
func (w *world) settleRepairs() {
	w.Helper()
	for name := range w.meddled {
		if want, ok := w.want[name]; ok {
			var objects []string
			for _, object := range want.objects {
				objects = append(objects, object[len(name)+1:])
			}
			w.serial++
			w.put(name, fmt.Sprint("value ", w.serial), objects...)
		}
	}
	w.converge()
}

// programEnv names the program that the test binary runs as instead of its tests.
const programEnv = "WORKWIRE_TEST_PROGRAM"

// testPrograms are these programs.
var testPrograms = map[string]func(ctx context.Context, args []string) error{
	"stepped-agent": runSteppedAgent, "source": runSource,
}

// runProgram runs a program until SIGTERM, and returns its exit status.
func runProgram(name string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	run, ok := testPrograms[name]
	if !ok {
		run = func(context.Context, []string) error { return fmt.Errorf("there is no program %q", name) }
	}
	if err := run(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startProgram starts the test binary as a program.
func (w *world) startProgram(name, log string, args ...string) *process.Process {
	w.Helper()
	binary, err := os.Executable()
	kit.NoError(w, err)
	return w.Start(log, append([]string{"env", programEnv + "=" + name, binary}, args...)...)
}

// startSteppedAgent starts an agent as work-agent has it, but for its clock, which [world.setClock]
// steps.
func (w *world) startSteppedAgent() {
	w.Helper()
	w.agent = w.startProgram("stepped-agent", "agent", w.clockFile(), w.TransportFile(w.cluster), spokePlane.Kubeconfig, w.cluster, w.stateDir)
}

func (w *world) clockFile() string { return filepath.Join(w.Dir, "clock") }

// setClock sets the clock of the stepped agent, to so much more than that of the machine.
func (w *world) setClock(step time.Duration) {
	w.Helper()
	next := w.clockFile() + ".next"
	kit.NoError(w, errors.Join(os.WriteFile(next, []byte(step.String()), 0o600), os.Rename(next, w.clockFile())))
}

func runSteppedAgent(ctx context.Context, args []string) error {
	clock, transportFile, kubeconfig, cluster, stateDir := args[0], args[1], args[2], args[3], args[4]
	broker, err := config.Load(transportFile)
	if err != nil {
		return err
	}
	kube, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	kube.QPS = -1
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	transport, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: cluster + "-agent", Logger: logger})
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Config{
		Cluster: wire.ClusterName(cluster), ClientID: cluster + "-agent", AgentID: cluster, BrokerHost: broker.BrokerHost, Topics: broker.Topics,
		Transport: transport, Kube: kube, StateDir: stateDir, Logger: logger,
		Now: func() time.Time {
			text, _ := os.ReadFile(clock)
			step, _ := time.ParseDuration(string(text)) // without a file: none
			return time.Now().Add(step)
		},
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

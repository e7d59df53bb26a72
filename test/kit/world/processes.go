package world

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokerkit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/procs"
)

// Processes is a world whose broker, hubs and agents are processes of their own: they can be killed, and a crash of theirs does
// not end the test. The end of the test stops them and, if it has failed, shows the ends of their logs.
type Processes struct {
	*World
	// Dir has what the programs are configured with, and their logs, NAME.log.
	Dir string
	// Broker is the broker once it was started. World.Broker has its first address.
	Broker *brokerkit.Broker
	// Links are the addresses by which users reach the broker, such as those of proxies; its own by default.
	Links map[string]string
	// Settings are further lines of all transport configurations.
	Settings string

	programs string
	running  []*process.Process // the last one of each name, but the broker
}

// Processes returns the world for processes, of which none runs yet. programs is the directory of work-broker, work-hub and
// work-agent.
func (w *World) Processes(programs string) *Processes {
	w.Helper()
	p := &Processes{World: w, Dir: w.TempDir(), Links: map[string]string{}, programs: programs}
	w.Cleanup(p.stop)
	return p
}

// StartBroker starts the project's broker. With others, which are further sources, agents serve every source.
func (p *Processes) StartBroker(others ...wire.SourceID) {
	p.Helper()
	var err error
	p.Broker, err = brokerkit.Start(p.Context(), brokerkit.Config{
		Dir: p.Dir, Program: filepath.Join(p.programs, "work-broker"), Source: p.Source, Others: others, Clusters: p.Clusters,
	})
	kit.NoError(p, err)
	p.World.Broker = &brokertest.Running{Addr: p.Broker.Addr}
	p.password = func(user string) string { return p.Broker.Transport(user).Password }
}

// StartHub starts a hub with its log under a name. args come after its usual arguments, and so replace those.
func (p *Processes) StartHub(name string, args ...string) *process.Process {
	p.Helper()
	return p.start(name, "work-hub", p.World.Hub.Kubeconfig, string(p.Source), append([]string{"--source-id=" + string(p.Source)}, args...))
}

// StartAgent starts the agent of a cluster, as StartHub does a hub.
func (p *Processes) StartAgent(i int, name string, args ...string) *process.Process {
	p.Helper()
	cluster := string(p.Clusters[i])
	return p.start(name, "work-agent", p.Spokes[i].Kubeconfig, cluster, append([]string{"--cluster-name=" + cluster, "--agent-id=" + cluster}, args...))
}

func (p *Processes) start(name, program, kubeconfig, user string, args []string) *process.Process {
	p.Helper()
	return p.Start(name, append([]string{filepath.Join(p.programs, program), "--disable-leader-election", "--listen-address=127.0.0.1:0",
		"--kubeconfig=" + kubeconfig, "--transport-config=" + p.TransportFile(user)}, args...)...)
}

// Start starts a program of the test's own, in place of the one that ran under this name.
func (p *Processes) Start(name string, argv ...string) *process.Process {
	p.Helper()
	started, err := process.Start(p.Dir, name, argv...)
	kit.NoError(p, err)
	p.running = append(slices.DeleteFunc(p.running, func(old *process.Process) bool { return old.Name == name }), started)
	return started
}

// TransportFile writes the transport configuration of a user, and returns its path.
func (p *Processes) TransportFile(user string) string {
	p.Helper()
	file, err := p.Broker.WriteTransport(user, cmp.Or(p.Links[user], p.Broker.Addr))
	kit.NoError(p, err)
	text, err := os.ReadFile(file)
	kit.NoError(p, err)
	kit.NoError(p, os.WriteFile(file, append(text, p.Settings...), 0o600))
	return file
}

// Get returns what a hub or an agent answers at a path.
func (p *Processes) Get(from *process.Process, path string) ([]byte, error) {
	address, err := from.Line(p.Context(), process.Listening)
	if err != nil {
		return nil, err
	}
	return procs.Get(p.Context(), "http://"+address+path)
}

// Metrics returns the metrics of a hub or an agent.
func (p *Processes) Metrics(from *process.Process) (kit.Metrics, error) {
	text, err := p.Get(from, "/metrics")
	if err != nil {
		return nil, err
	}
	return kit.ParseMetrics(bytes.NewReader(text))
}

// Alive fails the test unless the last program of each name runs.
func (p *Processes) Alive() {
	p.Helper()
	for _, one := range p.all() {
		kit.NoError(p, one.Died())
	}
}

// all returns the broker and the last program of each name.
func (p *Processes) all() []*process.Process {
	if p.Broker == nil || p.Broker.Process == nil {
		return p.running
	}
	return append([]*process.Process{p.Broker.Process}, p.running...)
}

func (p *Processes) stop() {
	all := p.all()
	for _, one := range slices.Backward(all) { // the broker last
		if err := one.Stop(); err != nil {
			p.Error(err)
		}
	}
	if !p.Failed() {
		return
	}
	for _, one := range all {
		text, _ := os.ReadFile(one.Log)
		p.Logf("the end of the log of %s:\n%s", one.Name, bytes.ToValidUTF8(text[max(0, len(text)-8_000):], nil))
	}
}

package world

import (
	"cmp"
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// Part is what a test has of each part that it starts.
type Part struct {
	// Metrics are the metrics of the part, unless its test has set a Registerer.
	Metrics *prometheus.Registry
	// Log has what the part has logged, unless its test has set a Logger.
	Log *kit.Log
	// Stop ends the part before the end of the test. It may be called more than once.
	Stop func()

	world *World
}

func (w *World) newPart() Part {
	return Part{Metrics: prometheus.NewRegistry(), Log: &kit.Log{}, world: w}
}

func (p *Part) start(what string, run func(context.Context) error) {
	p.world.Helper()
	p.Stop = kit.Run(p.world, what, run)
}

// Metric returns the sum of the samples of a metric that have the labels, see [kit.Metric].
func (p *Part) Metric(name string, labels ...string) float64 {
	p.world.Helper()
	return kit.Metric(p.world, p.Metrics, name, labels...)
}

// Hub is a hub.
type Hub struct {
	*hub.Hub
	Part
}

// NewHub returns a hub that does not run yet, without leader election. change changes its usual
// configuration.
func (w *World) NewHub(change ...func(*hub.Config)) *Hub {
	w.Helper()
	h := &Hub{Part: w.newPart()}
	election := leader.NewOptions(string(w.Source))
	election.Disabled = true
	c := hub.Config{
		REST: w.Hub.REST(), Source: w.Source, Topics: w.Topics, Election: election, Registerer: h.Metrics, Logger: w.logger(h.Log),
	}
	for _, set := range change {
		set(&c)
	}
	if c.Transport == nil {
		c.Transport = w.Transport(string(w.Source), string(w.Source)+"-hub", c.Topics, c.Logger)
	}
	var err error
	h.Hub, err = hub.New(c)
	kit.NoError(w, err)
	return h
}

// Start starts a hub of NewHub.
func (h *Hub) Start() {
	h.world.Helper()
	h.start("hub", h.Run)
}

// StartHub starts a hub.
func (w *World) StartHub(change ...func(*hub.Config)) *Hub {
	w.Helper()
	h := w.NewHub(change...)
	h.Start()
	return h
}

// AwaitConnected waits until the hub is connected: it answers the first questions of agents that start
// then, and not those that they repeat, late.
func (h *Hub) AwaitConnected() *Hub {
	h.world.Helper()
	kit.True(h.world, "the hub is connected", func() bool { return h.Metric("workwire_source_connected") == 1 })
	return h
}

// Agent is an agent.
type Agent struct {
	*agent.Agent
	Part
}

// NewAgent returns the agent of a cluster, which does not run yet. change changes its usual configuration.
func (w *World) NewAgent(i int, change ...func(*agent.Config)) *Agent {
	w.Helper()
	a, name := &Agent{Part: w.newPart()}, string(w.Clusters[i])
	c := agent.Config{
		Cluster: w.Clusters[i], ClientID: name + "-agent", AgentID: name, Topics: w.Topics, Kube: w.Spokes[i].REST(),
		Registerer: a.Metrics, Logger: w.logger(a.Log), BrokerHost: w.BrokerHost,
		AboutInterval: -1, // announces again, and makes requests that tests count
	}
	if w.Broker != nil {
		c.BrokerHost = cmp.Or(w.BrokerHost, w.Broker.Addr)
	}
	for _, set := range change {
		set(&c)
	}
	if c.Transport == nil {
		c.Transport = w.Transport(name, c.ClientID, c.Topics, c.Logger)
	}
	var err error
	a.Agent, err = agent.New(c)
	kit.NoError(w, err)
	return a
}

// StartAgent starts the agent of a cluster.
func (w *World) StartAgent(i int, change ...func(*agent.Config)) *Agent {
	w.Helper()
	a := w.NewAgent(i, change...)
	a.start("agent of "+string(w.Clusters[i]), a.Run)
	return a
}

// Serve has an agent serve a source, or all for "+".
func Serve(source wire.SourceID) func(*agent.Config) {
	return func(c *agent.Config) { c.Topics = Topics(source) }
}

// SDK is a source of the SDK.
type SDK struct {
	*source.Client
	Part
}

// NewSDK returns a source of the SDK that does not run yet. change changes its usual configuration.
func (w *World) NewSDK(id wire.SourceID, change ...func(*source.Config)) *SDK {
	w.Helper()
	s := &SDK{Part: w.newPart()}
	c := source.Config{SourceID: id, Topics: Topics(id), StateFile: w.TempDir() + "/state.db", Registerer: s.Metrics, Logger: w.logger(s.Log)}
	for _, set := range change {
		set(&c)
	}
	if c.Transport == nil {
		c.Transport = w.Transport(string(id), string(id), c.Topics, c.Logger)
	}
	var err error
	s.Client, err = source.New(c)
	kit.NoError(w, err)
	return s
}

// StartSDK starts a source of the SDK.
func (w *World) StartSDK(id wire.SourceID, change ...func(*source.Config)) *SDK {
	w.Helper()
	s := w.NewSDK(id, change...)
	s.start("source "+string(id), s.Run)
	return s
}

// StartScripted starts an agent of a cluster that the test scripts. change changes its usual configuration.
func (w *World) StartScripted(cluster wire.ClusterName, change ...func(*wirekit.AgentConfig)) *wirekit.Agent {
	w.Helper()
	c := wirekit.AgentConfig{Cluster: cluster, Source: w.Source, Topics: w.Topics}
	for _, set := range change {
		set(&c)
	}
	if c.Transport == nil {
		c.Transport = w.Transport(string(cluster), string(cluster), c.Topics)
	}
	return wirekit.StartAgent(w, c)
}

// Package sim runs whole hubs and agents, the code that users run, in one process where time is simulated
// (testing/synctest), API servers are models (package kubeapi), the broker is in memory, and all of them fail at
// random. A seed chooses what people change, what breaks, and when.
//
//	w := sim.New(sim.Options{Seed: 1, Clusters: 3, Works: 10, Faults: 10 * time.Minute})
//	for _, fault := range w.Run() { ... }
package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

func kind(group, version, resource, name string, set ...func(*kubeapi.Kind)) kubeapi.Kind {
	k := kubeapi.Kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, Kind: name}
	for _, f := range set {
		f(&k)
	}
	return k
}

func clusterWide(k *kubeapi.Kind) { k.Cluster = true }
func withStatus(k *kubeapi.Kind)  { k.Status = true }

// hubKinds and clusterKinds are what the API servers serve.
var (
	hubKinds = []kubeapi.Kind{
		kind("", "v1", "namespaces", "Namespace", clusterWide), kind("", "v1", "configmaps", "ConfigMap"), kind("", "v1", "events", "Event"),
		kind("coordination.k8s.io", "v1", "leases", "Lease"),
		kind("work.open-cluster-management.io", "v1", "manifestworks", "ManifestWork", withStatus),
		kind("work.open-cluster-management.io", "v1alpha1", "manifestworkreplicasets", "ManifestWorkReplicaSet", withStatus),
		kind("cluster.open-cluster-management.io", "v1", "managedclusters", "ManagedCluster", clusterWide, withStatus),
		kind("cluster.open-cluster-management.io", "v1beta2", "managedclustersets", "ManagedClusterSet", clusterWide, withStatus),
		kind("cluster.open-cluster-management.io", "v1beta2", "managedclustersetbindings", "ManagedClusterSetBinding", withStatus),
		kind("cluster.open-cluster-management.io", "v1beta1", "placements", "Placement", withStatus),
		kind("cluster.open-cluster-management.io", "v1beta1", "placementdecisions", "PlacementDecision", withStatus),
		kind("cluster.open-cluster-management.io", "v1alpha1", "addonplacementscores", "AddOnPlacementScore", withStatus),
		kind("workwire.dev", "v1alpha1", "manifestworkreplicasetrevisions", "ManifestWorkReplicaSetRevision"),
		kind("workwire.dev", "v1alpha1", "workoverrides", "WorkOverride"),
		kind("workwire.dev", "v1alpha1", "rolloutplans", "RolloutPlan"),
	}
	clusterKinds = []kubeapi.Kind{
		kind("", "v1", "namespaces", "Namespace", clusterWide), kind("", "v1", "configmaps", "ConfigMap"), kind("", "v1", "events", "Event"),
		kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", clusterWide, withStatus),
		kind("work.open-cluster-management.io", "v1", "appliedmanifestworks", "AppliedManifestWork", clusterWide, withStatus),
	}
)

// hubSource is the id of the hub.
const hubSource = wire.SourceID("hub1")

var (
	topics = wire.Topics{
		SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
	agentTopics = wire.Topics{
		SourceEvents: "sources/+/clusters/+/sourceevents", AgentEvents: "sources/+/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
)

// Options say how large a world is, and what fails.
type Options struct {
	Seed     uint64
	Clusters int
	Works    int           // of each cluster
	Faults   time.Duration // how long there are changes and faults
	LeaveOut Numbers       // decisions that do not happen
	// Keys is a directory with keys (keys.go), with which hub and agents sign, so that nothing that is replayed
	// counts; empty: nobody signs.
	Keys string
	// Honest: the broker neither loses nor delays nor repeats what it has acknowledged, and agents send no digests: nothing may hang on those.
	Honest bool
	// Tight: likewise, and lists of all works do not fit the broker's packets, which the single works do.
	Tight bool
	// Restores: API servers are restored from backups often.
	Restores bool
	// State is a directory in which agents keep state; empty: none does.
	State string
}

// World is a hub, or two that share the clusters, and these. Its methods are called by one goroutine.
type World struct {
	o          Options
	random     *random
	trace      *trace
	logger     *slog.Logger // into trace
	broker     *memory.Broker
	hubAPI     *kubeapi.Server
	people     versioned.Interface // of the hub's API, without faults
	clusters   []*cluster
	hubs       []*program // one, two replicas of which one leads, or two that share the clusters
	term       *term
	holders    *holders
	away       map[string]bool // ids at the broker that cannot reach it
	sources    *replicas
	flaky      *flaky // the ways to all API servers
	liar       *liar  // the broker at its worst
	depot      *depot // likewise
	timers     []timer
	values     int // of ConfigMaps so far
	violations violations
	record     *record
	undone     *undone
	holds      *holds
	webhook    webhook
	admission  admission
	forger     *forger // nil: nobody signs
	backups    map[*kubeapi.Server]*kubeapi.Backup

	agreedAfter time.Duration
	end         time.Time // of the faults
	morning     time.Time // when the night ends, see night
}

// violations are what was found to be wrong. It is safe for concurrent use.
type violations struct {
	trace *trace
	mu    sync.Mutex
	found []string
}

func (v *violations) add(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.trace.note(check, text)
	v.found = append(v.found, time.Now().UTC().Format(clock)+" "+text)
}

func (v *violations) all() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.found
}

// cluster is a cluster.
type cluster struct {
	name   wire.ClusterName
	api    *kubeapi.Server
	people kubernetes.Interface // without faults
	works  versioned.Interface  // likewise
	agent  *program
	disk   disk // of the agent
	// restored says that its API was restored.
	restored bool
	contest  contest
}

// random is safe for concurrent use.
type random struct {
	seed uint64 // for of
	mu   sync.Mutex
	r    *rand.Rand
}

func (r *random) intN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.IntN(n)
}

// chance reports true with a probability of percent.
func (r *random) chance(percent int) bool { return r.intN(100) < percent }

func (r *random) upTo(d time.Duration) time.Duration { return time.Duration(r.intN(int(d)) + 1) }

// New returns a world in which nothing runs.
func New(o Options) *World {
	w := &World{
		o: o, random: &random{r: rand.New(rand.NewPCG(o.Seed, 0))}, trace: newTrace(), broker: memory.NewBroker(), hubAPI: kubeapi.New(hubKinds...), //nolint:gosec // a run is its seed
		flaky: &flaky{}, backups: map[*kubeapi.Server]*kubeapi.Backup{}, away: map[string]bool{},
	}
	w.logger = slog.New(slog.NewTextHandler(w.trace, &slog.HandlerOptions{Level: slog.LevelInfo}))
	network := &random{seed: o.Seed}
	w.flaky.random, w.liar, w.violations.trace = network, &liar{random: network}, w.trace
	w.depot = newDepot(network)
	w.record, w.undone = newRecord(&w.violations, o.Keys != ""), newUndone(&w.violations, o.Keys != "")
	w.holds = newHolds(&w.violations)
	w.term, w.holders = &term{violations: &w.violations}, &holders{violations: &w.violations, hubs: map[string]string{}}
	w.hubAPI.Observe(func(c kubeapi.Write) {
		w.trace.write("hub", c)
		w.record.hubWrite(c)
		w.undone.hubWrite(c)
		w.term.hubWrite(c)
		w.holders.hubWrite(c)
		w.holds.hubWrite(c)
	})
	w.people = versioned.NewForConfigOrDie(w.config("people", w.hubAPI.Via(kubeapi.Faults{})))
	for i := range o.Clusters {
		c := &cluster{name: clusterName(i), api: kubeapi.New(clusterKinds...)}
		c.api.Observe(func(change kubeapi.Write) {
			w.trace.write(string(c.name), change)
			w.record.clusterWrite(string(c.name), change)
			w.undone.clusterWrite(string(c.name), change)
			w.holds.clusterWrite(string(c.name), change)
			w.watchForged(string(c.name), change)
			c.answer(change)
		})
		people := w.config("people", c.api.Via(kubeapi.Faults{Mutate: w.admission.mutate}))
		c.people, c.works = kubernetes.NewForConfigOrDie(people), versioned.NewForConfigOrDie(people)
		if o.State != "" && w.random.chance(50) {
			c.disk.dir, c.disk.acks = filepath.Join(o.State, string(c.name)), map[string]acks{}
		}
		w.clusters = append(w.clusters, c)
	}
	if o.Tight {
		w.broker.SetLimit(tightLimit)
	}
	w.sources = w.newReplicas()
	w.addHubs()
	for _, c := range w.clusters {
		c.agent = &program{
			world: w, name: string(c.name), id: string(c.name) + "-agent", disk: &c.disk,
			start:    func(ctx context.Context, p *incarnation) error { return w.startAgent(ctx, p, c) },
			received: func(e cloudevents.Event) { w.undone.received(string(c.name), e) },
		}
	}
	return w
}

// addHubs adds the hub, with a standby, or one of two that share the clusters.
func (w *World) addHubs() {
	first := &program{world: w, name: "hub", id: "hub1-hub", start: w.startHub, disk: &disk{}}
	second := &program{world: w, name: "hub2", id: first.id, start: w.startHub, disk: &disk{}}
	w.hubs = []*program{first}
	if w.random.intN(2) == 0 {
		return
	}
	w.hubs = append(w.hubs, second)
	if w.random.chance(50) {
		first.shard, second.shard = shardA, shardB
		second.name, second.id = "hub-b", "hub1-hub-b"
	}
}

// shares reports whether another program has the id of p at the broker.
func (w *World) shares(p *program) bool {
	return slices.ContainsFunc(w.hubs, func(other *program) bool { return other != p && other.id == p.id })
}

func (w *World) config(user string, way http.RoundTripper) *rest.Config {
	c := &rest.Config{Host: "http://api", Transport: way, UserAgent: user + "/sim", QPS: -1}
	c.ContentType = runtime.ContentTypeJSON // the model has no protobuf
	return c
}

// startHub runs a replica of the hub, again each time when it has lost the Lease.
func (w *World) startHub(ctx context.Context, p *incarnation) error {
	for n := 1; ; n++ {
		if err := w.runHub(ctx, p, fmt.Sprintf("%s-%d-%d", p.program.name, p.number, n)); !errors.Is(err, leader.ErrLost) || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}

func (w *World) runHub(ctx context.Context, p *incarnation, identity string) error {
	shard := p.program.shard
	election := leader.NewOptions(shard.lease())
	election.Identity, election.Disabled = identity, len(w.hubs) == 1
	published := func(string, cloudevents.Event) { w.term.published(identity) }
	if shard != nil {
		published = func(topic string, e cloudevents.Event) { w.holders.published(shard.lease(), topic, e) }
	}
	c := hub.Config{
		REST: w.config("hub", p.way(w.hubAPI)), Source: hubSource, Topics: topics, Transport: p.transport(published), Election: election,
		AutoRegister: shard != shardB, AutoAccept: shard != shardB, WithoutClusterSets: true, Logger: w.logger.With("program", p.program.name),
	}
	if shard != nil {
		selector, err := labels.Parse(shard.selector)
		if err != nil {
			return err
		}
		c.ClusterSelector = selector
	}
	if w.o.Keys != "" {
		signer, trusted, err := openHubKeys(w.o.Keys, c.Logger, p.program.clock.now)
		if err != nil {
			return err
		}
		c.Sign, c.TrustedAgents = signer.Sign, trusted
	}
	h, err := hub.New(c)
	if err != nil {
		return err
	}
	return h.Run(ctx)
}

func (w *World) startAgent(ctx context.Context, p *incarnation, cluster *cluster) error {
	said := func(_ string, e cloudevents.Event) {
		if !p.dead() {
			w.undone.said(p.program.name, e)
		}
	}
	c := agent.Config{
		Cluster: cluster.name, ClientID: p.program.id, BrokerHost: "broker", Topics: agentTopics, Transport: p.transport(said), Now: p.program.clock.now,
		Kube: w.config("agent", p.way(cluster.api)), StateDir: cluster.disk.current(), StateCommit: cluster.disk.commits(p), Logger: w.logger.With("program", cluster.name),
		AboutInterval: -1, // the simulated API has no nodes and no version
	}
	if w.o.Honest || w.o.Tight {
		c.DigestInterval = -1
	}
	if w.o.Tight {
		c.Workers = 2 // fewer than works that are deleted at once
	}
	if w.o.Keys != "" {
		signer, trusted, err := openAgentKeys(w.o.Keys, c.Logger, p.program.clock.now)
		if err != nil {
			return err
		}
		c.Sign, c.TrustedKeys = signer.SignStatus, trusted
	}
	a, err := agent.New(c)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// program is a program that can be killed and started again.
type program struct {
	world   *World
	name    string
	id      string // at the broker
	start   func(context.Context, *incarnation) error
	running *incarnation // nil: it does not run
	starts  int
	version release      // from the next start on
	slow    atomic.Int64 // the most that it takes to read a message, as a time.Duration
	disk    *disk
	shard   *shard // of a hub; nil: it serves all clusters
	clock   wrongClock
	stall   stall // of its way to its API server
	// received is told of each message. Optional.
	received func(cloudevents.Event)
}

// incarnation is a program from its start to its end.
type incarnation struct {
	program *program
	number  int // of this start of the program
	version release
	cancel  context.CancelFunc
	mu      sync.Mutex
	killed  bool
	apart   bool // from the API
	online  bool // connected to the broker
}

func (p *program) run() {
	ctx, cancel := context.WithCancel(background)
	p.starts++
	i := &incarnation{program: p, number: p.starts, version: p.version, cancel: cancel}
	p.running = i
	p.world.trace.note(p.name, starts)
	p.world.undone.started(p.name)
	p.world.jumpClock(p)
	if !p.world.away[p.id] {
		p.world.broker.Restore(p.id)
	}
	go func() {
		if err := p.start(ctx, i); err != nil && !i.dead() {
			p.world.violations.add(p.name + " ended: " + err.Error())
		}
	}()
}

// kill ends the program as SIGKILL does: nothing that it still does has an effect.
func (p *program) kill() {
	i := p.running
	p.running = nil
	commit, behind := p.disk.cut(p.world, p.name)
	i.mu.Lock()
	i.killed = true
	i.mu.Unlock()
	p.world.trace.add(entry{actor: p.name, what: fmt.Sprintf("is killed, within a commit to its disk: %v, while that lacks what it holds: %v", commit, behind), rewinds: behind})
	if behind {
		p.world.record.rewound(p.name)
	}
	if i.is(&i.online) {
		p.world.broker.Cut(p.id)
	}
	i.cancel()
	if p.world.shares(p) && !p.world.away[p.id] {
		synctest.Wait()
		p.world.broker.Restore(p.id)
	}
}

// is returns what a field of i says.
func (i *incarnation) is(field *bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return *field
}

func (i *incarnation) set(field *bool, to bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	*field = to
}

func (i *incarnation) dead() bool { return i.is(&i.killed) }

// way is the way of the program to an API server.
func (i *incarnation) way(api *kubeapi.Server) http.RoundTripper {
	return api.Via(kubeapi.Faults{
		Request: func(method, path string) (time.Duration, kubeapi.Outcome) {
			if i.dead() || i.is(&i.apart) {
				return 0, kubeapi.Lost
			}
			wait := i.program.world.record.request(i.program.name)
			late, outcome := i.program.world.flaky.request(i.program.name + method + path)
			return wait + late, outcome
		},
		Lag:    func(resource string) time.Duration { return i.program.world.flaky.lag(i.program.name + resource) },
		Refuse: i.program.world.webhook.refuse,
		Mutate: i.program.world.admission.mutate,
		Stuck:  i.program.stall.stuck,
		Behind: func(resource string) int64 { return i.program.world.flaky.fromThePast(i.program.name + resource) },
	})
}

// transport is the connection of the program to the broker. published is told of each message; it is optional.
func (i *incarnation) transport(published func(topic string, e cloudevents.Event)) transport.Transport {
	w := i.program.world
	l := &link{
		Transport: w.broker.Client(i.program.id), trace: w.trace, liar: w.liar, depot: w.depot, id: i.program.id, dead: i.dead, reading: i.program.reading, delay: w.flaky.publish, received: i.program.received,
		published: published, online: func(is bool) { i.set(&i.online, is) },
	}
	if i.program.disk.dir != "" {
		l.delivered = i.program.disk.delivered
	}
	if i.version != nil {
		if received := l.received; received != nil {
			l.received = func(e cloudevents.Event) {
				if heard, known := i.version.plain(e); known {
					received(heard)
				}
			}
		}
		return plainTransport{l, i.version}
	}
	return l
}

// flaky decides what becomes of requests. It is safe for concurrent use.
type flaky struct {
	random *random
	mu     sync.Mutex
	broken int           // percent of requests
	slow   time.Duration // the most that a request takes
	late   time.Duration // the most that a watch event takes
	behind int           // the most changes by which a list is from the past
}

func (f *flaky) set(broken int, slow, late time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken, f.slow, f.late = broken, slow, late
}

// request is chosen by what is requested.
func (f *flaky) request(what string) (delay time.Duration, outcome kubeapi.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slow == 0 && f.broken == 0 {
		return time.Millisecond, kubeapi.Answered
	}
	random := f.random.of(what)
	delay = random.upTo(f.slow)
	if random.chance(f.broken) {
		outcome = []kubeapi.Outcome{kubeapi.Lost, kubeapi.Unanswered, kubeapi.Overloaded, kubeapi.Throttled, kubeapi.Repeated}[random.intN(5)]
	}
	return delay, outcome
}

// publish returns how long a message takes to the broker.
func (f *flaky) publish(what string) time.Duration {
	return f.chosen(&f.slow, what)
}

func (f *flaky) lag(what string) time.Duration { return f.chosen(&f.late, what) }

// chosen returns a time up to most, a field of f, which is 0 when nothing is late.
func (f *flaky) chosen(most *time.Duration, what string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *most == 0 {
		return 0
	}
	return f.random.of(what).upTo(*most)
}

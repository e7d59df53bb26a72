package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Defaults and limits of [Config].
const (
	DefaultParallel       = 64
	DefaultIntakeParallel = 16
	DefaultRepeatAfter    = 30 * time.Second
	maxParallel           = 1024
)

// Config says how a [Link] works.
type Config struct {
	// Source is the id of the source; required.
	Source wire.SourceID
	// Topics of the configuration; required, and they must fit Source.
	Topics wire.Topics
	// Transport to speak over; required. The Link runs it.
	Transport transport.Transport
	// Works is where the works are; required.
	Works Works

	// Parallel is how many publishes may be under way at a time: 1 to 1024, 0
	// for 64.
	Parallel int
	// IntakeParallel is how many calls of Works.Intake may be under way at a
	// time: 1 to 1024, 0 for 16.
	IntakeParallel int
	// RepeatAfter is how long a work may stay unconfirmed, while its cluster is
	// heard from, until it is published again; the pause doubles up to twenty
	// times as long. 0 for 30 s.
	RepeatAfter time.Duration

	// Held, if it is set, tells whether nothing may be published to a cluster for
	// now. What it is owed waits until [Link.Released]. It must not block.
	Held func(cluster wire.ClusterName) bool
	// Linked, if it is set, is called when there is a connection to the broker, and
	// when it is lost. It must not block.
	Linked func(up bool)
	// Heard, if it is set, is called for each message that comes from a cluster, p
	// being what an agent says of itself, if it is that (docs/protocol.md, Presence).
	// It must not block.
	Heard func(cluster wire.ClusterName, p *wire.Presence)

	// Logger gets a line about what goes wrong, with name and uid of the work,
	// and at debug level about each event. Nil is slog.Default.
	Logger *slog.Logger
	// Registerer gets the metrics workwire_source_*; nil for none.
	Registerer prometheus.Registerer
}

// validate fills in the defaults and reports every fault.
func (c *Config) validate() error {
	var faults []error
	if c.Transport == nil {
		faults = append(faults, errors.New("Transport is required"))
	}
	if c.Works == nil {
		faults = append(faults, errors.New("Works is required"))
	}
	for _, number := range []struct {
		name  string
		value *int
		usual int
	}{{"Parallel", &c.Parallel, DefaultParallel}, {"IntakeParallel", &c.IntakeParallel, DefaultIntakeParallel}} {
		if *number.value == 0 {
			*number.value = number.usual
		}
		if *number.value < 1 || *number.value > maxParallel {
			faults = append(faults, fmt.Errorf("%s is %d: want 1 to %d, or 0 for %d", number.name, *number.value, maxParallel, number.usual))
		}
	}
	if c.RepeatAfter == 0 {
		c.RepeatAfter = DefaultRepeatAfter
	}
	if c.RepeatAfter < 0 {
		faults = append(faults, fmt.Errorf("RepeatAfter is %s: want a time above 0, or 0 for %s", c.RepeatAfter, DefaultRepeatAfter))
	}
	if c.Held == nil {
		c.Held = func(wire.ClusterName) bool { return false }
	}
	if c.Linked == nil {
		c.Linked = func(bool) {}
	}
	if c.Heard == nil {
		c.Heard = func(wire.ClusterName, *wire.Presence) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(faults...)
}

// Link is a source's session with its agents. All methods may be called at the
// same time from any goroutine.
type Link struct {
	config  Config
	topics  wire.SourceTopics
	log     *slog.Logger
	metrics *metrics

	mu     sync.Mutex
	ledger *ledger       // guarded by mu
	wake   chan struct{} // room for one: the ledger may have a turn to give

	intakes *lane[key, intake]
	resyncs *lane[wire.ClusterName, resync]
}

// New makes a Link. It does no I/O and starts nothing. It fails on a faulty
// Config, naming every fault, and when metrics are registered twice.
func New(config Config) (*Link, error) {
	faults := config.validate()
	topics, err := config.Topics.ForSource(config.Source)
	if err := errors.Join(faults, err); err != nil {
		return nil, fmt.Errorf("source %q: %w", config.Source, err)
	}
	l := &Link{
		config: config,
		topics: topics,
		log:    config.Logger.With("source", config.Source),
		ledger: newLedger(config.RepeatAfter, config.Held),
		wake:   make(chan struct{}, 1),
	}
	l.intakes = newLane(mergeIntakes, l.intake)
	l.resyncs = newLane(mergeResyncs, l.resync)
	if l.metrics, err = newMetrics(config.Registerer, l); err != nil {
		return nil, fmt.Errorf("source %q: register metrics: %w", config.Source, err)
	}
	return l, nil
}

// Run runs the transport and keeps agents and Works up to date until ctx ends;
// it returns nil then, after everything it started has ended. It fails when the
// transport does. Statuses that were acknowledged and not yet taken in are asked
// for again at the next start. Run must be called once, when Works is complete.
func (l *Link) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { pump(ctx, l.config.Parallel, l.wake, publisher{l}) })
	running.Go(func() { pump(ctx, l.config.IntakeParallel, l.intakes.wake, l.intakes) })
	running.Go(func() { pump(ctx, resyncParallel, l.resyncs.wake, l.resyncs) })
	for name := range l.config.Works.Clusters() {
		for work := range l.config.Works.OfCluster(name) {
			l.Changed(work.UID)
		}
	}
	err := l.config.Transport.Run(ctx, transport.Handler{
		Subscriptions: l.topics.Subscriptions(),
		Connected:     l.connected,
		Received:      l.received,
		Lost: func(reason error) {
			l.log.Info("connection lost", "reason", reason)
			l.config.Linked(false)
		},
	})
	if err != nil {
		return fmt.Errorf("source %q: %w", l.config.Source, err)
	}
	return nil
}

// Changed tells that the work with uid is new in Works, or has changed there; it
// may be called for every change, since only what concerns the agent is
// published. It never waits, and may be called before Run.
func (l *Link) Changed(uid types.UID) {
	held, ok := l.config.Works.Get(uid)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.changed(keyOf(held.Work))
	signal(l.wake)
}

// Gone tells that a work is no longer in Works; last is its last known state. It
// is forgotten when its agent has reported Deleted, and its deletion is published
// until then otherwise. It never waits, and may be called before Run.
func (l *Link) Gone(last *workv1.ManifestWork) {
	meta := metadataFor(&last.ObjectMeta)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.vanished(keyOf(last), goneWork{
		generation: wire.Generation(last.Generation),
		deletedAt:  last.DeletionTimestamp,
		meta:       &meta,
	})
	signal(l.wake)
}

// Released tells that a cluster is not held any more, see [Config.Held]: what it
// is owed is published. It never waits.
func (l *Link) Released(cluster wire.ClusterName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.released(cluster)
	signal(l.wake)
}

// Probe asks a cluster for a sign of life, which [Config.Heard] is told of. It
// never waits.
func (l *Link) Probe(cluster wire.ClusterName) { l.resyncs.put(cluster, resync{probe: true}) }

// Connected reports whether there is a connection to the broker.
func (l *Link) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.connected != 0
}

// connected is the transport's report of a connection, which lasts as long as ctx.
func (l *Link) connected(ctx context.Context, c transport.Connection) {
	l.mu.Lock()
	number := l.ledger.connect(c.Limit)
	l.mu.Unlock()
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ledger.disconnect(number)
	})
	signal(l.wake)
	l.config.Linked(true)
	l.log.Info("connected", "resumed", c.Resumed, "packetLimit", c.Limit)
	for name := range l.config.Works.Clusters() {
		l.resyncs.put(name, resync{ask: true})
	}
	l.probeAll(ctx)
}

func keyOf(work *workv1.ManifestWork) key {
	return key{uid: work.UID, cluster: wire.ClusterName(work.Namespace)}
}

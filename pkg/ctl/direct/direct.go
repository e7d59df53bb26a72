// Package direct applies and deletes works straight over a broker, as a source that keeps nothing
// between two runs.
//
//	results, err := direct.Run(ctx, direct.Config{Broker: broker, Works: works, Goal: goal, Show: func(r direct.Result) { … }})
//
// A run sends each work and asks for its status. It does not answer agents that ask for works: an agent
// that gets no answer keeps what it has, whereas an answer would have to name all works of the source
// (docs/adr/0035-a-source-without-memory.md). It does answer an agent that demands signatures and
// asks for a proof that they are new (docs/protocol.md, Signatures), and sends its works once more.
package direct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/security/sourcekeys"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// Config configures [Run].
type Config struct {
	// Broker is the transport configuration of the source, with its topics; required.
	Broker config.Config
	// Works are the works, checked by [Check]; required.
	Works []*workv1.ManifestWork
	// Delete deletes the works instead of applying them.
	Delete bool
	// Goal is what Run waits for if Wait is set and Delete is not.
	Goal fleet.Goal
	// Wait waits for the agents' answers; otherwise Run ends when the broker has acknowledged the events.
	Wait bool
	// Keys to sign and seal with, and of agents.
	Keys sourcekeys.Keys
	// Show is called for each change of a result, not concurrently. Optional.
	Show func(Result)
}

// Result is how far a work has got.
type Result struct {
	Cluster string    `json:"cluster"`
	Name    string    `json:"name"`
	UID     types.UID `json:"uid"`
	// Version is that of the spec that was sent: seconds since 2025.
	Version int64 `json:"version"`
	// Done reports whether what Run waits for has happened.
	Done bool `json:"done"`
	// Message is the newest that is known.
	Message string `json:"message"`
	// Failure is why it will not happen, empty unless that is so; Hint is what to do.
	Failure string `json:"failure,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// Run sends the works and waits as configured. It returns a result for each work, and an error if it
// could not send or wait: that of ctx if ctx has ended. It takes a second, so that the next run has later versions.
func Run(ctx context.Context, c Config) ([]Result, error) {
	if c.Show == nil {
		c.Show = func(Result) {}
	}
	r := &run{Config: c, connection: connection{keys: &c.Keys, verifier: newVerifier(&c.Keys, time.Now())}, mailbox: mailbox{newest: map[types.UID]*wire.Status{}, proofs: map[wire.ClusterName][]wire.SpecVersion{}, wake: make(chan struct{}, 1)}, orders: map[types.UID]*order{}}
	for _, work := range c.Works {
		o := newOrder(work, c.Delete, c.Goal, time.Now())
		r.orders[work.UID], r.list = o, append(r.list, o)
	}
	err := r.run(ctx)
	select {
	case <-time.After(untilLater(r.list, time.Now())):
	case <-ctx.Done():
	}
	results := make([]Result, len(r.list))
	for i, o := range r.list {
		results[i] = o.result
	}
	return results, err
}

// run is one run. Only its mailbox is shared with another goroutine.
type run struct {
	Config
	mailbox
	connection
	orders map[types.UID]*order // read-only once the connection is made
	list   []*order
}

func (r *run) run(ctx context.Context) error {
	if err := r.connect(ctx, r.Broker, r.received); err != nil {
		return err
	}
	defer r.conn.Close()
	if r.Wait {
		for i, filter := range r.topics.Subscriptions() {
			if i > 0 && r.Keys.Sign == nil {
				break // agents of one source ask for proofs on the broadcast topic, if there is one
			}
			if err := r.subscribe(ctx, filter); err != nil {
				return err
			}
		}
	}
	for _, o := range r.list {
		if err := r.send(ctx, o); err != nil {
			return err
		}
	}
	if !r.Wait {
		return nil
	}
	return r.await(ctx)
}

// send sends a work, and then asks for its status: an agent that holds a later version drops the spec
// without an answer.
func (r *run) send(ctx context.Context, o *order) error {
	cluster := wire.ClusterName(o.work.Namespace)
	heard, err := r.publish(ctx, cluster, o.spec(r.source, time.Now()))
	if r.ended(ctx, err) {
		return advised(err)
	}
	o.sent(heard, err)
	if o.open() && r.Wait {
		_, err = r.publish(ctx, cluster, &wire.StatusResync{
			Source: r.source, Cluster: cluster, Reply: true, Hashes: []wire.StatusVersion{{UID: o.work.UID, Hash: wire.NoStatus}},
		})
		if err != nil {
			return advised(err)
		}
	}
	if !r.Wait && o.open() {
		o.result.Done, o.result.Message = true, "sent"
	}
	r.Show(o.result)
	return nil
}

// await handles statuses until no order is open.
func (r *run) await(ctx context.Context) error {
	for {
		open := false
		for _, o := range r.list {
			open = open || o.open()
		}
		if !open {
			return nil
		}
		select {
		case <-ctx.Done():
			for _, o := range r.list {
				if o.open() {
					o.result.Hint = cmp.Or(r.verifier.hint(wire.ClusterName(o.work.Namespace)), o.result.Hint)
				}
			}
			return ctx.Err()
		case <-r.conn.Done():
			return r.lost()
		case <-r.wake:
		}
		statuses, proofs := r.drain()
		for cluster, probes := range proofs {
			if err := r.prove(ctx, cluster, probes); err != nil {
				return err
			}
		}
		for _, s := range statuses {
			o := r.orders[s.UID]
			before := o.result
			if o.receive(s, time.Now()) {
				if err := r.send(ctx, o); err != nil {
					return err
				}
			} else if o.result != before {
				r.Show(o.result)
			}
		}
	}
}

// prove signs the answer that an agent asks for before it believes anything, and then sends the works of
// its cluster once more, which it has dropped.
func (r *run) prove(ctx context.Context, cluster wire.ClusterName, probes []wire.SpecVersion) error {
	for _, probe := range probes {
		_, err := r.publish(ctx, cluster, &wire.Spec{
			UID: probe.UID, Generation: probe.Generation, Source: r.source, Cluster: cluster, Action: wire.Delete, NoMetadata: true,
			DeletionTimestamp: &metav1.Time{Time: time.Now()},
		})
		if err != nil {
			return advised(err)
		}
	}
	for _, o := range r.list {
		if o.work.Namespace != string(cluster) || !o.open() || o.sends >= maxSends {
			continue
		}
		if err := r.send(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// asksForProof reports whether a request is for nothing but a work that no source has. A request for
// works has such a one, too; its answer would tell the agent that the source has no works. The answer is
// the deletion of the work: whoever owns the broker must not get one of a work that there is. Works of this
// source have ids of version 5 ([wire.UIDFor]), agents make random ones.
func asksForProof(m *wire.SpecResync) bool {
	if !m.Partial || len(m.Versions) != 1 || !m.Versions[0].Probe {
		return false
	}
	id, err := uuid.Parse(string(m.Versions[0].UID))
	return err == nil && id.Version() == 4
}

// received puts what concerns the works into the mailbox. It is called by the connection.
func (r *run) received(received mqtt.Received) {
	if received.Err != nil {
		return
	}
	_, cluster, _ := wire.TopicSender(received.Topic)
	message, err := wire.Decode(received.Event)
	if err != nil {
		return
	}
	switch m := message.(type) {
	case *wire.Status:
		if o := r.orders[m.UID]; o != nil && m.Source == r.source && m.Cluster == cluster && o.work.Namespace == string(cluster) &&
			r.verifier.believes(received, cluster, m.UID, time.Now()) {
			r.put(m)
		}
	case *wire.SpecResync:
		if r.Keys.Sign != nil && m.Source == r.source && m.Cluster == cluster && asksForProof(m) && r.verifier.believes(received, cluster, "", time.Now()) {
			r.putProof(m)
		}
	}
}

// mailbox keeps the newest status of each work, and the newest request for a proof of each cluster, until
// they are taken, so that nothing is lost while run publishes.
type mailbox struct {
	mu     sync.Mutex
	newest map[types.UID]*wire.Status
	proofs map[wire.ClusterName][]wire.SpecVersion
	wake   chan struct{}
}

func (m *mailbox) put(s *wire.Status) {
	m.mu.Lock()
	m.newest[s.UID] = s
	m.mu.Unlock()
	m.signal()
}

func (m *mailbox) putProof(request *wire.SpecResync) {
	m.mu.Lock()
	m.proofs[request.Cluster] = request.Versions
	m.mu.Unlock()
	m.signal()
}

func (m *mailbox) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) drain() (statuses []*wire.Status, proofs map[wire.ClusterName][]wire.SpecVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.newest {
		statuses = append(statuses, s)
	}
	proofs = maps.Clone(m.proofs)
	clear(m.newest)
	clear(m.proofs)
	return statuses, proofs
}

// Failed returns the first failure, nil if there is none.
func Failed(results []Result) error {
	var errs []error
	hint := ""
	for i := range results {
		if f := &results[i]; f.Failure != "" {
			errs = append(errs, fmt.Errorf("%s/%s: %s", f.Cluster, f.Name, f.Failure))
			hint = cmp.Or(hint, f.Hint)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return cli.Errorf("%w", errors.Join(errs...)).Do("%s", hint)
}

package direct

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/sourcekeys"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// DiffConfig configures [Diff].
type DiffConfig struct {
	// Broker is the transport configuration of the source, with its topics; required.
	Broker config.Config
	// Works are the works, checked by [Works]; required.
	Works []*workv1.ManifestWork
	// Timeout is how long to wait for the answer about each work; required.
	Timeout time.Duration
	// AtOnce is how many works are asked about at a time; default 1.
	AtOnce int
	// Keys to sign and seal with, and of agents.
	Keys sourcekeys.Keys
	// Show is called with each result, as they come and not concurrently. Optional.
	Show func(Difference)
}

// Difference is what a work would change on its cluster.
type Difference struct {
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
	// Generation is that of the work that the agent holds under the name, 0 if it holds none.
	Generation int64 `json:"generation"`
	// Objects are those of the work, in its order, and those that it would drop.
	Objects []wire.DryRunObject `json:"objects"`
	// Failure is why there is no answer, empty if there is one; Hint is what to do.
	Failure string `json:"failure,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// TimedOut reports that Failure is the silence of the agent, and Unheard that nobody subscribes to its topic.
	TimedOut bool `json:"-"`
	Unheard  bool `json:"-"`
}

// Changes reports whether the work would change anything, or could not be applied whole.
func (d *Difference) Changes() bool {
	return slices.ContainsFunc(d.Objects, func(o wire.DryRunObject) bool {
		return o.Result != wire.DryRunUnchanged && o.Result != wire.DryRunReadOnly && o.Result != wire.DryRunKept
	})
}

// Diff asks the agents of works what each work would change, by dry runs of their clusters' API servers
// (docs/protocol.md, Dry runs). Nothing is stored anywhere. It returns a result for each work that it could
// ask about, in their order, and an error if it could not ask or if ctx has ended.
func Diff(ctx context.Context, c DiffConfig) (results []Difference, err error) {
	if c.Show == nil {
		c.Show = func(Difference) {}
	}
	d := &diff{
		DiffConfig: c, connection: connection{keys: &c.Keys, verifier: newVerifier(&c.Keys, time.Now())}, waiting: map[string]chan *wire.DryRunAnswer{},
	}
	if err := d.connect(ctx, c.Broker, d.received); err != nil {
		return nil, err
	}
	defer d.conn.Close()
	if err := d.subscribe(ctx, d.topics.Subscriptions()[0]); err != nil {
		return nil, err
	}
	return d.askAll(ctx)
}

// diff is one run.
type diff struct {
	DiffConfig
	connection

	mu      sync.Mutex                         // guards waiting, and calls of Show
	waiting map[string]chan *wire.DryRunAnswer // by cluster and id of the question
}

// askAll asks about all works, at most AtOnce at a time.
func (d *diff) askAll(ctx context.Context) (results []Difference, err error) {
	answered := make([]*Difference, len(d.Works))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, d.AtOnce))
	for i, work := range d.Works {
		group.Go(func() error {
			if ctx.Err() != nil { // of one that was asked before
				return ctx.Err()
			}
			result, err := d.ask(ctx, work)
			if err != nil {
				return err
			}
			answered[i] = result
			d.mu.Lock()
			defer d.mu.Unlock()
			d.Show(*result)
			return nil
		})
	}
	err = group.Wait()
	for _, result := range answered {
		if result != nil {
			results = append(results, *result)
		}
	}
	return results, err
}

// expect returns the channel that the answer to a question comes on, and what ends that.
func (d *diff) expect(cluster wire.ClusterName, id string) (answer chan *wire.DryRunAnswer, done func()) {
	answer = make(chan *wire.DryRunAnswer, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting[string(cluster)+"/"+id] = answer
	return answer, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waiting, string(cluster)+"/"+id)
	}
}

// received keeps an answer. It is called by the connection.
func (d *diff) received(m mqtt.Received) {
	if m.Err != nil {
		return
	}
	message, err := wire.Decode(m.Event)
	answer, ok := message.(*wire.DryRunAnswer)
	_, cluster, _ := wire.TopicSender(m.Topic)
	if err != nil || !ok || answer.Source != d.source || answer.Cluster != cluster || !d.verifier.believes(m, cluster, "", time.Now()) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case d.waiting[string(cluster)+"/"+answer.ID] <- answer:
	default: // nobody waits for it, or there was one
	}
}

// ask asks about one work. The error is that of the connection.
func (d *diff) ask(ctx context.Context, work *workv1.ManifestWork) (*Difference, error) {
	result := &Difference{Cluster: work.Namespace, Name: work.Name}
	question := &wire.DryRun{
		ID: uuid.NewString(), Source: d.source, Cluster: wire.ClusterName(work.Namespace), Work: work.Name,
		Bundle: wire.NewBundle(&work.Spec), Expires: time.Now().Add(d.Timeout),
	}
	answer, done := d.expect(question.Cluster, question.ID)
	defer done()
	heard, err := d.publish(ctx, question.Cluster, question)
	switch {
	case d.ended(ctx, err):
		return nil, advised(err)
	case err != nil:
		result.Failure, result.Hint = reasonOf(err)
		return result, nil
	case !heard:
		result.Unheard = true
		result.Failure, result.Hint = "no agent subscribes to the cluster's topic", "check the cluster's name, and that its agent runs and listens to this source"
		return result, nil
	}
	return result, d.await(ctx, answer, result)
}

// await waits for the answer to a question.
func (d *diff) await(ctx context.Context, answers <-chan *wire.DryRunAnswer, result *Difference) error {
	timeout := time.NewTimer(d.Timeout)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.conn.Done():
		return d.lost()
	case <-timeout.C:
		result.TimedOut = true
		result.Failure = fmt.Sprintf("the agent has not answered within %s", d.Timeout)
		result.Hint = "it is away, is an agent that knows no dry runs (of Open Cluster Management, or of an earlier version), or demands signatures: --signing-key"
		if d.Keys.Seal != nil {
			result.Hint += "; or it cannot open what is sealed"
		}
		result.Hint = cmp.Or(d.verifier.hint(wire.ClusterName(result.Cluster)), result.Hint)
		return nil
	case answer := <-answers:
		result.Generation, result.Objects, result.Failure = int64(answer.Generation), answer.Objects, answer.Failure
		return nil
	}
}

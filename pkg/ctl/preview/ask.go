package preview

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/direct"
	"github.com/workwire/workwire/pkg/security/sourcekeys"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
)

// AskConfig configures [Plan.Ask].
type AskConfig struct {
	// Broker is the transport configuration of the hub; required.
	Broker config.Config
	// Keys are those of the hub.
	Keys sourcekeys.Keys
	// Timeout is how long to wait for each cluster; required.
	Timeout time.Duration
	// AtOnce is how many clusters are asked at a time; default 1.
	AtOnce int
	// Progress is called after each cluster with how many of all have answered or will not. Optional.
	Progress func(done, all int)
}

// Ask asks the clusters that were chosen, and completes the results. The error is that of the connection to the broker.
func (p *Plan) Ask(ctx context.Context, c AskConfig) error {
	id, topics, err := direct.SourceOf(c.Broker.Topics)
	if err != nil {
		return err
	}
	asked := make(map[workKey]*Result)
	d := direct.DiffConfig{Broker: c.Broker, Timeout: c.Timeout, Keys: c.Keys, AtOnce: c.AtOnce}
	for i := range p.Results {
		r := &p.Results[i]
		if r.State != "" {
			continue
		}
		work, err := p.work(r, id, topics)
		if err != nil {
			r.State, r.Message = Failed, err.Error()
			continue
		}
		asked[workKey{r.Cluster, r.Work}] = r
		d.Works = append(d.Works, work)
	}
	if len(d.Works) == 0 {
		return nil
	}
	done := 0
	d.Show = func(answer direct.Difference) {
		r := asked[workKey{answer.Cluster, answer.Name}]
		r.asked = true
		r.add(&answer, p.known[workKey{answer.Cluster, answer.Name}], id)
		if done++; c.Progress != nil {
			c.Progress(done, len(d.Works))
		}
	}
	_, err = direct.Diff(ctx, d)
	return err
}

// workKey names a work.
type workKey struct{ cluster, name string }

// work returns the work of a result, as its cluster would get it.
func (p *Plan) work(r *Result, id wire.SourceID, topics wire.SourceTopics) (*workv1.ManifestWork, error) {
	spec, err := p.render(r.Cluster)
	if err != nil {
		return nil, err
	}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster, Name: r.Work, UID: wire.UIDFor(id, r.Cluster, r.Work)}, Spec: *spec}
	work.Spec.Workload.Manifests = slices.Clone(spec.Workload.Manifests) // which the check changes
	return work, source.Check(work, topics)
}

// add completes a result with the answer. known is whether the agent has reported a status of the work to the hub.
func (r *Result) add(answer *direct.Difference, known bool, id wire.SourceID) {
	r.Generation, r.Objects = answer.Generation, answer.Objects
	switch {
	case answer.Unheard || answer.TimedOut:
		r.State, r.Message = Away, answer.Failure
	case answer.Failure != "":
		r.State, r.Message = Failed, answer.Failure
	case known && answer.Generation == 0: // it would tell of no deletion, and of objects as if nobody had them
		r.State, r.Objects = Failed, nil
		r.Message = fmt.Sprintf("the agent holds no work %s of the source %s: is this the hub's transport configuration?", r.Work, id)
	default:
		r.State = Answered
	}
}

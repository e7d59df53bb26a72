package agent

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/condition"
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/outbox"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// report makes status the work's newest one. A spec that was refused shows in
// it.
func (a *Agent) report(entry *inbox.Entry, status workv1.ManifestWorkStatus) {
	generation := entry.Generation
	if entry.Refusal != nil {
		generation = max(generation, entry.Refusal.Generation)
		var previous workv1.ManifestWorkStatus
		if last, ok := a.outbox.Last(entry.Key); ok {
			previous = last.Status
		}
		status = condition.Refused(status, previous, int64(generation), entry.Refusal.Message, metav1.Now())
	}
	a.outbox.Set(entry.Key, outbox.Status{
		Generation: generation, Cluster: entry.Cluster, Meta: entry.Meta, Status: status, Trace: entry.Trace,
	})
}

// reportUnrecorded tells that nothing was applied because the record could not
// be made.
func (a *Agent) reportUnrecorded(entry *inbox.Entry, manifests []strategy.Manifest, err error) {
	outcomes := make([]strategy.Outcome, len(manifests))
	for i := range outcomes {
		outcomes[i].Err = err
		if live := a.objects.Get(manifests[i].Ref); live.State == object.Present {
			outcomes[i].Live = live.Object
		}
	}
	a.report(entry, a.statusOf(entry, manifests, outcomes, nil))
}

// statusOf makes the work's status of what became of its manifests, and of what
// could not be read.
func (a *Agent) statusOf(entry *inbox.Entry, manifests []strategy.Manifest, outcomes []strategy.Outcome, unread map[int]error) workv1.ManifestWorkStatus {
	in := condition.Input{Generation: int64(entry.Generation), Manifests: make([]condition.Manifest, len(manifests)), Now: metav1.Now()}
	if last, ok := a.outbox.Last(entry.Key); ok {
		in.Previous = &last.Status
	}
	for i := range manifests {
		m, outcome := &manifests[i], &outcomes[i]
		c := condition.Manifest{Meta: m.Meta, ApplyError: outcome.Err, HasFeedback: len(m.FeedbackRules) > 0}
		var ignoreFields *strategy.IgnoreFieldsError
		c.IgnoreFields = errors.As(outcome.Err, &ignoreFields)
		c.Sight, c.ReadError = a.sight(m, outcome, unread[i])
		if c.Sight == condition.Seen && c.HasFeedback {
			c.Values, c.FeedbackError = a.feedback.Values(m.FeedbackRules, outcome.Live)
		}
		for _, rule := range m.ConditionRules {
			c.Rules = append(c.Rules, rule.Condition)
		}
		in.Manifests[i] = c
	}
	return condition.Work(in)
}

// sight says what is known of a manifest's object.
func (a *Agent) sight(m *strategy.Manifest, outcome *strategy.Outcome, unread error) (condition.Sight, error) {
	switch {
	case unread != nil:
		return condition.Unreadable, unread
	case outcome.Live != nil:
		return condition.Seen, nil
	case m.Ref == object.Ref{} && m.Meta.Resource == "":
		return condition.Unresolved, nil
	case outcome.Err == nil, apierrors.IsNotFound(outcome.Err), a.objects.Get(m.Ref).State == object.Absent, m.Err != nil:
		return condition.Missing, nil
	default:
		return condition.Unreadable, outcome.Err
	}
}

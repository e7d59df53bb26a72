package agent

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/condition"
	"github.com/workwire/workwire/pkg/agent/conditionrules"
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
		status = condition.InvalidStatus(status, previous, int64(generation), entry.Refusal.Message, metav1.Now())
	}
	a.outbox.Set(entry.Key, outbox.Status{
		Generation: generation, Cluster: entry.Cluster, Meta: &entry.Meta, Status: status, Trace: entry.Trace,
	})
}

// reportUnrecorded tells that nothing was applied because the record could not
// be made.
func (a *Agent) reportUnrecorded(ctx context.Context, u *under, err error) {
	u.outcomes = make([]strategy.Outcome, len(u.manifests))
	for i := range u.outcomes {
		u.outcomes[i] = strategy.Outcome{Err: err, Live: u.sights[i].live.Object}
	}
	a.report(u.entry, a.statusOf(ctx, u))
}

// statusOf makes the work's status of what became of its manifests, and of what
// could not be read.
func (a *Agent) statusOf(ctx context.Context, u *under) workv1.ManifestWorkStatus {
	in := condition.Input{
		Generation: int64(u.entry.Generation), Manifests: make([]condition.Manifest, len(u.manifests)),
		Previous: &u.previous, Now: metav1.Now(),
	}
	for i := range u.manifests {
		m, live := &u.manifests[i], u.liveOf(i)
		c := condition.Manifest{Meta: m.Meta, ApplyError: u.faultOf(i), HasFeedback: len(m.FeedbackRules) > 0}
		var ignoreFields *strategy.IgnoreFieldsError
		c.IgnoreFields = errors.As(c.ApplyError, &ignoreFields)
		if c.ApplyError == nil {
			c.ApplyError = u.memory.fightFor(m.Ref)
		}
		c.Presence, c.ReadError = a.sightOf(u, i, live)
		if c.Presence == condition.Present && c.HasFeedback {
			c.Values, c.FeedbackError = a.feedback.Values(m.FeedbackRules, live)
		}
		c.Rules = ruleTypes(m)
		c.Evaluated = u.sights[i].of(ctx, a.rules, m, live)
		in.Manifests[i] = c
	}
	return condition.WorkStatus(in)
}

// ruleTypes are the conditions that a manifest's rules may set.
func ruleTypes(m *strategy.Manifest) []string {
	return conditionrules.ConditionTypes(m.ConditionRules, schema.GroupVersionKind{Group: m.Meta.Group, Version: m.Meta.Version, Kind: m.Meta.Kind})
}

// liveOf gives the object of a manifest as it is after the pass, nil if there is
// none or it is not known.
func (u *under) liveOf(i int) *unstructured.Unstructured {
	if seenBefore(&u.manifests[i], &u.outcomes[i]) {
		return u.sights[i].live.Object
	}
	return u.outcomes[i].Live
}

// seenBefore says whether a manifest's object is as it was seen before applying,
// which has not touched it.
func seenBefore(m *strategy.Manifest, outcome *strategy.Outcome) bool {
	return outcome.Action == strategy.Observed || outcome.Action == strategy.Left || readOnly(m)
}

// faultOf says why a manifest is not applied, nil if it is. While repairs are
// held back that is why it was not before.
func (u *under) faultOf(i int) error {
	if u.resting && u.outcomes[i].Action == strategy.Left && i < len(u.memory.errs) {
		return u.memory.errs[i]
	}
	return u.outcomes[i].Err
}

// sightOf says what is known of a manifest's object.
func (a *Agent) sightOf(u *under, i int, live *unstructured.Unstructured) (condition.Presence, error) {
	m, outcome := &u.manifests[i], &u.outcomes[i]
	switch {
	case u.sights[i].err != nil:
		return condition.Unreadable, u.sights[i].err
	case live != nil:
		return condition.Present, nil
	case m.Ref == object.Ref{} && m.Meta.Resource == "":
		return condition.Unresolved, nil
	case seenBefore(m, outcome):
		return condition.Missing, nil
	case outcome.Err == nil, apierrors.IsNotFound(outcome.Err), a.objects.Get(m.Ref).State == object.Absent, m.Err != nil:
		return condition.Missing, nil
	default:
		return condition.Unreadable, outcome.Err
	}
}

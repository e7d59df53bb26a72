package reconcile

import (
	"cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/security/audit"
)

// auditOf returns a record that names a work.
func auditOf(work *inbox.Entry) audit.Record {
	return audit.Record{Source: work.Source, Cluster: work.Cluster, Work: work.Meta.Name, UID: work.UID, Generation: work.Generation}
}

// auditApplied records what became of manifest i, unless nothing was written and nothing refused.
func (r *Reconciler) auditApplied(rec *reconciliation, i int) {
	m, outcome := &rec.manifests[i], &rec.outcomes[i]
	if !rec.wrote(i) && outcome.Err == nil {
		return
	}
	record := auditOf(rec.work)
	record.Event, record.Verdict, record.Digest = audit.Apply, outcome.Action.String(), m.Hash
	if m.Ref != (object.Ref{}) {
		record.Object = m.Ref.String()
	}
	if rec.account != nil {
		record.Identity = rec.account.String()
	}
	switch {
	case unmoved(outcome.Err):
		record.Verdict = "denied"
	case outcome.Err != nil:
		record.Reason = errorReason(outcome.Err)
	}
	r.Audit.Write(record)
}

// auditRemoved records that an object is gone, or that its removal failed. base names its work.
func (r *Reconciler) auditRemoved(base audit.Record, ref object.Ref, removal *apply.RemovalOutcome) {
	base.Event, base.Object = audit.Remove, ref.String()
	switch {
	case removal.Gone:
		base.Verdict, base.Reason = "removed", string(removal.Step)
	case removal.Err != nil:
		base.Verdict, base.Reason = "failed", errorReason(removal.Err)
	default:
		return // it waits for its finalizers, or for others
	}
	r.Audit.Write(base)
}

// errorReason returns the API server's reason for an error, "Other" for an error that is not its.
func errorReason(err error) string { return cmp.Or(string(apierrors.ReasonForError(err)), "Other") }

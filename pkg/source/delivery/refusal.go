package delivery

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// This file tells why a publish was refused. What follows from it is in attempt.go and plan.go.

// refusal describes why a revision of a work cannot be published: the condition has one of the reasons of [workv1.IsRefusal]. It is
// tried again when the spec changes, and at the next connect, but a spec that is too large only if the broker announces another limit, and
// an invalid cluster name never. [workv1.ReasonNoSealKey] is tried again when the key is there as well. A refusal that an attempt may have is
// not changed, but replaced.
type refusal struct {
	revision  revision
	limit     int  // the broker's packet limit, for workv1.ReasonTooLarge
	holds     bool // the work is being deleted, which waits for the revision: see keepsObjects
	condition metav1.Condition
	held      *wire.SpecVersion // what the agent holds meanwhile, nil if it has not said
}

// invalidClusterError reports a cluster name that cannot be part of a topic.
type invalidClusterError struct{ err error }

func (e *invalidClusterError) Error() string { return e.err.Error() }
func (e *invalidClusterError) Unwrap() error { return e.err }

// newRefusal returns the refusal for err, which publishing r failed with, nil if there is none or a retry
// may succeed.
func newRefusal(err error, published revision, now time.Time) *refusal {
	var tooLarge *transport.TooLargeError
	var invalidCluster *invalidClusterError
	var noKey *sealing.NoKeyError
	r := &refusal{revision: published}
	var reason, message string
	switch {
	case errors.As(err, &tooLarge):
		reason, r.limit = workv1.ReasonTooLarge, tooLarge.Limit
		message = "The work is not sent to its cluster: " + tooLarge.Error() + ". Make it smaller, or raise the limit of the broker."
	case errors.Is(err, transport.ErrNotAuthorized):
		reason = workv1.ReasonNotAuthorized
		message = "The work is not sent to its cluster: " + transport.ErrNotAuthorized.Error() + " of that cluster"
	case errors.As(err, &invalidCluster):
		reason = workv1.ReasonInvalidClusterName
		message = "The work can not be sent: " + invalidCluster.Error()
	case errors.As(err, &noKey):
		reason = workv1.ReasonNoSealKey
		message = "The work is not sent in clear, and can not be sealed: " + noKey.Error() + ". Put its public key into the directory of --seal-keys."
	default:
		return nil
	}
	r.condition = metav1.Condition{
		Type:               workv1.WorkApplied,
		Status:             metav1.ConditionFalse,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: int64(published.generation),
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	return r
}

// holdDeletion says that the deletion of the work waits for the revision, its last spec.
func (r *refusal) holdDeletion() {
	r.holds = true
	r.condition.Message = "The work is not deleted: its deleteOption keeps objects, which its cluster might delete by an earlier one. " + r.condition.Message
}

// nothingHeld reports whether the agent has said that it does not hold the work, as after its cluster was installed again.
func (r *refusal) nothingHeld() bool { return r.held != nil && !isHeld(r.held, true) }

// stillRefused reports whether a connection with this packet limit would refuse the revision too.
func (r *refusal) stillRefused(limit int) bool {
	switch r.condition.Reason {
	case workv1.ReasonTooLarge:
		return r.limit == limit
	case workv1.ReasonInvalidClusterName:
		return true
	default:
		return false
	}
}

// addTo sets r's condition in a status of an older generation. A nil r does nothing.
func (r *refusal) addTo(s *wire.Status) {
	if r == nil || s.Generation >= r.revision.generation {
		return
	}
	meta.SetStatusCondition(&s.Status.Conditions, r.condition)
}

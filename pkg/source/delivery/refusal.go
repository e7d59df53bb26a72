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

// Reasons of the Applied condition that [WorkStore.SetCondition] receives: why a spec cannot be
// published.
const (
	// ReasonTooLarge: the spec exceeds the broker's maximum packet size. The publish is retried
	// when the spec changes or the broker announces another limit.
	ReasonTooLarge = workv1.ReasonTooLarge
	// ReasonNotAuthorized: the broker's access rules do not allow this source to publish to the
	// cluster. The publish is retried at the next connect.
	ReasonNotAuthorized = workv1.ReasonNotAuthorized
	// ReasonInvalidClusterName: the work's namespace cannot be part of a topic, or is not the
	// cluster that the topics name.
	ReasonInvalidClusterName = workv1.ReasonInvalidClusterName
	// ReasonNoSealKey: the cluster must not get data in clear, and there is no key to seal it with. The
	// publish is retried when the key is there, and at the next connect.
	ReasonNoSealKey = workv1.ReasonNoSealKey
)

// IsRefusal reports whether reason is one of those.
func IsRefusal(reason string) bool {
	return reason == ReasonTooLarge || reason == ReasonNotAuthorized || reason == ReasonInvalidClusterName || reason == ReasonNoSealKey
}

// refusal describes why a revision of a work cannot be published.
type refusal struct {
	revision  revision
	limit     int // the broker's packet limit, for ReasonTooLarge
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
		reason, r.limit = ReasonTooLarge, tooLarge.Limit
		message = "The work is not sent to its cluster: " + tooLarge.Error() + ". Make it smaller, or raise the limit of the broker."
	case errors.Is(err, transport.ErrNotAuthorized):
		reason = ReasonNotAuthorized
		message = "The work is not sent to its cluster: " + transport.ErrNotAuthorized.Error() + " of that cluster"
	case errors.As(err, &invalidCluster):
		reason = ReasonInvalidClusterName
		message = "The work can not be sent: " + invalidCluster.Error()
	case errors.As(err, &noKey):
		reason = ReasonNoSealKey
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

// stillRefused reports whether a connection with this packet limit would refuse the revision too.
func (r *refusal) stillRefused(limit int) bool {
	switch r.condition.Reason {
	case ReasonTooLarge:
		return r.limit == limit
	case ReasonInvalidClusterName:
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

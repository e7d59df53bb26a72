package delivery

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Reasons of the Applied condition that [Works.Refused] is given: why a spec never
// left the source.
const (
	// ReasonTooLarge: the spec exceeds the broker's maximum packet size. It is
	// tried again when the spec changes or the broker announces another limit.
	ReasonTooLarge = "TooLarge"
	// ReasonNotAuthorized: the broker's access rules do not let this source
	// publish to the cluster. It is tried again at the next connect.
	ReasonNotAuthorized = "NotAuthorized"
	// ReasonInvalidClusterName: the work's namespace can not stand in a topic, or
	// is not the cluster that the topics name.
	ReasonInvalidClusterName = "InvalidClusterName"
)

func isRefusal(reason string) bool {
	return reason == ReasonTooLarge || reason == ReasonNotAuthorized || reason == ReasonInvalidClusterName
}

// refusal says that a state of a work can not be published.
type refusal struct {
	revision  revision
	limit     int // broker's at the time, when the reason is its packet limit
	condition metav1.Condition
}

// addressError is a cluster name that no topic can be made of.
type addressError struct{ err error }

func (e *addressError) Error() string { return e.err.Error() }
func (e *addressError) Unwrap() error { return e.err }

// refusalOf tells whether err, which publishing s failed with, is of the kind
// that repeating does not mend.
func refusalOf(err error, s revision, now time.Time) (*refusal, bool) {
	var tooLarge *transport.TooLargeError
	var address *addressError
	r := &refusal{revision: s}
	var reason, message string
	switch {
	case errors.As(err, &tooLarge):
		reason, r.limit = ReasonTooLarge, tooLarge.Limit
		message = "The work is not sent to its cluster: " + tooLarge.Error() + ". Make it smaller, or raise the limit of the broker."
	case errors.Is(err, transport.ErrNotAuthorized):
		reason = ReasonNotAuthorized
		message = "The work is not sent to its cluster: " + transport.ErrNotAuthorized.Error() + " of that cluster"
	case errors.As(err, &address):
		reason = ReasonInvalidClusterName
		message = "The work can not be sent: " + address.Error()
	default:
		return nil, false
	}
	r.condition = metav1.Condition{
		Type:               workv1.WorkApplied,
		Status:             metav1.ConditionFalse,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: int64(s.generation),
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	return r, true
}

// stillRefused reports whether a connection with this packet limit changes nothing.
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

// overlay puts r's condition over a status that is about an older generation.
func (r *refusal) overlay(s *wire.Status) {
	if r == nil || s.Generation >= r.revision.generation {
		return
	}
	meta.SetStatusCondition(&s.Status.Conditions, r.condition)
}

package leader

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// observation is a Lease as this candidate last saw it.
type observation struct {
	// lease is nil when there is none.
	lease *coordinationv1.Lease
	// since is when this state of the Lease was first seen.
	since time.Time
}

// observe returns the observation after lease was seen at now.
func (o observation) observe(lease *coordinationv1.Lease, now time.Time) observation {
	if o.lease != nil && lease != nil && o.lease.UID == lease.UID && o.lease.ResourceVersion == lease.ResourceVersion {
		return o
	}
	return observation{lease: lease, since: now}
}

// holder returns the holder of the Lease, empty for none.
func (o observation) holder() string {
	if o.lease == nil {
		return ""
	}
	return ptr.Deref(o.lease.Spec.HolderIdentity, "")
}

// wait returns how long a candidate must wait, as of now, before it may try to become leader; 0 or
// less is for not at all.
//
// It counts how long the holder did not renew the Lease by the candidate's own clock, since clocks
// differ. Only if the times in the Lease also say that it expired, as after a restart of all
// replicas, a shorter observation is enough: patience, in which a live holder would have renewed
// it.
func (o observation) wait(options *Options, patience time.Duration, now time.Time) time.Duration {
	if holder := o.holder(); holder == "" || holder == options.Identity {
		return 0
	}
	duration := time.Duration(ptr.Deref(o.lease.Spec.LeaseDurationSeconds, int32(DefaultLeaseDuration/time.Second))) * time.Second
	observed := now.Sub(o.since)
	left := duration - observed
	if renewed := o.lease.Spec.RenewTime; renewed != nil {
		left = min(left, max(renewed.Add(duration).Sub(now), patience-observed))
	}
	return left
}

// acquired returns the Lease to write to become leader or to renew leadership.
func (o observation) acquired(options *Options, now time.Time) *coordinationv1.Lease {
	stamp := metav1.NewMicroTime(now)
	lease := o.lease.DeepCopy()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: options.Name}}
	}
	if o.holder() != options.Identity {
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, -1) + 1)
		lease.Spec.AcquireTime = &stamp
	}
	lease.Spec.HolderIdentity = &options.Identity
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(options.LeaseDuration / time.Second))
	lease.Spec.RenewTime = &stamp
	return lease
}

// Term is a term of leadership.
type Term struct {
	// Lease is the Lease's UID. A Lease that was deleted and made again counts from 0.
	Lease types.UID
	// Transitions is the Lease's count in this term. Each acquisition by another identity, or after
	// a release, adds one.
	Transitions int32
}

// term returns the term of the holder.
func (o observation) term() Term {
	return Term{Lease: o.lease.UID, Transitions: ptr.Deref(o.lease.Spec.LeaseTransitions, 0)}
}

// released returns the Lease to write so that another candidate can take over at once.
func (o observation) released(now time.Time) *coordinationv1.Lease {
	stamp := metav1.NewMicroTime(now)
	lease := o.lease.DeepCopy()
	lease.Spec.HolderIdentity = nil
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](1)
	lease.Spec.RenewTime = &stamp
	return lease
}

// maxRefusalGap is the time after which a refusal is no longer taken for the continuation of the
// one before it. Watches are retried at least every 30 seconds.
const maxRefusalGap = time.Minute

// refusal is a series of errors that point to missing rights or a missing namespace. It may be over
// soon, as while an API server starts.
type refusal struct{ first, last time.Time }

// persists adds an error at now, and reports whether the series lasts for limit.
func (r *refusal) persists(now time.Time, limit time.Duration) bool {
	if now.Sub(r.last) > maxRefusalGap {
		r.first = now
	}
	r.last = now
	return now.Sub(r.first) >= limit
}

package leader

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sighting is a Lease as a candidate last saw it; lease is nil when there is
// none.
type sighting struct {
	lease *coordinationv1.Lease
	// since is when this state of the Lease was first seen.
	since time.Time
}

// see gives the sighting after lease was seen at now.
func (s sighting) see(lease *coordinationv1.Lease, now time.Time) sighting {
	if s.lease != nil && lease != nil && s.lease.UID == lease.UID && s.lease.ResourceVersion == lease.ResourceVersion {
		return s
	}
	return sighting{lease: lease, since: now}
}

// holder is who holds the Lease, empty for nobody.
func (s sighting) holder() string {
	if s.lease == nil || s.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

// wait is how long a candidate has to wait, as of now, before it may try to
// become leader; at most 0 is at once.
//
// What counts is how long the holder was seen to do nothing, by the candidate's
// own clock, since clocks differ. Only when also the times in the Lease say that
// it expired, as after a restart of everything, is a shorter look enough: patience,
// in which a live holder would have renewed it.
func (s sighting) wait(identity string, patience time.Duration, now time.Time) time.Duration {
	switch s.holder() {
	case "", identity:
		return 0
	}
	duration := DefaultLeaseDuration
	if seconds := s.lease.Spec.LeaseDurationSeconds; seconds != nil {
		duration = time.Duration(*seconds) * time.Second
	}
	expiry := s.since.Add(duration)
	if renewed := s.lease.Spec.RenewTime; renewed != nil {
		stated := renewed.Add(duration)
		if earliest := s.since.Add(patience); stated.Before(earliest) {
			stated = earliest
		}
		if stated.Before(expiry) {
			expiry = stated
		}
	}
	return expiry.Sub(now)
}

// claimed is the Lease to write in order to take or to renew leadership.
func (s sighting) claimed(o *Options, now time.Time) *coordinationv1.Lease {
	stamp := metav1.NewMicroTime(now)
	seconds := int32(o.LeaseDuration / time.Second)
	identity := o.Identity
	lease := s.lease.DeepCopy()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	}
	if s.holder() != identity {
		transitions := int32(0)
		if before := lease.Spec.LeaseTransitions; before != nil {
			transitions = *before + 1
		}
		lease.Spec.LeaseTransitions = &transitions
		lease.Spec.AcquireTime = &stamp
	}
	lease.Spec.HolderIdentity = &identity
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &stamp
	return lease
}

// released is the Lease to write in order to hand over at once.
func (s sighting) released(now time.Time) *coordinationv1.Lease {
	stamp := metav1.NewMicroTime(now)
	second := int32(1)
	lease := s.lease.DeepCopy()
	lease.Spec.HolderIdentity = nil
	lease.Spec.LeaseDurationSeconds = &second
	lease.Spec.RenewTime = &stamp
	return lease
}

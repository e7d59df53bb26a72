package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/workstate"
)

// Status is the state of a cluster with the current template.
type Status int

// The statuses of a cluster.
const (
	// ToApply: the cluster does not have the current template.
	ToApply Status = iota
	// Progressing: the cluster has the template and is applying it, or has not answered yet.
	Progressing
	// Succeeded: the objects of the template are in place.
	Succeeded
	// Failed: the cluster reports a failure. It may recover.
	Failed
	// TimeOut: the deadline has passed. Decide derives this status itself from the deadline of the
	// strategy.
	TimeOut
	// Skip: the rollout does not change the cluster and does not wait for it.
	Skip
)

// String returns the name of the status.
func (s Status) String() string {
	if s < ToApply || s > Skip {
		return "Status(?)"
	}
	return [...]string{"ToApply", "Progressing", "Succeeded", "Failed", "TimeOut", "Skip"}[s]
}

// Cluster is the state of one cluster at the time of a decision. The zero value is a cluster that
// is present and does not have the current template.
type Cluster struct {
	// Status with the current template.
	Status Status
	// Since is the time since when the cluster has this status; zero if unknown. If it is zero, no
	// deadline applies to the cluster, and minSuccessTime counts as passed.
	Since time.Time
	// Away reports that the cluster is not connected.
	Away bool
	// PresenceSince is the time of the last change of Away; zero if Away never changed.
	PresenceSince time.Time
	// Abandoned reports that the cluster has, in place of the current template, the one that the rollout
	// goes back from. While it is away, it must not find that one when it returns.
	Abandoned bool
	// Staged reports that the cluster is ToApply although it has the current template, or the Abandoned one: it applies it at a time,
	// or once it is told to.
	Staged bool
	// Unrendered reports that the cluster is Skip because there is no template for it: while there is none, the rollout is not done,
	// and proves nothing.
	Unrendered bool
	// Later reports that the window of the cluster is not open yet. Others start before it.
	Later bool
	// Held reports that something other than the strategy keeps the cluster from starting: it does not take the turn of
	// others.
	Held bool
}

// absent reports whether the cluster is away, and does not apply the template by itself all the same.
func (c Cluster) absent() bool { return c.Away && (!c.Staged || !c.Later) }

// StatusOf returns the status of a cluster, derived from its work. A nil work means that the
// cluster has none. current reports whether the spec of the work is the current template. The
// caller sets Away and PresenceSince of the result.
//
// A cluster succeeds when package workstate says that the work is ready, or applied where nobody watches that, with or
// without warnings, and fails when it says that
// it has failed; until the cluster, or the hub for a spec that it cannot send, has told anything of the
// template, it is Progressing. As in Open Cluster Management, a condition rule that sets Progressing
// decides alone once it is not True: False is success, also if the work is Degraded or not Available.
//
// Since is the last transition of the deciding condition, or the time at which the work received
// the template if that is later; of a cluster that succeeds without a transition, the time of an answer that was long in
// coming. The annotation [workv1alpha1.RolledOutAtAnnotationKey] holds that
// time; a work without the annotation that was never changed received it at its creation.
// Transition times come from the clock of the cluster. In place of one that is after now, the hub's time counts at which its
// own conditions of the work have last changed.
func StatusOf(work *workv1.ManifestWork, current bool, now time.Time) Cluster {
	if work == nil || !current || work.DeletionTimestamp != nil {
		return Cluster{Status: ToApply}
	}
	s, c := workstate.Of(work, nil), Cluster{Status: Progressing, Since: rolledOutAt(work)}
	if s.By == nil || s.By.Type == workv1.WorkDelivered {
		return c
	}
	if rule := workstate.Current(work, workv1.WorkProgressing); rule != nil && rule.Status != metav1.ConditionTrue &&
		(s.By.Type == workv1.WorkDegraded || s.By.Type == workv1.WorkAvailable) {
		s.By, s.Phase = rule, workstate.PhaseProgressing
		if rule.Status == metav1.ConditionFalse {
			s.Phase = workstate.PhaseReady
		}
	}
	c.notBefore(s.By, work, now)
	switch s.Phase {
	case workstate.PhaseFailed:
		c.Status = Failed
	case workstate.PhaseReady, workstate.PhaseApplied, workstate.PhaseWarned:
		c.Status = Succeeded
		if s.By.Type != workv1.WorkComplete {
			c.notBefore(workstate.Current(work, workv1.WorkApplied), work, now)
		}
		if answer := workstate.Current(work, workv1.WorkDelivered); answer != nil && c.Since.Equal(rolledOutAt(work)) {
			c.notBefore(answer, work, now) // nothing has changed since, and the cluster may have been away
		}
	}
	return c
}

// StagedOf reports whether the cluster of a work holds its spec by the annotation [workv1.ApplyAtAnnotationKey] and has not applied it; one
// that is away, and had the time to, may have. at is when it applies, or has applied, the spec, without an end if it has: where it was told
// another time too late, or its clock is ahead, when it said so.
func StagedOf(work *workv1.ManifestWork, away bool, now time.Time) (staged bool, at workv1.ApplyAt) {
	if work == nil || work.Annotations[workv1.ApplyAtAnnotationKey] == "" {
		return false, at
	}
	if annotated, err := workv1.ApplyAtOf(work); err == nil {
		at = *annotated
	}
	if applied := workstate.Current(work, workv1.WorkApplied); applied != nil {
		switch applied.Reason {
		case workv1.ReasonStaged, workv1.ReasonWindowMissed, workv1.ReasonInvalidApplyAt:
		default:
			if at.Start.IsZero() || at.Start.After(now) {
				at.Start = transition(applied, work, now)
			}
			return false, workv1.ApplyAt{Start: at.Start}
		}
	}
	missed := !away && !at.End.IsZero() && !now.Before(at.End)
	return at.Start.IsZero() || now.Before(at.Start) || missed, at
}

// notBefore sets Since to the transition of a condition of work if that is later.
func (c *Cluster) notBefore(condition *metav1.Condition, work *workv1.ManifestWork, now time.Time) {
	if at := transition(condition, work, now); at.After(c.Since) && !at.After(now) {
		c.Since = at
	}
}

// transition returns when a condition of work has changed.
func transition(condition *metav1.Condition, work *workv1.ManifestWork, now time.Time) time.Time {
	if at := condition.LastTransitionTime.Time; !at.After(now) {
		return at
	}
	return transitionOfHub(work) // the clock of the cluster is ahead, maybe by years
}

// transitionOfHub returns when the conditions that the hub derives from those of the cluster have last changed; zero if unknown.
func transitionOfHub(work *workv1.ManifestWork) (at time.Time) {
	for _, kind := range []string{workv1.WorkDelivered, workv1.WorkReady} {
		if c := workstate.Current(work, kind); c != nil && workv1.IsOfHub(c) {
			at = later(at, c.LastTransitionTime.Time)
		}
	}
	return at
}

// rolledOutAt returns the time at which the work received its spec; zero if unknown.
func rolledOutAt(work *workv1.ManifestWork) time.Time {
	if at, err := time.Parse(time.RFC3339, work.Annotations[workv1alpha1.RolledOutAtAnnotationKey]); err == nil {
		return at
	}
	if work.Generation <= 1 {
		return work.CreationTimestamp.Time
	}
	return time.Time{}
}

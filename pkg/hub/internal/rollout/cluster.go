package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
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
}

// StatusOf returns the status of a cluster, derived from its work. A nil work means that the
// cluster has none. current reports whether the spec of the work is the current template. The
// caller sets Away and PresenceSince of the result.
//
// If condition rules of the template set Progressing or Degraded, these conditions decide:
// Progressing and Degraded both True is a failure, Progressing False is success. Otherwise a
// cluster succeeds when the work is Applied and Available, and fails when the work could not be
// applied. Only conditions that observe the current generation count; until there are some, the
// cluster is Progressing.
//
// Since is the last transition of the deciding condition, or the time at which the work received
// the template if that is later. The annotation [workv1alpha1.RolledOutAtAnnotationKey] holds that
// time; a work without the annotation that was never changed received it at its creation.
// Transition times come from the clock of the cluster and are ignored if they are after now.
func StatusOf(work *workv1.ManifestWork, current bool, now time.Time) Cluster {
	if work == nil || !current || work.DeletionTimestamp != nil {
		return Cluster{Status: ToApply}
	}
	received := rolledOutAt(work)
	since := func(conditions ...*metav1.Condition) time.Time {
		latest := received
		for _, condition := range conditions {
			if at := condition.LastTransitionTime.Time; at.After(latest) && !at.After(now) {
				latest = at
			}
		}
		return latest
	}

	applied, _ := currentCondition(work, workv1.WorkApplied)
	available, _ := currentCondition(work, workv1.WorkAvailable)
	switch {
	case applied == nil:
		return Cluster{Status: Progressing, Since: received}
	case applied.Status == metav1.ConditionFalse:
		return Cluster{Status: Failed, Since: since(applied)}
	case applied.Status != metav1.ConditionTrue || available == nil:
		// The agent reports the conditions of rules together with Available.
		return Cluster{Status: Progressing, Since: received}
	}

	progressing, staleProgressing := currentCondition(work, workv1.WorkProgressing)
	degraded, staleDegraded := currentCondition(work, workv1.WorkDegraded)
	switch {
	case staleProgressing || staleDegraded:
		return Cluster{Status: Progressing, Since: received}
	case hasStatus(progressing, metav1.ConditionFalse):
		return Cluster{Status: Succeeded, Since: since(progressing)}
	case hasStatus(degraded, metav1.ConditionTrue) && (progressing == nil || hasStatus(progressing, metav1.ConditionTrue)):
		return Cluster{Status: Failed, Since: since(degraded)}
	case progressing != nil:
		return Cluster{Status: Progressing, Since: since(progressing)}
	case available.Status == metav1.ConditionTrue:
		return Cluster{Status: Succeeded, Since: since(applied, available)}
	}
	return Cluster{Status: Progressing, Since: since(available)}
}

func hasStatus(condition *metav1.Condition, status metav1.ConditionStatus) bool {
	return condition != nil && condition.Status == status
}

// currentCondition returns the condition if it observes the current generation of the work. stale
// reports that the condition exists but observes another generation.
func currentCondition(work *workv1.ManifestWork, kind string) (condition *metav1.Condition, stale bool) {
	condition = meta.FindStatusCondition(work.Status.Conditions, kind)
	if condition != nil && condition.ObservedGeneration != work.Generation {
		return nil, true
	}
	return condition, false
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

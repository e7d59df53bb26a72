package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// Status is how a cluster does with the current template.
type Status int

// The statuses of a cluster.
const (
	// ToApply: it does not have the current template.
	ToApply Status = iota
	// Progressing: it has it, and is on its way or has not answered yet.
	Progressing
	// Succeeded: it holds what the template says.
	Succeeded
	// Failed: it reports a failure, from which it may recover.
	Failed
	// TimeOut: it was given up. Decide comes to this by itself, from the deadline of the strategy.
	TimeOut
	// Skip: the rollout leaves it as it is, and does not wait for it.
	Skip
)

// String is the name of the status.
func (s Status) String() string {
	switch s {
	case ToApply:
		return "ToApply"
	case Progressing:
		return "Progressing"
	case Succeeded:
		return "Succeeded"
	case Failed:
		return "Failed"
	case TimeOut:
		return "TimeOut"
	case Skip:
		return "Skip"
	}
	return "Status(?)"
}

// Cluster is what is known of one cluster when a decision is made. The zero value is a cluster that is present and
// does not have the current template.
type Cluster struct {
	// Status with the current template.
	Status Status
	// Since when it has this status; zero if not known. Without it, no deadline applies to the cluster, and it counts
	// as having succeeded for long.
	Since time.Time
	// Away says that the cluster is not connected.
	Away bool
	// PresenceSince is since when it is away or, if it is not, present; zero: for ever.
	PresenceSince time.Time
}

// StatusOf gives the status of a cluster from its work. Nil stands for no work. current says whether the spec of the
// work is the current template. Away and PresenceSince of the result are left to the caller.
//
// Where condition rules of the template set Progressing, or Degraded, those say how the cluster does: Progressing and
// Degraded True together are a failure, Progressing False is success. Without them a cluster succeeds when the work is
// Applied and Available, and fails when it could not be applied. Only what the agent says about the current generation
// counts; until then the cluster is Progressing.
//
// Since is when the condition that decides changed, but not before the work got the template. When that was is in the
// annotation [workv1alpha1.RolledOutAtAnnotationKey]; for a work without it that was never changed, it is its creation.
// Conditions bear the time of the cluster's clock: one from the future, measured by now, is not believed.
func StatusOf(work *workv1.ManifestWork, current bool, now time.Time) Cluster {
	if work == nil || !current || work.DeletionTimestamp != nil {
		return Cluster{Status: ToApply}
	}
	given := rolledOutAt(work)
	since := func(conditions ...*metav1.Condition) time.Time {
		latest := given
		for _, condition := range conditions {
			if at := condition.LastTransitionTime.Time; at.After(latest) && !at.After(now) {
				latest = at
			}
		}
		return latest
	}

	applied, _ := at(work, workv1.WorkApplied)
	available, _ := at(work, workv1.WorkAvailable)
	switch {
	case applied == nil:
		return Cluster{Status: Progressing, Since: given}
	case applied.Status == metav1.ConditionFalse:
		return Cluster{Status: Failed, Since: since(applied)}
	case applied.Status != metav1.ConditionTrue || available == nil: // rules are reported together with Available
		return Cluster{Status: Progressing, Since: given}
	}

	progressing, staleProgressing := at(work, workv1.WorkProgressing)
	degraded, staleDegraded := at(work, workv1.WorkDegraded)
	switch {
	case staleProgressing || staleDegraded:
		return Cluster{Status: Progressing, Since: given}
	case is(progressing, metav1.ConditionFalse):
		return Cluster{Status: Succeeded, Since: since(progressing)}
	case is(degraded, metav1.ConditionTrue) && (progressing == nil || is(progressing, metav1.ConditionTrue)):
		return Cluster{Status: Failed, Since: since(degraded)}
	case progressing != nil:
		return Cluster{Status: Progressing, Since: since(progressing)}
	case available.Status == metav1.ConditionTrue:
		return Cluster{Status: Succeeded, Since: since(applied, available)}
	}
	return Cluster{Status: Progressing, Since: since(available)}
}

func is(condition *metav1.Condition, status metav1.ConditionStatus) bool {
	return condition != nil && condition.Status == status
}

// at gives the condition if it speaks about the current generation of the work; stale tells that there is one that does
// not.
func at(work *workv1.ManifestWork, kind string) (condition *metav1.Condition, stale bool) {
	condition = meta.FindStatusCondition(work.Status.Conditions, kind)
	if condition != nil && condition.ObservedGeneration != work.Generation {
		return nil, true
	}
	return condition, false
}

// rolledOutAt is when the work got its spec; zero if that is not known.
func rolledOutAt(work *workv1.ManifestWork) time.Time {
	if at, err := time.Parse(time.RFC3339, work.Annotations[workv1alpha1.RolledOutAtAnnotationKey]); err == nil {
		return at
	}
	if work.Generation <= 1 {
		return work.CreationTimestamp.Time
	}
	return time.Time{}
}

package explain

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate"
)

// Hop is a step of the way of a spec.
type Hop struct {
	// Name is accepted (by the hub), published, acknowledged (by the broker), received (by the agent),
	// applied or ready; of a deletion removed in place of these two.
	Name string `json:"name"`
	// Progress says whether the spec has got so far.
	Progress Progress `json:"progress"`
	// Time is when, if known. The first three times are by the hub's clock, the others by the agent's.
	Time *metav1.MicroTime `json:"time,omitempty"`
	// Took is the time since the hop before that has a time, in milliseconds; nil if unknown, or if the
	// clocks of hub and cluster differ so much that it would be negative.
	Took *int64 `json:"tookMillis,omitempty"`
}

// Progress says whether a spec has passed a hop.
type Progress string

// Values of Progress.
const (
	// Done: the spec has passed the hop.
	Done Progress = "done"
	// Waiting: it has not.
	Waiting Progress = "waiting"
	// NotReported: nobody says so. Readiness is reported for works that ask for it.
	NotReported Progress = "not reported"
)

// hops returns the hops of the newest generation. A hop without a time is done if a later one is: peers
// that do not tell times answer all the same.
func hops(w *workv1.ManifestWork, noCluster bool) []Hop {
	d := w.Status.Delivery
	if d == nil || d.Generation != w.Generation {
		d = &workv1.DeliveryStatus{}
	}
	if noCluster { // a broker takes what nobody listens to, and drops it
		d = &workv1.DeliveryStatus{AcceptedTime: d.AcceptedTime}
	}
	if w.DeletionTimestamp != nil {
		return removal(w, d)
	}
	all := way(d, Hop{Name: "applied", Time: d.AppliedTime}, Hop{Name: "ready", Time: d.ReadyTime})
	last := reached(w, all)
	if isTrue(w, workv1.WorkApplied) {
		last = max(last, 4)
	} else {
		all[5].Time = nil
	}
	if ready := readiness(w); ready == Done {
		last = 5
	} else {
		all[5].Progress, all[5].Time = ready, nil
		last = min(last, 4)
	}
	for i := range all[:last+1] {
		all[i].Progress = Done
	}
	// An earlier apply may have succeeded, and the last one failed.
	if !isTrue(w, workv1.WorkApplied) && workstate.Current(w, workv1.WorkApplied) != nil {
		all[4].Progress, all[4].Time = Waiting, nil
	}
	took(all)
	return all
}

// removal returns the hops of a deletion.
func removal(w *workv1.ManifestWork, d *workv1.DeliveryStatus) []Hop {
	all := way(d, Hop{Name: "removed"})
	last := reached(w, all)
	if meta.IsStatusConditionTrue(w.Status.Conditions, workv1.WorkDeleted) {
		last = 4
	}
	for i := range all[:last+1] {
		all[i].Progress = Done
	}
	took(all)
	return all
}

// way returns the hops to the agent, and those at it, none of them done.
func way(d *workv1.DeliveryStatus, more ...Hop) []Hop {
	all := append([]Hop{
		{Name: "accepted", Time: d.AcceptedTime},
		{Name: "published", Time: d.PublishedTime},
		{Name: "acknowledged", Time: d.AcknowledgedTime},
		{Name: "received", Time: d.ReceivedTime},
	}, more...)
	for i := range all {
		all[i].Progress = Waiting
	}
	return all
}

// reached returns the last hop that has a time, or that the agent's answer tells of; -1 if there is none.
func reached(w *workv1.ManifestWork, all []Hop) int {
	last := -1
	for i := range all {
		if all[i].Time != nil {
			last = i
		}
	}
	if workstate.Answered(w) {
		last = max(last, 3)
	}
	return last
}

func took(all []Hop) {
	var before *metav1.MicroTime
	for i := range all {
		if all[i].Time == nil {
			continue
		}
		if before != nil && !all[i].Time.Before(before) {
			all[i].Took = new(all[i].Time.Sub(before.Time).Milliseconds())
		}
		before = all[i].Time
	}
}

// readiness says whether the objects of the newest generation are ready.
func readiness(w *workv1.ManifestWork) Progress {
	switch workstate.Reached(w) {
	case workstate.PhaseReady:
		return Done
	case workstate.PhaseApplied:
		return NotReported
	}
	return Waiting
}

func isTrue(w *workv1.ManifestWork, kind string) bool {
	c := workstate.Current(w, kind)
	return c != nil && c.Status == metav1.ConditionTrue
}

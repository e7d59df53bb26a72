package replicaset

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	selection "github.com/workwire/workwire/pkg/hub/internal/placement"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/runtime/walltime"
)

// Limits of the deletion of works whose cluster is no longer selected.
const (
	// maxRemovals is the maximum number of such works that one reconcile deletes.
	maxRemovals = 50
	// heldMin and heldPercent: as many such works, of all works of a set, are not deleted unless
	// somebody has asked for it. The fleet brake of package clusters has the same limits.
	heldMin     = 3
	heldPercent = 55
	// editWindow is how long after an edit of the set or of one of its placements deletions count
	// as asked for.
	editWindow = 5 * time.Minute
	// returnTime is how long a placement may take to select a cluster again that is back.
	returnTime = 5 * time.Minute
)

// absentClusters returns the clusters of works that the placement has not chosen for no other
// reason than that they are absent, or have just returned. If the placement wants a number of
// clusters and has chosen others in their place, they are not among them.
func (p *plan) absentClusters(
	in input, from placement, chosen map[string]rollout.Cluster, works map[string]*workv1.ManifestWork,
) map[string]bool {
	var candidates []string
	for name, work := range works {
		if _, isChosen := chosen[name]; !isChosen && work.DeletionTimestamp == nil {
			candidates = append(candidates, name)
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	slices.Sort(candidates)
	room := math.MaxInt
	if n := from.object.Spec.NumberOfClusters; n != nil {
		room = int(*n) - len(chosen)
	}
	selects := selection.SelectsWithout(from.object, in.reach, clusterv1.ManagedClusterTaintUnreachable, in.now)
	absent := make(map[string]bool)
	for _, name := range candidates {
		cluster, ok := in.cluster(name)
		if !ok || len(absent) >= room {
			continue
		}
		if gone, until := absence(cluster, in.clock); (gone || until.After(in.now)) && selects(cluster) {
			absent[name] = true
			if !gone {
				p.requeueAt = rollout.Earlier(p.requeueAt, until)
			}
		}
	}
	return absent
}

// absence reports whether a cluster is absent. If it is not, but was, until is when its placement
// must have selected it again.
func absence(cluster *clusterv1.ManagedCluster, clock *walltime.Clock) (absent bool, until time.Time) {
	available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case available == nil:
		return false, time.Time{}
	case clusterv1.IsAway(available):
		return true, time.Time{}
	}
	return slices.ContainsFunc(cluster.Spec.Taints, func(t clusterv1.Taint) bool { return t.Key == clusterv1.ManagedClusterTaintUnreachable }),
		clock.Adjusted(available.LastTransitionTime.Time).Add(returnTime)
}

// decided reports whether somebody has decided about a placement whose decisions have no cluster: one
// that is new has no status, and one that is not valid keeps the decisions that it has.
func decided(placement *clusterv1beta1.Placement) bool {
	conditions := placement.Status.Conditions
	return meta.FindStatusCondition(conditions, clusterv1beta1.PlacementConditionSatisfied) != nil &&
		!meta.IsStatusConditionTrue(conditions, clusterv1beta1.PlacementConditionMisconfigured)
}

// removeUnselected plans the deletion of the works whose cluster is no longer selected, or holds
// it. Nothing changes while it is not known of each placement which clusters it selects.
func (p *plan) removeUnselected(in input, unselected []*workv1.ManifestWork) {
	for i, r := range p.rollouts {
		if r.chosen != r.selected || r.chosen == 0 && !decided(in.placements[i].object) {
			return
		}
	}
	going := func(work *workv1.ManifestWork) bool { return work.DeletionTimestamp != nil }
	unselected = slices.DeleteFunc(unselected, going)
	total := len(slices.DeleteFunc(slices.Clone(in.works), going))
	allowed, _ := strconv.Atoi(in.set.Annotations[workv1alpha1.AllowRemovalsAnnotationKey])
	n := len(unselected)
	const kind = workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld
	set := conditionSetter(&p.status, in.now)
	if !in.asked && n >= heldMin && n*100 >= heldPercent*total && n > allowed {
		var clusters []string
		for _, work := range unselected {
			clusters = append(clusters, work.Namespace)
		}
		slices.Sort(clusters)
		set(metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: workv1alpha1.ReasonTooManyRemovals,
			Message: fmt.Sprintf("%d of %d works are of clusters that are no longer selected, but nobody has edited the set or a placement: %s; "+
				"to delete the works, annotate the set with %s=%d", n, total, joinNames(slices.Compact(clusters)), workv1alpha1.AllowRemovalsAnnotationKey, n),
		})
		return
	}
	if meta.FindStatusCondition(p.status.Conditions, kind) != nil {
		set(metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: workv1alpha1.ReasonAsExpected})
	}
	for _, work := range unselected[:min(n, maxRemovals)] {
		p.remove(work)
	}
	if n > maxRemovals {
		p.requeueAt = rollout.Earlier(p.requeueAt, in.now.Add(interval))
	}
}

// edit is the last generation of an object that was seen, and when it changed.
type edit struct {
	uid        types.UID
	generation int64
	at         time.Time
}

// edited notes the generations of a set and of its placements, and reports whether one of them was
// created or has changed within editWindow.
func (s *setMemory) edited(set *workv1alpha1.ManifestWorkReplicaSet, placements []placement, now time.Time) (asked bool) {
	before := s.edits
	s.edits = make(map[string]edit, len(placements)+1)
	note := func(key string, object metav1.Object) {
		e := edit{object.GetUID(), object.GetGeneration(), now}
		if known, ok := before[key]; !ok {
			e.at = object.GetCreationTimestamp().Time
		} else if known.uid == e.uid && known.generation == e.generation {
			e.at = known.at
		}
		s.edits[key] = e
		asked = asked || now.Sub(e.at) < editWindow
	}
	note("", set)
	for _, placement := range placements {
		if placement.object != nil {
			note(placement.ref.Name, placement.object)
		}
	}
	return asked
}

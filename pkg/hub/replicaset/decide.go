package replicaset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/rollout"
)

// situation is all that a plan depends on. It is only read.
type situation struct {
	set        *workv1alpha1.ManifestWorkReplicaSet
	placements []placement            // one for each reference of the set, in their order
	works      []*workv1.ManifestWork // those with the label of the set
	// named gives a work by its name, also one that has lost its labels.
	named func(types.NamespacedName) (*workv1.ManifestWork, bool)
	// presence of a cluster; the zero value if nothing is known of it.
	presence func(cluster string) presence
	now      time.Time
}

// presence says what a ManagedCluster says. The zero value is a cluster that is
// there.
type presence struct {
	// refused: an administrator of the hub does not accept the cluster, or not yet.
	refused bool
	// away: the cluster is not connected, or nobody knows.
	away bool
	// since when it is away or, if it is not, there; zero: for ever.
	since time.Time
}

// placement is what is known of one that the set refers to.
type placement struct {
	ref       *workv1alpha1.LocalPlacementReference
	object    *clusterv1beta1.Placement // nil: there is none of that name
	decisions []*clusterv1beta1.PlacementDecision
}

// plan is what is to be done for a set.
type plan struct {
	status  workv1alpha1.ManifestWorkReplicaSetStatus
	changes []change
	// rollouts are those of the placements, in the order of the set's references;
	// none when the set can not be followed at all.
	rollouts []progress
	// fault says why not, for an event; empty when it can.
	fault string
	// again is when to decide again if nothing has changed; zero for never.
	again time.Time
}

// progress is how the rollout to the clusters of one placement goes.
type progress struct {
	placement string
	// fault says why the rollout can not go on, as a strategy is wrong.
	fault error
	// decision is empty when there could be none.
	decided  bool
	decision rollout.Decision
	// selected is the number of clusters that the placement says it chose, and
	// groups that of the groups it says it made.
	selected, groups int
	// chosen is the number of clusters in the decisions of the placement.
	chosen int
	// filled is how many groups have clusters, and done how many of them succeeded.
	filled, done int
	// clusters counts the chosen clusters by their status, those that are away
	// among them.
	clusters map[rollout.Status]int
	away     int
	summary  workv1alpha1.ManifestWorkReplicaSetSummary
}

// decide plans for a set that is not being deleted.
func decide(s situation) plan {
	p := plan{status: *s.set.Status.DeepCopy()}
	if fault := nameFault(s.set); fault != "" {
		p.fault = fault
		misnamed(&p.status, fault, s.now)
		return p
	}
	for _, placement := range s.placements {
		if placement.object == nil {
			p.fault = fmt.Sprintf("Placement %s does not exist in namespace %s; until it does, nothing is changed", placement.ref.Name, s.set.Namespace)
			placementMissing(&p.status, s.now)
			return p
		}
	}
	held, extra := hold(s)
	for _, work := range extra {
		p.remove(work)
	}
	for _, placement := range s.placements {
		rollout := p.follow(s, placement, held[placement.ref.Name])
		p.rollouts = append(p.rollouts, rollout)
		p.again = earlier(p.again, rollout.decision.RequeueAt)
	}
	summarize(&p.status, p.rollouts, s.now)
	return p
}

// hold finds, by placement and cluster, the one work that is held for it, and
// all others of the set. Of several for one cluster the oldest stays, which its
// cluster most likely has already.
func hold(s situation) (held map[string]map[string]*workv1.ManifestWork, extra []*workv1.ManifestWork) {
	held = make(map[string]map[string]*workv1.ManifestWork, len(s.placements))
	for _, placement := range s.placements {
		held[placement.ref.Name] = make(map[string]*workv1.ManifestWork)
	}
	ordered := slices.Clone(s.works)
	slices.SortFunc(ordered, func(a, b *workv1.ManifestWork) int {
		return cmp.Or(cmp.Compare(deleting(a), deleting(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, work := range ordered {
		clusters, ok := held[work.Labels[workv1.PlacementNameLabelKey]]
		if !ok || clusters[work.Namespace] != nil {
			extra = append(extra, work)
			continue
		}
		clusters[work.Namespace] = work
	}
	return held, extra
}

func deleting(work *workv1.ManifestWork) int {
	if work.DeletionTimestamp != nil {
		return 1
	}
	return 0
}

// follow plans for the clusters of one placement, whose works are held by
// cluster.
func (p *plan) follow(s situation, placement placement, held map[string]*workv1.ManifestWork) progress {
	name := placement.ref.Name
	r := progress{
		placement: name, selected: int(placement.object.Status.NumberOfSelectedClusters),
		groups: len(placement.object.Status.DecisionGroups), clusters: make(map[rollout.Status]int),
	}
	groups, errGroups := rollout.GroupsOf(placement.object, placement.decisions)
	strategy, errStrategy := rollout.Parse(&placement.ref.RolloutStrategy)
	if err := errors.Join(errGroups, errStrategy); err != nil {
		r.fault = fmt.Errorf("placement %s: %w", name, err)
	}
	chosen := make(map[string]rollout.Cluster)
	current := make(map[string]bool)
	for _, group := range groups {
		succeeded := 0
		for _, cluster := range group.Clusters {
			if _, ok := chosen[cluster]; !ok {
				chosen[cluster], current[cluster] = s.cluster(name, cluster, held)
				r.count(chosen[cluster], held[cluster], current[cluster])
			}
			if chosen[cluster].Status == rollout.Succeeded {
				succeeded++
			}
		}
		if len(group.Clusters) > 0 {
			r.filled++
			if succeeded == len(group.Clusters) {
				r.done++
			}
		}
	}
	r.chosen = len(chosen)
	if r.fault == nil {
		r.decided, r.decision = true, strategy.Decide(groups, chosen, s.now)
		for _, missing := range r.decision.Missing {
			if missing.GroupName != "" {
				r.fault = fmt.Errorf("placement %s: it has no decision group %q, which the rollout strategy says must come first", name, missing.GroupName)
			}
		}
	}
	// While the decisions are being written, a later group may be there before the
	// first one. Then none begins; the placement's status, written last, tells.
	if r.chosen == r.selected {
		for _, cluster := range r.decision.Start {
			p.begin(s, name, cluster, held)
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(held)) {
		work := held[cluster]
		if _, ok := chosen[cluster]; ok {
			p.relabel(s, name, work)
		} else if errGroups == nil { // else nobody knows whether it was chosen
			p.remove(work)
		}
	}
	return r
}

// cluster tells how a chosen cluster does, and whether it has the template. A
// work that has lost its labels is held again.
func (s situation) cluster(placement, name string, held map[string]*workv1.ManifestWork) (rollout.Cluster, bool) {
	work := held[name]
	if work == nil {
		lost, ok := s.named(types.NamespacedName{Namespace: name, Name: WorkName(nameOf(s.set), placement)})
		if ok && lost.Labels[workv1.ReplicaSetLabelKey] != Label(nameOf(s.set)) {
			work, held[name] = lost, lost
		}
	}
	current := work != nil && work.DeletionTimestamp == nil && sameSpec(&work.Spec, &s.set.Spec.ManifestWorkTemplate)
	cluster := rollout.StatusOf(work, current, s.now)
	presence := s.presence(name)
	cluster.Away, cluster.PresenceSince = presence.away, presence.since
	if presence.refused { // it is not sent any work
		cluster.Status = rollout.Skip
	}
	return cluster, current
}

// begin gives a cluster the template. One whose work is still being deleted gets
// it when that is gone.
func (p *plan) begin(s situation, placement, cluster string, held map[string]*workv1.ManifestWork) {
	switch work := held[cluster]; {
	case work == nil:
		p.changes = append(p.changes, change{action: create, work: newWork(s.set, placement, cluster, s.now)})
	case work.DeletionTimestamp == nil:
		p.changes = append(p.changes, updateOf(work, s.set, placement, s.now))
		delete(held, cluster) // its labels are in the update
	}
}

func (p *plan) relabel(s situation, placement string, work *workv1.ManifestWork) {
	if work.DeletionTimestamp != nil {
		return
	}
	if change, ok := labelOf(work, s.set, placement); ok {
		p.changes = append(p.changes, change)
	}
}

func (p *plan) remove(work *workv1.ManifestWork) {
	if work.DeletionTimestamp == nil {
		p.changes = append(p.changes, change{action: remove, work: work})
	}
}

// earlier is the earlier of two times, of which zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

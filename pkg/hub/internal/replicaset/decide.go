package replicaset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/runtime/walltime"
)

// input is everything that a plan depends on. It is read-only.
type input struct {
	set *workv1alpha1.ManifestWorkReplicaSet // with the template that clusters receive
	// own is the set as it is stored, with its own template; nil: as set.
	own *workv1alpha1.ManifestWorkReplicaSet
	// revisions are those of the set, and missing is why the one that it serves cannot be; empty if it can.
	revisions  rollout.Revisions
	missing    string
	placements []placement            // in the order of the references of the set
	works      []*workv1.ManifestWork // works with the label of the set
	// workByName returns a work by its name, with or without labels, that belongs to no other set.
	workByName func(types.NamespacedName) (*workv1.ManifestWork, bool)
	// reach is the clusters that the namespace of the set may choose from.
	reach clustersets.Reach
	// presence returns the presence of a cluster; one without a ManagedCluster is connected.
	presence func(cluster string) presence
	// cluster returns a ManagedCluster.
	cluster func(name string) (*clusterv1.ManagedCluster, bool)
	// asked is whether somebody has edited the set or a placement lately, see state.edited.
	asked bool
	now   time.Time
	clock *walltime.Clock // of the times that are stored; nil: it never steps
	// unwritten is which works could not be written, and why; empty: all could.
	unwritten string
	// staging is the RolloutPlan of the set; nil if it names none. staged is its decision, nil on the way back.
	staging *staging
	staged  *rollout.Staged
	// overriding is what WorkOverrides make of the template for each cluster; nil if there are none.
	overriding *overriding
	// compared is which specs of works are templates of the set; not used if there are overrides.
	compared map[comparison]bool
	// back is why clusters receive an earlier template, or will; empty if they do not.
	back string
	// hash is that of the template of the set, and held why no cluster gets it yet; empty if clusters do.
	hash, held string
}

// presence is the part of a ManagedCluster that a rollout depends on. The zero value is an
// accepted, connected cluster.
type presence struct {
	// refused reports that the hub does not accept the cluster, or not yet.
	refused bool
	// outside reports that the cluster is in no set that is bound to the namespace of the set.
	outside bool
	// away reports that the cluster is not connected, or that this is unknown.
	away bool
	// since is the time of the last change of away; zero if it never changed.
	since time.Time
}

// placement is a placement that the set refers to.
type placement struct {
	ref       *workv1alpha1.LocalPlacementReference
	object    *clusterv1beta1.Placement // nil if it does not exist
	decisions []*clusterv1beta1.PlacementDecision
}

// plan is the result of decide.
type plan struct {
	status  workv1alpha1.ManifestWorkReplicaSetStatus
	changes []change
	// revisions are those of the set after the plan.
	revisions rollout.Revisions
	// rollouts has one entry per placement, in the order of the references of the set; none if the
	// set is invalid.
	rollouts []placementRollout
	// invalid is why the set cannot be processed, for an event; empty if it can.
	invalid string
	// requeueAt is when to decide again without a change; zero means never.
	requeueAt time.Time
	// openUntil is when clusters must not start any more; zero means never.
	openUntil time.Time
	// unsettled reports that decisions of a placement are being written, so that nobody knows who is in a stage.
	unsettled bool
	// acted are the approvals that the plan acts on for the first time.
	acted []workwirev1alpha1.Approval
}

// placementRollout is the state of the rollout to the clusters of one placement.
type placementRollout struct {
	placement string
	// err is why the rollout cannot continue, such as an invalid strategy.
	err error
	// decision is empty unless decided is set.
	decided  bool
	decision rollout.Decision
	// selected and decisionGroups are the numbers of clusters and groups in the status of the placement.
	selected, decisionGroups int
	// chosen is the number of clusters in the decisions of the placement.
	chosen int
	// outside are those of them, sorted, that are out of the reach of the set's namespace, whoever has
	// written the decisions: their works are not created, changed or deleted.
	outside []string
	// unrendered are those of which the overrides of the set make nothing: they are skipped, too.
	unrendered []string
	// filledGroups is the number of groups with clusters, and succeededGroups the number of those
	// of which all clusters succeeded.
	filledGroups, succeededGroups int
	// clusters counts the chosen clusters by status, including those that are away.
	clusters map[rollout.Status]int
	away     int
	summary  workv1alpha1.ManifestWorkReplicaSetSummary
	// blockers say what keeps the first clusters that have the template from success.
	blockers []string
	// waits say the same, and more, of the first clusters that the rollout waits for; waiting is the
	// number of them all.
	waits   []string
	waiting int
	// testing says which tests are not true, and why, by cluster.
	testing map[string]string
	// failedTests are the names of the tests that have timed out, by cluster.
	failedTests map[string]string

	groups    []rollout.Group
	errGroups error
	strategy  rollout.Strategy
	states    map[string]rollout.Cluster // of the chosen clusters
}

// decide returns the plan for a set that is not being deleted.
func decide(in input) plan {
	defer in.overriding.dropSpecs()
	in.compared = make(map[comparison]bool)
	in.held = heldByPreview(in)
	p := plan{status: *in.set.Status.DeepCopy(), revisions: in.revisions}
	if p.invalid = validateNames(in.set); p.invalid != "" {
		conditionSetter(&p.status, in.now)(metav1.Condition{
			Type: workv1alpha1.ManifestWorkReplicaSetConditionManifestworkApplied, Status: metav1.ConditionFalse,
			Reason: workv1alpha1.ReasonInvalidManifestWorkName, Message: p.invalid,
		})
		p.setInvalid(in)
		return p
	}
	if p.invalid = in.missing; p.invalid != "" {
		p.setInvalid(in)
		return p
	}
	for _, placement := range in.placements {
		if placement.object == nil {
			p.invalid = fmt.Sprintf("Placement %s does not exist in namespace %s; works stay unchanged until it does", placement.ref.Name, in.set.Namespace)
			conditionSetter(&p.status, in.now)(metav1.Condition{
				Type: workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified, Status: metav1.ConditionFalse,
				Reason: workv1alpha1.ReasonPlacementDecisionNotFound,
			})
			p.setInvalid(in)
			return p
		}
	}
	assigned, surplus := assignWorks(in)
	for _, work := range surplus {
		p.remove(work)
	}
	for _, placement := range in.placements {
		p.rollouts = append(p.rollouts, observe(in, placement, assigned[placement.ref.Name]))
	}
	in.staged = p.decideRollouts(in)
	var unselected []*workv1.ManifestWork
	for i, placement := range in.placements {
		unselected = append(unselected, p.planPlacement(in, placement, &p.rollouts[i], assigned[placement.ref.Name])...)
		p.requeueAt = rollout.Earlier(p.requeueAt, p.rollouts[i].decision.RequeueAt)
	}
	in.back = p.goBack(in)
	summarize(&p.status, p.rollouts, in)
	setOverridden(&p.status, in, p.rollouts)
	setStaged(&p.status, in, p.rollouts)
	p.removeUnselected(in, unselected)
	setReady(&p.status, in)
	return p
}

// assignWorks returns one work per placement and cluster, and the surplus works of the set. If
// there are several works for a cluster, it keeps the oldest, which the cluster most likely has
// already.
func assignWorks(in input) (assigned map[string]map[string]*workv1.ManifestWork, surplus []*workv1.ManifestWork) {
	assigned = make(map[string]map[string]*workv1.ManifestWork, len(in.placements))
	for _, placement := range in.placements {
		assigned[placement.ref.Name] = make(map[string]*workv1.ManifestWork, len(in.works)/len(in.placements))
	}
	for _, work := range in.works {
		clusters, ok := assigned[work.Labels[workv1.PlacementNameLabelKey]]
		if !ok {
			surplus = append(surplus, work)
			continue
		}
		if other := clusters[work.Namespace]; other != nil {
			if compareWorks(other, work) < 0 {
				work, other = other, work
			}
			surplus = append(surplus, other)
		}
		clusters[work.Namespace] = work
	}
	slices.SortFunc(surplus, compareWorks)
	return assigned, surplus
}

// compareWorks orders the works of a set: those that stay first, then by age.
func compareWorks(a, b *workv1.ManifestWork) int {
	return cmp.Or(cmp.Compare(deleting(a), deleting(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
}

func deleting(work *workv1.ManifestWork) int {
	if work.DeletionTimestamp != nil {
		return 1
	}
	return 0
}

// observe returns what there is of a placement before anything is decided. works are the assigned works by cluster.
func observe(in input, placement placement, works map[string]*workv1.ManifestWork) placementRollout {
	r := placementRollout{
		placement: placement.ref.Name, selected: int(placement.object.Status.NumberOfSelectedClusters),
		decisionGroups: len(placement.object.Status.DecisionGroups), clusters: make(map[rollout.Status]int),
		testing: make(map[string]string), failedTests: make(map[string]string),
	}
	var errStrategy error
	r.groups, r.errGroups = rollout.GroupsOf(placement.object, placement.decisions)
	r.strategy, errStrategy = rollout.Parse(&placement.ref.RolloutStrategy)
	if err := errors.Join(r.errGroups, errStrategy); err != nil {
		r.err = fmt.Errorf("placement %s: %w", r.placement, err)
	}
	r.states = r.observe(in, works)
	return r
}

// decideRollouts decides about the clusters of each placement, by the RolloutPlan of the set if it has one, whose decision it
// returns.
func (p *plan) decideRollouts(in input) *rollout.Staged {
	var staged *rollout.Staged
	if in.staging != nil && in.revisions.Served == 0 { // the way back runs through no stages
		staged = p.decideStages(in)
	} else {
		for i := range p.rollouts {
			if r := &p.rollouts[i]; r.err == nil {
				r.decided, r.decision = true, r.strategy.Decide(r.groups, r.states, in.now)
			}
		}
	}
	for i := range p.rollouts {
		r := &p.rollouts[i]
		for _, missing := range r.decision.Missing {
			if missing.GroupName != "" {
				r.err = fmt.Errorf("placement %s: mandatory decision group %q does not exist", r.placement, missing.GroupName)
			}
		}
	}
	return staged
}

// planPlacement plans the works of the clusters of a placement. works are the assigned works by cluster. It returns those
// whose cluster is no longer selected.
func (p *plan) planPlacement(in input, placement placement, r *placementRollout, works map[string]*workv1.ManifestWork) (unselected []*workv1.ManifestWork) {
	name, chosen := placement.ref.Name, r.states
	// While the decisions are being written, a later group may exist before the first one. The
	// status of the placement is written last: no cluster starts until both agree.
	unknown, held := r.chosen != r.selected || p.unsettled, workv1.IsPaused(in.set) || in.held != ""
	if !unknown && !held {
		for _, cluster := range r.decision.Start {
			state, set := r.states[cluster], in.set
			if !state.Staged || state.Abandoned { // it does not have its template yet
				set = in.setFor(cluster)
			}
			if set != nil {
				p.startCluster(set, name, cluster, in.applyAt(cluster), state, works, in.now)
			}
		}
	}
	absent := p.absentClusters(in, placement, chosen, works)
	metadata, planned := metadataOf(in.set, name, nil), len(p.changes)
	for cluster, work := range works {
		_, isChosen := chosen[cluster]
		switch {
		case isChosen && work.DeletionTimestamp != nil:
		case isChosen:
			if change, changed := labelChange(work, metadata.unstarted(work, unknown && !held, in.now)); changed && !in.presence(cluster).outside {
				p.changes = append(p.changes, change)
			}
		case absent[cluster]:
			if r.err == nil && !unknown && !held {
				p.replaceAbandoned(in, name, work)
			}
		case r.errGroups == nil: // otherwise it is unknown whether the cluster was chosen
			unselected = append(unselected, work)
		}
	}
	slices.SortFunc(p.changes[planned:], func(a, b change) int { return cmp.Compare(a.work.Namespace, b.work.Namespace) })
	slices.SortFunc(unselected, func(a, b *workv1.ManifestWork) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return unselected
}

// replaceAbandoned gives the earlier template to the cluster of a work that is not chosen because it is away, if it would find the one that
// the set goes back from when it returns.
func (p *plan) replaceAbandoned(in input, placement string, work *workv1.ManifestWork) {
	presence := in.presence(work.Namespace)
	if !presence.away || presence.refused || presence.outside || !in.hasAbandoned(work) || in.hasTemplate(work) {
		return
	}
	if set := in.setFor(work.Namespace); set != nil {
		p.changes = append(p.changes, updateChange(work, set, placement, "", in.now))
	}
}

// observe returns the states of the chosen clusters, and counts them.
func (r *placementRollout) observe(in input, works map[string]*workv1.ManifestWork) map[string]rollout.Cluster {
	chosen := make(map[string]rollout.Cluster, len(works))
	for _, group := range r.groups {
		succeeded := 0
		for _, cluster := range group.Clusters {
			state, known := chosen[cluster]
			if !known {
				presence := in.presence(cluster)
				if presence.outside {
					r.outside = append(r.outside, cluster)
				}
				var current bool
				state, current = in.clusterState(r.placement, cluster, presence, works)
				state = r.test(in, cluster, state, works[cluster])
				chosen[cluster] = state
				if state.Unrendered {
					r.unrendered = append(r.unrendered, cluster)
				}
				work := works[cluster]
				r.count(state, work, current)
				r.noteBlocker(cluster, state, work, current)
				r.noteWait(cluster, state, work, current)
			}
			if state.Status == rollout.Succeeded {
				succeeded++
			}
		}
		if len(group.Clusters) > 0 {
			r.filledGroups++
			if succeeded == len(group.Clusters) {
				r.succeededGroups++
			}
		}
	}
	r.chosen = len(chosen)
	slices.Sort(r.outside)
	return chosen
}

// clusterState returns the state of a chosen cluster, and whether it has the template. It assigns a
// work that has lost its labels again.
func (in input) clusterState(placement, name string, presence presence, works map[string]*workv1.ManifestWork) (rollout.Cluster, bool) {
	work := works[name]
	if work == nil && !presence.outside {
		lost, ok := in.workByName(types.NamespacedName{Namespace: name, Name: workv1alpha1.WorkName(controller.KeyOf(in.set), placement)})
		if ok && lost.Labels[workv1.ReplicaSetLabelKey] != workv1alpha1.WorkLabel(controller.KeyOf(in.set)) {
			work, works[name] = lost, lost
		}
	}
	current := work != nil && work.DeletionTimestamp == nil && in.hasTemplate(work)
	cluster := rollout.StatusOf(work, current, in.now)
	cluster.Away, cluster.PresenceSince = presence.away, presence.since
	staged, at := rollout.StagedOf(work, cluster.Away, in.now)
	cluster.Abandoned = (cluster.Away || staged) && !current && work != nil && in.hasAbandoned(work)
	cluster.Staged = staged && (current || cluster.Abandoned)
	switch {
	case staged && current:
		cluster.Status, cluster.Since = rollout.ToApply, time.Time{}
	case current && at.Start.After(cluster.Since):
		cluster.Since = at.Start
	}
	if in.staging != nil && !staged && at.End.After(in.now) { // then it has missed its window
		in.staging.requeueAt = rollout.Earlier(in.staging.requeueAt, at.End)
	}
	switch { // those that receive no works
	case presence.refused, presence.outside:
		cluster.Status = rollout.Skip
	case in.overriding.fails(name):
		cluster.Status, cluster.Unrendered = rollout.Skip, true
	}
	return cluster, current
}

// applyAt returns when a cluster that receives the template now applies it; empty: at once.
func (in input) applyAt(cluster string) string {
	if in.staged == nil {
		return ""
	}
	w, later := in.staged.Later[cluster]
	if !later {
		return ""
	}
	return workv1.ApplyAt{Start: w.Start, End: w.End}.String()
}

// startCluster gives the template of set to a cluster. A cluster whose work is being deleted receives it
// after the deletion.
func (p *plan) startCluster(set *workv1alpha1.ManifestWorkReplicaSet, placement, cluster, applyAt string, state rollout.Cluster, works map[string]*workv1.ManifestWork, now time.Time) {
	switch work := works[cluster]; {
	case work == nil:
		p.changes = append(p.changes, change{action: create, work: newWork(set, placement, cluster, applyAt, now)})
	case state.Staged && !state.Abandoned: // it has the template
		var annotations map[string]string
		if applyAt == "" { // deadlines count from now
			annotations = map[string]string{workv1alpha1.RolledOutAtAnnotationKey: timestamp(now)}
		}
		if change, changed := labelChange(work, metadataOf(set, placement, annotations).withApplyAt(applyAt)); changed {
			p.changes = append(p.changes, change)
		}
		delete(works, cluster)
	case work.DeletionTimestamp == nil:
		p.changes = append(p.changes, updateChange(work, set, placement, applyAt, now))
		delete(works, cluster) // the update sets its labels
	}
}

func (p *plan) remove(work *workv1.ManifestWork) {
	if work.DeletionTimestamp == nil {
		p.changes = append(p.changes, change{action: remove, work: work})
	}
}

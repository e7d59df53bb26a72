package replicaset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/runtime/walltime"
	"github.com/workwire/workwire/test/kit"
)

// managed returns an accepted cluster with the label env=prod that has been available, or not, for
// an hour.
func managed(name string, available bool, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": "prod"}}}
	c.Spec.HubAcceptsClient = true
	status := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionUnknown}[available]
	c.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: status, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour)),
	}}
	for _, f := range change {
		f(c)
	}
	return c
}

func tainted(key string) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) {
		c.Spec.Taints = append(c.Spec.Taints, clusterv1.Taint{Key: key, Effect: clusterv1.TaintEffectNoSelect})
	}
}

// A work stays if its cluster is only absent. It goes for every other reason, and when the
// placement has chosen another cluster in its place.
func TestAbsenceRemovesNothing(t *testing.T) {
	unreachable := tainted(clusterv1.ManagedClusterTaintUnreachable)
	back := func(ago time.Duration) func(*clusterv1.ManagedCluster) {
		return func(c *clusterv1.ManagedCluster) {
			c.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(-ago))
		}
	}
	for name, c := range map[string]struct {
		cluster *clusterv1.ManagedCluster // c1, which is not chosen; nil: it does not exist
		wanted  *int32
		chosen  []string
		invalid bool
		going   bool // the work of c0, which is absent too, is being deleted
		removed bool
		requeue time.Duration
		bound   string // the set that is bound to the namespace
		older   bool   // the decisions are older than cluster sets
	}{
		"absent":                              {cluster: managed("c1", false, unreachable), chosen: []string{"c2"}},
		"absent, the taint is not seen yet":   {cluster: managed("c1", false), chosen: []string{"c2"}},
		"absent, and nobody is chosen":        {cluster: managed("c1", false, unreachable)},
		"back, the taint is not gone yet":     {cluster: managed("c1", true, unreachable), chosen: []string{"c2"}},
		"back, the placement has not seen it": {cluster: managed("c1", true, back(20*time.Second)), chosen: []string{"c2"}, requeue: returnTime - 20*time.Second},
		"present, and not chosen":             {cluster: managed("c1", true), chosen: []string{"c2"}, removed: true},
		"it does not exist":                   {chosen: []string{"c2"}, removed: true},
		"absent, and not accepted":            {cluster: managed("c1", false, unreachable, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }), removed: true},
		"absent, and another taint":           {cluster: managed("c1", false, unreachable, tainted("broken")), removed: true},
		"absent, and no longer labelled":      {cluster: managed("c1", false, unreachable, func(c *clusterv1.ManagedCluster) { c.Labels = nil }), removed: true},
		"absent, and in no bound set": {
			cluster: managed("c1", false, unreachable), bound: "shops", removed: true,
		},
		"absent, and in a bound set": {
			cluster: managed("c1", false, unreachable), bound: clusterv1beta2.DefaultSet,
		},
		"absent, no set is bound, the decisions are older than cluster sets": {
			cluster: managed("c1", false, unreachable), bound: "shops", older: true,
		},
		"absent, and being deleted":          {cluster: managed("c1", false, func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = &metav1.Time{Time: start} }), removed: true},
		"absent, one is wanted and chosen":   {cluster: managed("c1", false, unreachable), wanted: ptr.To[int32](1), chosen: []string{"c2"}, removed: true},
		"absent, two are wanted, one chosen": {cluster: managed("c1", false, unreachable), wanted: ptr.To[int32](2), chosen: []string{"c2"}},
		"absent, and another one is going": {
			cluster: managed("c1", false, unreachable), wanted: ptr.To[int32](2), chosen: []string{"c2"}, going: true,
		},
		"absent, and fewer are wanted":         {cluster: managed("c1", false, unreachable), wanted: ptr.To[int32](0), removed: true},
		"absent, and the placement is invalid": {cluster: managed("c1", false, unreachable), invalid: true},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			object, decisions := placementOf("p", c.chosen)
			object.Spec.NumberOfClusters = c.wanted
			object.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
				LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}},
			}}}
			reach := clustersets.ReachOf(&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: c.bound}})
			if c.bound != "" && !c.older {
				object.Status.Conditions = append(object.Status.Conditions, metav1.Condition{Type: clusterv1beta1.PlacementConditionBound, Reason: clusterv1beta1.ReasonClusterSetsBound})
			}
			if c.invalid {
				object.Spec.Predicates[0].RequiredClusterSelector.LabelSelector.MatchLabels["c d"] = "e"
			}
			works := worksOf("p", "c1:ok", "c2:ok")
			if c.going {
				works = append(works, worksOf("p", "c0:going")...)
			}
			p := decide(input{
				set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: works,
				workByName: noWork, presence: present, now: start, reach: reach,
				cluster: func(name string) (*clusterv1.ManagedCluster, bool) {
					return c.cluster, c.cluster != nil && name != "c2"
				},
			})
			if got := slices.Contains(describe(p.changes), "delete c1"); got != c.removed {
				t.Errorf("changes %q", describe(p.changes))
			}
			if want := start.Add(c.requeue); c.requeue > 0 && !p.requeueAt.Equal(want) {
				t.Errorf("again at %s, want %s", p.requeueAt, want)
			}
		})
	}
}

// Many works at once are deleted only if somebody has edited the set or a placement, or says so. A
// reconcile deletes a bounded number.
func TestRemovalsAreHeld(t *testing.T) {
	const kind = workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld
	for _, c := range []struct {
		works, leave int
		asked        bool
		allowed      string
		removed      int
		held         bool
	}{
		{works: 2, leave: 2, removed: 2}, {works: 3, leave: 3, held: true}, {works: 10, leave: 5, removed: 5}, {works: 10, leave: 6, held: true},
		{works: 10, leave: 10, held: true}, {works: 10, leave: 10, asked: true, removed: 10}, {works: 10, leave: 10, allowed: "10", removed: 10},
		{works: 10, leave: 10, allowed: "9", held: true}, {works: 10, leave: 10, allowed: "all", held: true},
		{works: 200, leave: 120, held: true}, {works: 200, leave: 120, asked: true, removed: maxRemovals}, {works: 200, leave: 70, removed: maxRemovals},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			var works []*workv1.ManifestWork
			var stay []string
			for i := range c.works {
				name := fmt.Sprintf("c%03d", i)
				works = append(works, worksOf("p", name+":ok")...)
				if i >= c.leave {
					stay = append(stay, name)
				}
			}
			set := newSet("p")
			if c.allowed != "" {
				set.Annotations = map[string]string{workv1alpha1.AllowRemovalsAnnotationKey: c.allowed}
			}
			object, decisions := placementOf("p", stay)
			in := input{
				set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: works,
				workByName: noWork, presence: present, cluster: noCluster, asked: c.asked, now: start,
			}
			p := decide(in)
			if len(p.changes) != c.removed {
				t.Errorf("%d works are deleted, want %d", len(p.changes), c.removed)
			}
			if more := c.removed == maxRemovals; more != p.requeueAt.Equal(start.Add(interval)) {
				t.Errorf("again at %s", p.requeueAt)
			}
			texts := strings.Join(conditionTexts(p.status.Conditions), "\n")
			want := fmt.Sprintf("%s True TooManyRemovals %d of %d works are of clusters that are no longer selected", kind, c.leave, c.works)
			if got := strings.Contains(texts, want); got != c.held || strings.Contains(texts, kind) != c.held {
				t.Errorf("conditions\n%s", texts)
			}
			if meta.IsStatusConditionTrue(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStalled) != c.held {
				t.Errorf("stalled: %+v", p.status.Conditions)
			}
			if !c.held {
				return
			}
			// The clusters are selected again.
			set.Status = p.status
			in.placements[0].object, in.placements[0].decisions = placementOf("p", append(stay, clustersOf(works[:c.leave])...))
			if texts = strings.Join(conditionTexts(decide(in).status.Conditions), "\n"); !strings.Contains(texts, kind+" False AsExpected") {
				t.Errorf("conditions when they are selected again\n%s", texts)
			}
		})
	}
}

func clustersOf(works []*workv1.ManifestWork) (names []string) {
	for _, work := range works {
		names = append(names, work.Namespace)
	}
	return names
}

// Nothing is deleted while nobody knows which clusters a placement selects, and held removals stay held.
func TestUndecidedRemovesNothing(t *testing.T) {
	works := worksOf("p", "c1:ok", "c2:ok", "c3:ok", "c4:ok")
	for name, c := range map[string]struct {
		change  func(*clusterv1beta1.PlacementStatus)
		chosen  []string
		asked   bool
		removed int
	}{
		"new":                  {change: func(s *clusterv1beta1.PlacementStatus) { s.Conditions = nil }, asked: true},
		"new, and not valid":   {change: misconfigured, asked: true},
		"not valid any more":   {change: misconfigured, chosen: []string{"c1", "c2"}, asked: true, removed: 2},
		"being decided":        {change: func(s *clusterv1beta1.PlacementStatus) { s.NumberOfSelectedClusters = 4 }, chosen: []string{"c1"}, asked: true},
		"being decided, held":  {change: func(s *clusterv1beta1.PlacementStatus) { s.NumberOfSelectedClusters = 4 }, chosen: []string{"c1"}},
		"decided":              {chosen: []string{"c1"}, asked: true, removed: 3},
		"decided, for nothing": {asked: true, removed: 4},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			in := input{
				set: set, works: works, workByName: noWork, presence: present, cluster: noCluster, now: start,
			}
			object, decisions := placementOf("p", []string{"c1"})
			in.placements = []placement{{&set.Spec.PlacementRefs[0], object, decisions}}
			set.Status = decide(in).status
			object, decisions = placementOf("p", c.chosen)
			if c.change != nil {
				c.change(&object.Status)
			}
			in.placements, in.asked = []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, c.asked
			p := decide(in)
			if len(p.changes) != c.removed {
				t.Errorf("changes %q", describe(p.changes))
			}
			held := meta.IsStatusConditionTrue(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld)
			if held != (c.removed == 0) {
				t.Errorf("held: %v", held)
			}
		})
	}
}

func misconfigured(s *clusterv1beta1.PlacementStatus) {
	s.Conditions = append(s.Conditions, metav1.Condition{Type: clusterv1beta1.PlacementConditionMisconfigured, Status: metav1.ConditionTrue})
}

// A placement that is created again costs no cluster its work, unless it is decided that it selects none.
func TestPlacementMadeAnew(t *testing.T) {
	e := newEnv(t, 4)
	r := e.start()
	e.writePlacement("p", e.clusters)
	e.createSet(newSet("p"))
	e.awaitTemplate("set", "2", "c01 c02 c03 c04")
	uids := func() (uids []types.UID) {
		for _, work := range e.works("set") {
			uids = append(uids, work.UID)
		}
		return uids
	}
	before, api := uids(), e.client.ClusterV1beta1()
	makeAnew := func() {
		t.Helper()
		kit.NoError(t, api.PlacementDecisions(e.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		kit.NoError(t, api.Placements(e.namespace).Delete(t.Context(), "p", metav1.DeleteOptions{}))
		e.awaitVerified(workv1alpha1.ReasonPlacementDecisionNotFound)
		_, err := api.Placements(e.namespace).Create(t.Context(), &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
		kit.NoError(t, err)
		e.awaitVerified(workv1alpha1.ReasonPlacementDecisionEmpty)
		e.awaitIdle(r, "set")
	}
	makeAnew()
	e.writePlacement("p", e.clusters)
	e.awaitVerified(workv1alpha1.ReasonAsExpected)
	e.awaitIdle(r, "set")
	r.stop()
	r = e.start() // it has created no works, which would queue the set again
	makeAnew()
	if after := uids(); !slices.Equal(after, before) {
		t.Errorf("works %q, before %q", after, before)
	}
	e.writePlacement("p")
	e.awaitTemplate("set", "2", "")
}

// awaitVerified waits until PlacementVerified of the set has this reason.
func (e *env) awaitVerified(reason string) {
	e.t.Helper()
	kit.True(e.t, "PlacementVerified is "+reason, func() bool {
		set, err := e.getSet("set")
		if err != nil {
			return false
		}
		c := meta.FindStatusCondition(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified)
		return c != nil && c.Reason == reason
	})
}

// A step of the clock does not end the time in which a cluster that is back may still be unselected.
func TestAbsenceOverClockStep(t *testing.T) {
	now, elapsed := start, time.Duration(0)
	clock := walltime.From(func() (time.Time, time.Duration) { return now, elapsed })
	cluster := &clusterv1.ManagedCluster{Status: clusterv1.ManagedClusterStatus{Conditions: []metav1.Condition{{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(start),
	}}}}
	now, elapsed = now.Add(time.Hour+time.Second), time.Second
	if gone, until := absence(cluster, clock); gone || until.Sub(now) != returnTime-time.Second {
		t.Errorf("absent %v, for %v", gone, until.Sub(now))
	}
	if _, until := absence(cluster, nil); until.After(now) {
		t.Errorf("without a clock until %v", until)
	}
}

// An edit counts for a while from when it was seen; what a new hub finds counts from its creation.
func TestEdited(t *testing.T) {
	set := newSet("p")
	set.Generation, set.CreationTimestamp = 1, metav1.NewTime(start.Add(-time.Hour))
	object, _ := placementOf("p")
	object.UID, object.Generation, object.CreationTimestamp = "p1", 1, set.CreationTimestamp
	placements := []placement{{ref: &set.Spec.PlacementRefs[0], object: object}}
	s, now := &setMemory{}, start
	check := func(step string, want bool) {
		t.Helper()
		if got := s.edited(set, placements, now); got != want {
			t.Errorf("%s: %v", step, got)
		}
	}
	check("a new hub", false)
	object.Generation++
	check("the placement was edited", true)
	now = now.Add(editWindow - 1)
	check("a while after", true)
	now = now.Add(1)
	check("later", false)
	set.Generation++
	check("the set was edited", true)
	now = now.Add(editWindow)
	check("later", false)
	object.UID = "p2"
	check("the placement was created again", true)
	now = now.Add(editWindow)
	placements[0].object = nil
	check("it is gone", false)
	object.CreationTimestamp = metav1.NewTime(now)
	placements[0].object = object
	s = &setMemory{}
	check("a new hub, a new placement", true)
}

// Decisions that lose most clusters without an edit delete nothing until somebody allows it.
func TestHeldRemovals(t *testing.T) {
	e := newEnv(t, 4)
	r := e.start()
	e.writePlacement("p", e.clusters)
	e.createSet(newSet("p"))
	e.awaitTemplate("set", "2", "c01 c02 c03 c04")
	e.advance(editWindow + time.Minute) // since they were created
	e.writePlacement("p", e.clusters[3:])
	e.awaitEvent(r, "Warning RemovalsHeld 3 of 4 works are of clusters that are no longer selected, but nobody has edited the set or a placement: "+
		"c01, c02, c03; to delete the works, annotate the set with workwire.dev/allow-removals=3")
	e.awaitIdle(r, "set")
	e.awaitTemplate("set", "2", "c01 c02 c03 c04")
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Annotations = map[string]string{workv1alpha1.AllowRemovalsAnnotationKey: "3"}
	})
	e.awaitTemplate("set", "2", "c04")

	// Now somebody edits the set.
	e.writePlacement("p", e.clusters)
	e.awaitTemplate("set", "2", "c01 c02 c03 c04")
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Annotations = nil
		set.Spec.CascadeDeletionPolicy = workv1alpha1.Foreground
	})
	e.awaitIdle(r, "set")
	e.writePlacement("p")
	e.awaitTemplate("set", "2", "")
}

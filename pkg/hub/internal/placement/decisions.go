package placement

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// write creates or updates one PlacementDecision.
type write struct {
	object   *clusterv1beta1.PlacementDecision // the desired state; not shared
	create   bool
	metadata bool     // labels or owner differ from the stored object
	status   bool     // the clusters differ from the stored object
	stored   []string // the clusters of the stored object
	// previous is the object of the write to the same PlacementDecision in the first stage; nil if
	// there is none.
	previous *clusterv1beta1.PlacementDecision
}

// plan contains the writes for a Placement. The stages first, then and remove must be executed one
// after the other, the writes of a stage in any order. A cluster that stays chosen is then in at
// least one PlacementDecision at any time. This matters because readers delete the works of a
// cluster that disappears from the decisions.
type plan struct {
	first, then []write
	remove      []*clusterv1beta1.PlacementDecision
	// groups is status.decisionGroups of the Placement.
	groups []clusterv1beta1.DecisionGroupStatus
	// added and removed are the sorted names of the clusters that are newly chosen and no longer
	// chosen.
	added, removed []string
}

// empty reports whether the plan has no writes.
func (p *plan) empty() bool { return len(p.first)+len(p.then)+len(p.remove) == 0 }

// target assigns clusters of a group to a PlacementDecision.
type target struct {
	existing *clusterv1beta1.PlacementDecision // nil if it must be created
	name     string
	group    int
	clusters []string
}

// planDecisions returns the writes that bring the PlacementDecisions of p, existing, to groups.
// taken reports names that belong to other objects. A PlacementDecision holds at most 100 clusters,
// all of one group. Clusters stay in their PlacementDecision where possible. If no cluster is
// chosen, one PlacementDecision without clusters exists: it distinguishes this case from a
// Placement that was never reconciled.
//
// When clusters move between groups, the result may have more PlacementDecisions than necessary.
// The next plan removes them.
func planDecisions(p *clusterv1beta1.Placement, groups []group, existing []*clusterv1beta1.PlacementDecision, taken func(string) bool) plan {
	targets, unused := assignClusters(groups, sortedByNumber(p.Name, existing))
	targets, unused = assignNames(p.Name, targets, unused, taken)

	result := plan{remove: unused, groups: make([]clusterv1beta1.DecisionGroupStatus, len(groups))}
	for i, g := range groups {
		result.groups[i] = clusterv1beta1.DecisionGroupStatus{
			DecisionGroupIndex: int32(i), DecisionGroupName: g.name, ClustersCount: int32(len(g.clusters)),
		}
	}
	var writes []write
	for _, t := range targets {
		var groupName string
		if t.group < len(groups) {
			groupName = groups[t.group].name
			status := &result.groups[t.group]
			status.Decisions = append(status.Decisions, t.name)
		}
		if w := t.write(p, groupName); w.create || w.metadata || w.status {
			writes = append(writes, w)
		}
	}
	for i := range result.groups {
		slices.SortFunc(result.groups[i].Decisions, func(a, b string) int { return compareNumbers(p.Name, a, b) })
	}
	if len(writes)+len(unused) > 0 {
		result.stage(writes, targets)
		result.diff(existing, targets)
	}
	return result
}

// write returns the write for a target. None of create, metadata and status is set if the stored
// object is up to date.
func (t target) write(p *clusterv1beta1.Placement, groupName string) write {
	labels := map[string]string{
		clusterv1beta1.PlacementLabel:          p.Name,
		clusterv1beta1.DecisionGroupIndexLabel: strconv.Itoa(t.group),
		clusterv1beta1.DecisionGroupNameLabel:  groupName,
	}
	w := write{create: t.existing == nil, status: len(t.clusters) > 0}
	if w.create {
		w.object = &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: t.name}}
	} else {
		w.stored = clusterNames(t.existing)
		w.status = !slices.Equal(w.stored, t.clusters)
		w.metadata = !ownedBy(t.existing, p)
		for key, value := range labels {
			stored, ok := t.existing.Labels[key]
			w.metadata = w.metadata || !ok || stored != value
		}
		if !w.status && !w.metadata {
			return w
		}
		w.object = t.existing.DeepCopy()
	}
	for key, value := range labels {
		metav1.SetMetaDataLabel(&w.object.ObjectMeta, key, value)
	}
	if !ownedBy(w.object, p) {
		w.object.OwnerReferences = append(w.object.OwnerReferences, metav1.OwnerReference{
			APIVersion: clusterv1beta1.GroupVersion.String(), Kind: "Placement", Name: p.Name, UID: p.UID, Controller: ptr.To(true),
		})
	}
	w.object.Status.Decisions = clusterDecisions(t.clusters)
	return w
}

// stage distributes the writes over the stages of the plan.
func (p *plan) stage(writes []write, targets []target) {
	destination := make(map[string]string) // chosen cluster -> object that must hold it and does not yet
	for _, t := range targets {
		for _, cluster := range t.clusters {
			destination[cluster] = t.name
		}
		if t.existing != nil {
			for _, cluster := range clusterNames(t.existing) {
				if destination[cluster] == t.name {
					delete(destination, cluster)
				}
			}
		}
	}
	for _, w := range writes {
		var leaving []string // for another object
		for _, cluster := range w.stored {
			if name, moves := destination[cluster]; moves && name != w.object.Name {
				leaving = append(leaving, cluster)
			}
		}
		clusters := clusterNames(w.object)
		gains := slices.ContainsFunc(clusters, func(cluster string) bool { return !slices.Contains(w.stored, cluster) })
		switch {
		case len(leaving) == 0:
			p.first = append(p.first, w)
		case !gains:
			p.then = append(p.then, w)
		default:
			// Clusters arrive from and leave for other objects: hold both until the second stage.
			both := w
			both.object = w.object.DeepCopy()
			both.object.Status.Decisions = clusterDecisions(slices.Sorted(slices.Values(slices.Concat(clusters, leaving))))
			p.first = append(p.first, both)
			w.metadata, w.previous = false, both.object
			p.then = append(p.then, w)
		}
	}
}

// diff sets added and removed.
func (p *plan) diff(existing []*clusterv1beta1.PlacementDecision, targets []target) {
	before, after := sets.New[string](), sets.New[string]()
	for _, d := range existing {
		before.Insert(clusterNames(d)...)
	}
	for _, t := range targets {
		after.Insert(t.clusters...)
	}
	p.added = slices.Sorted(maps.Keys(after.Difference(before)))
	p.removed = slices.Sorted(maps.Keys(before.Difference(after)))
}

// assignClusters distributes the clusters of each group over existing PlacementDecisions and over
// targets without object and name. It also returns the existing objects that are not used.
func assignClusters(groups []group, existing []*clusterv1beta1.PlacementDecision) (targets []target, unused []*clusterv1beta1.PlacementDecision) {
	if len(groups) == 0 {
		return []target{{}}, existing
	}
	groupOf := make(map[string]int)
	for i, g := range groups {
		for _, cluster := range g.clusters {
			groupOf[cluster] = i
		}
	}
	type previous struct {
		objects  []*clusterv1beta1.PlacementDecision
		clusters [][]string
		leaving  []int // per object, the number of its clusters that are in another group now
	}
	perGroup := make([]previous, len(groups))
	for _, d := range existing {
		clusters := clusterNames(d)
		i, leaving, ok := majorityGroup(d, clusters, groupOf)
		if !ok {
			unused = append(unused, d)
			continue
		}
		e := &perGroup[i]
		e.objects, e.clusters, e.leaving = append(e.objects, d), append(e.clusters, clusters), append(e.leaving, leaving)
	}
	for i, g := range groups {
		objects := perGroup[i].objects
		bins := pack(slices.Clone(g.clusters), perGroup[i].clusters, clusterv1beta1.MaxDecisions, perGroup[i].leaving)
		for n, clusters := range bins {
			t := target{group: i, clusters: clusters}
			if n < len(objects) {
				t.existing, t.name = objects[n], objects[n].Name
			}
			targets = append(targets, t)
		}
		if len(objects) > len(bins) {
			unused = append(unused, objects[len(bins):]...)
		}
	}
	return targets, unused
}

// majorityGroup returns the group of most of the clusters of d, and the number of its chosen
// clusters in other groups. Of equal groups it prefers the one that the label of d names. ok is
// false if no cluster is chosen.
func majorityGroup(d *clusterv1beta1.PlacementDecision, clusters []string, groupOf map[string]int) (group, leaving int, ok bool) {
	in, chosen := make(map[int]int), 0
	for _, cluster := range clusters {
		if i, is := groupOf[cluster]; is {
			in[i]++
			chosen++
		}
	}
	label := d.Labels[clusterv1beta1.DecisionGroupIndexLabel]
	group = -1
	for i, n := range in {
		if group < 0 || n > in[group] || n == in[group] && (strconv.Itoa(i) == label || strconv.Itoa(group) != label && i < group) {
			group = i
		}
	}
	return group, chosen - in[group], chosen > 0
}

// assignNames gives each target without a name an unused object or, if there is none, the lowest
// free name. It returns the objects that remain unused. An object with a chosen cluster is not
// reused, since readers find the cluster there until it is written elsewhere.
func assignNames(placement string, targets []target, unused []*clusterv1beta1.PlacementDecision, taken func(string) bool) (
	[]target, []*clusterv1beta1.PlacementDecision) {
	if !slices.ContainsFunc(targets, func(t target) bool { return t.name == "" }) {
		return targets, unused
	}
	chosen, used := sets.New[string](), sets.New[string]()
	for _, t := range targets {
		used.Insert(t.name)
		chosen.Insert(t.clusters...)
	}
	unused = sortedByNumber(placement, unused)
	for _, d := range unused {
		used.Insert(d.Name)
	}
	n := 0
	for i := range targets {
		t := &targets[i]
		if t.name != "" {
			continue
		}
		free := slices.IndexFunc(unused, func(d *clusterv1beta1.PlacementDecision) bool {
			return !chosen.HasAny(clusterNames(d)...)
		})
		if free >= 0 {
			t.existing, t.name = unused[free], unused[free].Name
			unused = slices.Delete(unused, free, free+1)
			continue
		}
		for t.name == "" || used.Has(t.name) || taken(t.name) {
			n++
			t.name = fmt.Sprintf("%s-decision-%d", placement, n)
		}
		used.Insert(t.name)
	}
	return targets, unused
}

// ownedBy reports whether p owns d. A deleted Placement of the same name is a different owner.
func ownedBy(d *clusterv1beta1.PlacementDecision, p *clusterv1beta1.Placement) bool {
	return slices.ContainsFunc(d.OwnerReferences, func(o metav1.OwnerReference) bool { return isPlacement(o) && o.UID == p.UID })
}

// isPlacement reports whether o refers to a Placement.
func isPlacement(o metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return o.Kind == "Placement" && group == clusterv1beta1.GroupName
}

// readGroups returns the groups that the PlacementDecisions hold, in the order of their indices.
func readGroups(placement string, existing []*clusterv1beta1.PlacementDecision) []group {
	byIndex := make(map[int]*group)
	for _, d := range sortedByNumber(placement, existing) {
		if len(d.Status.Decisions) == 0 {
			continue
		}
		index, err := strconv.Atoi(d.Labels[clusterv1beta1.DecisionGroupIndexLabel])
		if err != nil {
			index = math.MaxInt
		}
		g := byIndex[index]
		if g == nil {
			g = &group{name: d.Labels[clusterv1beta1.DecisionGroupNameLabel]}
			byIndex[index] = g
		}
		g.clusters = append(g.clusters, clusterNames(d)...)
	}
	var groups []group
	for _, index := range slices.Sorted(maps.Keys(byIndex)) {
		slices.Sort(byIndex[index].clusters)
		groups = append(groups, *byIndex[index])
	}
	return groups
}

// sortedByNumber returns the decisions in the order of the numbers in their names.
func sortedByNumber(placement string, decisions []*clusterv1beta1.PlacementDecision) []*clusterv1beta1.PlacementDecision {
	return slices.SortedFunc(slices.Values(decisions), func(a, b *clusterv1beta1.PlacementDecision) int {
		return compareNumbers(placement, a.Name, b.Name)
	})
}

// compareNumbers orders names by their number. Names without a number come last.
func compareNumbers(placement, a, b string) int {
	number := func(name string) int {
		text, ok := strings.CutPrefix(name, placement+"-decision-")
		if n, err := strconv.Atoi(text); ok && err == nil {
			return n
		}
		return math.MaxInt
	}
	return cmp.Or(cmp.Compare(number(a), number(b)), strings.Compare(a, b))
}

// clusterNames returns the clusters of d in their order.
func clusterNames(d *clusterv1beta1.PlacementDecision) []string {
	names := make([]string, len(d.Status.Decisions))
	for i, decision := range d.Status.Decisions {
		names[i] = decision.ClusterName
	}
	return names
}

func clusterDecisions(clusters []string) []clusterv1beta1.ClusterDecision {
	decisions := make([]clusterv1beta1.ClusterDecision, len(clusters))
	for i, name := range clusters {
		decisions[i] = clusterv1beta1.ClusterDecision{ClusterName: name}
	}
	return decisions
}

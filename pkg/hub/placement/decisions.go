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

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// write brings one PlacementDecision to a state.
type write struct {
	object   *clusterv1beta1.PlacementDecision // as it is to be; never shared memory
	create   bool
	metadata bool     // labels or owner differ from what is stored
	status   bool     // the clusters differ from what is stored
	held     []string // the clusters that are stored
}

// plan is what has to be written for a Placement. A cluster that stays chosen is
// in at least one PlacementDecision at any time if first, each in any order,
// precedes then and then precedes remove: who sees a cluster leave the decisions
// takes its works away.
type plan struct {
	first, then []write
	remove      []*clusterv1beta1.PlacementDecision
	// groups is the part of the Placement's status that tells of groups.
	groups []clusterv1beta1.DecisionGroupStatus
	// added and removed are the clusters that are chosen now and were not before,
	// and the other way round, by name.
	added, removed []string
}

// empty reports whether nothing has to be written.
func (p *plan) empty() bool { return len(p.first)+len(p.then)+len(p.remove) == 0 }

// place is where a group's clusters are to be written.
type place struct {
	existing *clusterv1beta1.PlacementDecision // nil: to be created as name
	name     string
	group    int
	clusters []string
}

// planDecisions plans how to write groups down for p, given its PlacementDecisions.
// taken reports names that others use. No PlacementDecision holds more than 100
// clusters or those of two groups. As far as they can, clusters stay in the
// PlacementDecision that they are in. When no cluster is chosen there is one
// PlacementDecision without clusters, which tells that from a Placement that
// nobody has looked at.
//
// When clusters move from group to group, there may be more PlacementDecisions
// than are needed; carrying out the next plan mends that.
func planDecisions(p *clusterv1beta1.Placement, groups []group, mine []*clusterv1beta1.PlacementDecision, taken func(string) bool) plan {
	places, spare := allot(groups, numbered(p.Name, mine))
	places, spare = name(p.Name, places, spare, taken)

	result := plan{remove: spare, groups: make([]clusterv1beta1.DecisionGroupStatus, len(groups))}
	for i, g := range groups {
		result.groups[i] = clusterv1beta1.DecisionGroupStatus{
			DecisionGroupIndex: int32(i), DecisionGroupName: g.name, ClustersCount: int32(len(g.clusters)),
		}
	}
	var writes []write
	for _, at := range places {
		var groupName string
		if at.group < len(groups) {
			groupName = groups[at.group].name
			status := &result.groups[at.group]
			status.Decisions = append(status.Decisions, at.name)
		}
		if w := at.write(p, groupName); w.create || w.metadata || w.status {
			writes = append(writes, w)
		}
	}
	for i := range result.groups {
		slices.SortFunc(result.groups[i].Decisions, func(a, b string) int { return byNumber(p.Name, a, b) })
	}
	if len(writes)+len(spare) > 0 {
		result.order(writes, places)
		result.compare(mine, places)
	}
	return result
}

// write gives what brings the PlacementDecision of a place into being, or up to
// date; one without a cause when it is.
func (at place) write(p *clusterv1beta1.Placement, groupName string) write {
	labels := map[string]string{
		clusterv1beta1.PlacementLabel:          p.Name,
		clusterv1beta1.DecisionGroupIndexLabel: strconv.Itoa(at.group),
		clusterv1beta1.DecisionGroupNameLabel:  groupName,
	}
	w := write{create: at.existing == nil, status: len(at.clusters) > 0}
	if w.create {
		w.object = &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: at.name}}
	} else {
		w.status = !slices.EqualFunc(at.existing.Status.Decisions, at.clusters,
			func(d clusterv1beta1.ClusterDecision, cluster string) bool { return d.ClusterName == cluster })
		w.metadata = !ownedBy(at.existing, p)
		for key, value := range labels {
			has, ok := at.existing.Labels[key]
			w.metadata = w.metadata || !ok || has != value
		}
		if !w.status && !w.metadata {
			return w
		}
		w.held = clustersOf(at.existing)
		w.object = at.existing.DeepCopy()
	}
	for key, value := range labels {
		metav1.SetMetaDataLabel(&w.object.ObjectMeta, key, value)
	}
	if !ownedBy(w.object, p) {
		controller := true
		w.object.OwnerReferences = append(w.object.OwnerReferences, metav1.OwnerReference{
			APIVersion: clusterv1beta1.GroupVersion.String(), Kind: "Placement", Name: p.Name, UID: p.UID, Controller: &controller,
		})
	}
	w.object.Status.Decisions = decisionsOf(at.clusters)
	return w
}

// order puts writes into stages.
func (p *plan) order(writes []write, places []place) {
	home := make(map[string]string) // the object in which each chosen cluster is to be, unless it is there
	for _, at := range places {
		for _, cluster := range at.clusters {
			home[cluster] = at.name
		}
		if at.existing != nil {
			for _, d := range at.existing.Status.Decisions {
				if home[d.ClusterName] == at.name {
					delete(home, d.ClusterName)
				}
			}
		}
	}
	for _, w := range writes {
		var leaving []string // for another object
		for _, cluster := range w.held {
			if at, comes := home[cluster]; comes && at != w.object.Name {
				leaving = append(leaving, cluster)
			}
		}
		clusters := clustersOf(w.object)
		gains := slices.ContainsFunc(clusters, func(cluster string) bool { return !slices.Contains(w.held, cluster) })
		switch {
		case len(leaving) == 0:
			p.first = append(p.first, w)
		case !gains:
			p.then = append(p.then, w)
		default:
			// Clusters come from elsewhere while others leave for elsewhere: it holds both
			// for a while.
			both := w
			both.object = w.object.DeepCopy()
			both.object.Status.Decisions = decisionsOf(slices.Sorted(slices.Values(slices.Concat(clusters, leaving))))
			p.first = append(p.first, both)
			w.metadata = false
			p.then = append(p.then, w)
		}
	}
}

// compare notes which clusters come and go.
func (p *plan) compare(mine []*clusterv1beta1.PlacementDecision, places []place) {
	before, after := make(map[string]bool), make(map[string]bool)
	for _, d := range mine {
		for _, cluster := range clustersOf(d) {
			before[cluster] = true
		}
	}
	for _, at := range places {
		for _, cluster := range at.clusters {
			after[cluster] = true
			if !before[cluster] {
				p.added = append(p.added, cluster)
			}
		}
	}
	for cluster := range before {
		if !after[cluster] {
			p.removed = append(p.removed, cluster)
		}
	}
	slices.Sort(p.added)
	slices.Sort(p.removed)
}

// allot divides the clusters of each group among existing PlacementDecisions, and
// places that have neither an object nor a name yet. spare are the objects that
// are not needed.
func allot(groups []group, mine []*clusterv1beta1.PlacementDecision) (places []place, spare []*clusterv1beta1.PlacementDecision) {
	if len(groups) == 0 {
		return []place{{}}, mine
	}
	groupOf := make(map[string]int)
	for i, g := range groups {
		for _, cluster := range g.clusters {
			groupOf[cluster] = i
		}
	}
	type inGroup struct {
		objects  []*clusterv1beta1.PlacementDecision
		clusters [][]string
		leaving  []int // how many of the clusters of each are in another group now
	}
	earlier := make([]inGroup, len(groups))
	for _, d := range mine {
		clusters := clustersOf(d)
		i, leaving, ok := belongs(d, clusters, groupOf)
		if !ok {
			spare = append(spare, d)
			continue
		}
		e := &earlier[i]
		e.objects, e.clusters, e.leaving = append(e.objects, d), append(e.clusters, clusters), append(e.leaving, leaving)
	}
	for i, g := range groups {
		objects := earlier[i].objects
		bins := pack(slices.Clone(g.clusters), earlier[i].clusters, clusterv1beta1.MaxDecisions, earlier[i].leaving)
		for n, clusters := range bins {
			at := place{group: i, clusters: clusters}
			if n < len(objects) {
				at.existing, at.name = objects[n], objects[n].Name
			}
			places = append(places, at)
		}
		if len(objects) > len(bins) {
			spare = append(spare, objects[len(bins):]...)
		}
	}
	return places, spare
}

// belongs gives the group that most of the clusters of d are in, in doubt the one
// that its label names, and how many chosen ones are in another.
func belongs(d *clusterv1beta1.PlacementDecision, clusters []string, groupOf map[string]int) (group, leaving int, ok bool) {
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

// name gives each place without one an object that is not needed any more, or
// else the lowest name that is free. It gives the objects that are left over.
// Objects that hold a chosen cluster are not given away: it is read there until
// it is written elsewhere.
func name(placement string, places []place, spare []*clusterv1beta1.PlacementDecision, taken func(string) bool) (
	[]place, []*clusterv1beta1.PlacementDecision) {
	if !slices.ContainsFunc(places, func(at place) bool { return at.name == "" }) {
		return places, spare
	}
	chosen, used := make(map[string]bool), make(map[string]bool)
	for _, at := range places {
		used[at.name] = true
		for _, cluster := range at.clusters {
			chosen[cluster] = true
		}
	}
	spare = numbered(placement, spare)
	for _, d := range spare {
		used[d.Name] = true
	}
	n := 0
	for i := range places {
		at := &places[i]
		if at.name != "" {
			continue
		}
		free := slices.IndexFunc(spare, func(d *clusterv1beta1.PlacementDecision) bool {
			return !slices.ContainsFunc(clustersOf(d), func(cluster string) bool { return chosen[cluster] })
		})
		if free >= 0 {
			at.existing, at.name = spare[free], spare[free].Name
			spare = slices.Delete(spare, free, free+1)
			continue
		}
		for at.name == "" || used[at.name] || taken(at.name) {
			n++
			at.name = fmt.Sprintf("%s-decision-%d", placement, n)
		}
		used[at.name] = true
	}
	return places, spare
}

// ownedBy reports whether d belongs to p, and to no namesake that was before it.
func ownedBy(d *clusterv1beta1.PlacementDecision, p *clusterv1beta1.Placement) bool {
	return slices.ContainsFunc(d.OwnerReferences, func(o metav1.OwnerReference) bool { return isPlacement(o) && o.UID == p.UID })
}

// isPlacement reports whether o is a Placement.
func isPlacement(o metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return o.Kind == "Placement" && group == clusterv1beta1.GroupName
}

// groupsOf reads back which groups were chosen, in the order of their indices.
func groupsOf(placement string, mine []*clusterv1beta1.PlacementDecision) []group {
	byIndex := make(map[int]*group)
	for _, d := range numbered(placement, mine) {
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
		g.clusters = append(g.clusters, clustersOf(d)...)
	}
	var groups []group
	for _, index := range slices.Sorted(maps.Keys(byIndex)) {
		slices.Sort(byIndex[index].clusters)
		groups = append(groups, *byIndex[index])
	}
	return groups
}

// numbered gives decisions in the order of their numbers.
func numbered(placement string, decisions []*clusterv1beta1.PlacementDecision) []*clusterv1beta1.PlacementDecision {
	return slices.SortedFunc(slices.Values(decisions), func(a, b *clusterv1beta1.PlacementDecision) int {
		return byNumber(placement, a.Name, b.Name)
	})
}

// byNumber orders names by the number that they end in, others last.
func byNumber(placement, a, b string) int {
	number := func(name string) int {
		text, ok := strings.CutPrefix(name, placement+"-decision-")
		if n, err := strconv.Atoi(text); ok && err == nil {
			return n
		}
		return math.MaxInt
	}
	return cmp.Or(cmp.Compare(number(a), number(b)), strings.Compare(a, b))
}

// clustersOf gives the clusters that d holds, in its order.
func clustersOf(d *clusterv1beta1.PlacementDecision) []string {
	names := make([]string, len(d.Status.Decisions))
	for i, decision := range d.Status.Decisions {
		names[i] = decision.ClusterName
	}
	return names
}

func decisionsOf(clusters []string) []clusterv1beta1.ClusterDecision {
	decisions := make([]clusterv1beta1.ClusterDecision, len(clusters))
	for i, name := range clusters {
		decisions[i] = clusterv1beta1.ClusterDecision{ClusterName: name}
	}
	return decisions
}

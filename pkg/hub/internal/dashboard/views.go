package dashboard

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/explain"
)

// How many causes of works that need attention the overview names, and messages of each.
const (
	firstProblems = 8
	firstMessages = 3
)

// problem is a cause for which works need attention.
type problem struct {
	State    state
	Cause    string
	Count    int              // works
	Messages []problemMessage // the most common first
	More     int              // works with other messages
	URL      string           // of the list of its works
}

// problemMessage is what works with one cause say: the first of them, and how many they are.
type problemMessage struct {
	workRow
	Count int
}

// part is the share of one state in a tally.
type part struct {
	State state
	Count int
	X, W  float64 // of the bar, which is 100 wide
	URL   string  // of the list with this state
}

// tally is how many are in which state, drawn as a bar.
type tally struct {
	Noun  string
	Total int
	Parts []part // without those that nobody is in
}

// newTally returns a tally of states in their order; url returns the list with a state.
func newTally(noun string, states []state, in map[state]int, url func(state) string) tally {
	t := tally{Noun: noun}
	for _, n := range in {
		t.Total += n
	}
	x := 0.0
	for _, s := range states {
		if in[s] == 0 {
			continue
		}
		w := 100 * float64(in[s]) / float64(t.Total)
		t.Parts = append(t.Parts, part{State: s, Count: in[s], X: x, W: w, URL: url(s)})
		x += w
	}
	return t
}

// Text returns the tally as a sentence for those who do not see the bar.
func (t tally) Text() string {
	var parts []string
	for _, p := range t.Parts {
		parts = append(parts, strconv.Itoa(p.Count)+" "+label(p.State))
	}
	return plural(t.Total, t.Noun) + ": " + cmp.Or(strings.Join(parts, ", "), "none")
}

// label returns a state as pages write it.
func label(s state) string { return strings.ReplaceAll(string(s), "-", " ") }

// list is a filtered list with its form.
type list[T any] struct {
	page[T]
	Filter filter
	States []state // that the filter offers
	Path   string
	Noun   string // of a row
}

// fleetView is the overview.
type fleetView struct {
	Clusters, Works tally
	Problems        []problem // works that failed, or are pending, by cause
	MoreProblems    int       // works with causes that Problems leaves out
	Oldest          *workRow  // the work that is pending for the longest time
	List            list[clusterRow]
}

// Columns returns the states of works that the list of clusters has columns for: those that a work is in.
func (v fleetView) Columns() (states []state) {
	for _, p := range v.Works.Parts {
		states = append(states, p.State)
	}
	return states
}

// newFleetView returns the overview of what a viewer sees. It costs one pass over the snapshot.
func newFleetView(s *snapshot, sees func(string) bool, f filter) fleetView {
	inCluster, inWork := map[state]int{}, map[state]int{}
	v := fleetView{}
	var rows []clusterRow
	for i := range s.clusters {
		row := &s.clusters[i]
		if !sees(row.Name) {
			continue
		}
		inCluster[row.State]++
		for state, n := range row.Works {
			inWork[state] += n
		}
		if f.matchesCluster(row) {
			rows = append(rows, *row)
		}
	}
	v.Problems, v.Oldest = problems(s, sees)
	v.MoreProblems = inWork[workstate.PhaseFailed] + inWork[workstate.PhasePending]
	for i := range v.Problems {
		v.MoreProblems -= v.Problems[i].Count
	}
	v.Clusters = newTally("cluster", clusterStates, inCluster, func(s state) string { return "/" + filter{State: s}.query(1) })
	v.Works = newTally("work", workStates, inWork, func(s state) string { return "/works" + filter{State: s}.query(1) })
	v.List = list[clusterRow]{page: paginate(rows, f, "/"), Filter: f, States: clusterStates, Path: "/", Noun: "cluster"}
	return v
}

// problems returns why works failed or are pending: causes of failures and the most common first, with
// their messages; and the work that is pending for the longest time. Such works are first in a snapshot.
func problems(s *snapshot, sees func(string) bool) (all []problem, oldest *workRow) {
	type cause struct {
		state state
		cause string
	}
	type message struct {
		cause
		why string
	}
	causes, messages := map[cause]int{}, map[message]int{}
	for i := range s.works {
		row := &s.works[i]
		if row.State != workstate.PhaseFailed && row.State != workstate.PhasePending {
			break
		}
		if !sees(row.Namespace) {
			continue
		}
		c := cause{row.State, row.Cause}
		at, ok := causes[c]
		if !ok {
			at = len(all)
			causes[c], all = at, append(all, problem{State: c.state, Cause: c.cause, URL: "/works" + filter{State: c.state, Cause: c.cause}.query(1)})
		}
		all[at].Count++
		m := message{c, row.Why}
		if at2, ok := messages[m]; ok {
			all[at].Messages[at2].Count++
		} else {
			messages[m] = len(all[at].Messages)
			all[at].Messages = append(all[at].Messages, problemMessage{workRow: *row, Count: 1})
		}
		if row.State == workstate.PhasePending && !row.Since.IsZero() && (oldest == nil || row.Since.Before(oldest.Since)) {
			oldest = row
		}
	}
	slices.SortStableFunc(all, func(a, b problem) int {
		return cmp.Or(cmp.Compare(rank(workStates, a.State), rank(workStates, b.State)), cmp.Compare(b.Count, a.Count))
	})
	all = all[:min(len(all), firstProblems)]
	for i := range all {
		p := &all[i]
		slices.SortStableFunc(p.Messages, func(a, b problemMessage) int { return cmp.Compare(b.Count, a.Count) })
		p.Messages, p.More = p.Messages[:min(len(p.Messages), firstMessages)], p.Count
		for _, m := range p.Messages {
			p.More -= m.Count
		}
	}
	return all, oldest
}

// worksView is a list of works, of all clusters or of one.
type worksView struct {
	Works tally
	List  list[workRow]
}

// newWorksView returns the works that a viewer sees, in cluster if that is not "". It costs one pass
// over the snapshot.
func newWorksView(s *snapshot, sees func(string) bool, f filter, path, cluster string) worksView {
	in := map[state]int{}
	var rows []workRow
	for i := range s.works {
		row := &s.works[i]
		if cluster != "" && row.Namespace != cluster || !sees(row.Namespace) {
			continue
		}
		in[row.State]++
		if f.matchesWork(row) {
			rows = append(rows, *row)
		}
	}
	return worksView{
		Works: newTally("work", workStates, in, func(s state) string { return path + f.with(s).query(1) }),
		List:  list[workRow]{page: paginate(rows, f, path), Filter: f, States: workStates, Path: path, Noun: "work"},
	}
}

// conditionView is a condition in a table.
type conditionView struct {
	metav1.Condition
	Stale bool // about an older generation
	Bad   bool // not as it should be
}

// adverse are the types of conditions that should be False.
var adverse = map[string]bool{
	workv1.WorkProgressing: true, workv1.WorkDegraded: true, workv1.WorkDeleting: true, workv1.WorkDeletionHeld: true, workv1.WorkSpecUntrusted: true,
	workv1.WorkStalled: true, workv1alpha1.ManifestWorkReplicaSetConditionStopped: true, workv1alpha1.ManifestWorkReplicaSetConditionRolledBack: true,
	workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld: true,
	clusterv1.ManagedClusterConditionWorksHeld:               true, clusterv1.ManagedClusterConditionNoisy: true,
}

func newConditionViews(conditions []metav1.Condition, generation int64) []conditionView {
	views := make([]conditionView, 0, len(conditions))
	for _, c := range conditions {
		good := metav1.ConditionTrue
		if adverse[c.Type] {
			good = metav1.ConditionFalse
		}
		views = append(views, conditionView{Condition: c, Stale: c.ObservedGeneration != 0 && c.ObservedGeneration < generation, Bad: c.Status != good})
	}
	return views
}

// clusterView is the page of a cluster.
type clusterView struct {
	Row        clusterRow
	Sets       []reachingSet // the first that reach it
	MoreSets   int
	Conditions []conditionView
	Taints     []string
	worksView
}

// reachingSet is a replica set with a work for a cluster, and the state of this work.
type reachingSet struct {
	types.NamespacedName
	Work  string
	State state
}

// setsOf returns the replica sets that reach a cluster, the ones that need somebody first, and how many
// it leaves out. It costs one pass over the snapshot.
func setsOf(s *snapshot, cluster string) (sets []reachingSet, more int) {
	for i := range s.works {
		row := &s.works[i]
		if row.Namespace != cluster {
			continue
		}
		of, ok := workv1alpha1.ParseWorkLabel(row.ReplicaSet)
		switch {
		case !ok:
		case len(sets) < pageSize:
			sets = append(sets, reachingSet{NamespacedName: of, Work: row.Name, State: row.State})
		default:
			more++
		}
	}
	return sets, more
}

// manifestView is an object that a work applies.
type manifestView struct {
	Object     string
	APIVersion string
	State      state
	Conditions []conditionView
	Values     []valueView
}

// valueView is a feedback value.
type valueView struct{ Name, Text string }

func newManifestView(m *workv1.ManifestCondition) manifestView {
	v := manifestView{
		Object: workstate.ObjectName(m.ResourceMeta), APIVersion: strings.TrimPrefix(m.ResourceMeta.Group+"/"+m.ResourceMeta.Version, "/"),
		State: workstate.PhaseOfManifest(m), Conditions: newConditionViews(m.Conditions, 0),
	}
	for _, value := range m.StatusFeedbacks.Values {
		v.Values = append(v.Values, valueView{Name: value.Name, Text: workstate.ValueText(value.Value)})
	}
	return v
}

// workView is the page of a work.
type workView struct {
	Row        workRow
	Set        *types.NamespacedName // nil if it is of none
	Created    time.Time
	Declared   int // manifests in the spec
	Explained  explain.Explanation
	Conditions []conditionView
	Manifests  []manifestView
	Events     asked[eventView]
}

// newWorkView returns the page of a work, of which facts tell what is known.
func newWorkView(facts workstate.Facts) workView {
	work := facts.Work
	v := workView{
		Row: rowOf(work), Created: work.CreationTimestamp.Time, Declared: len(work.Spec.Workload.Manifests),
		Conditions: newConditionViews(work.Status.Conditions, work.Generation), Explained: explain.Explain(facts),
	}
	if set, ok := workv1alpha1.ParseWorkLabel(v.Row.ReplicaSet); ok {
		v.Set = &set
	}
	for i := range work.Status.ResourceStatus.Manifests {
		v.Manifests = append(v.Manifests, newManifestView(&work.Status.ResourceStatus.Manifests[i]))
	}
	slices.SortStableFunc(v.Manifests, func(a, b manifestView) int { return cmp.Compare(rank(workStates, a.State), rank(workStates, b.State)) })
	return v
}

// setsView is the list of replica sets.
type setsView struct {
	Sets tally
	List list[setRow]
}

func newSetsView(sets []*workv1alpha1.ManifestWorkReplicaSet, sees func(string) bool, f filter) setsView {
	in := map[state]int{}
	var rows []setRow
	for _, set := range sets {
		if !sees(set.Namespace) {
			continue
		}
		row := setRowOf(set)
		in[row.State]++
		if f.Problem == "" && (f.State == "" || f.State == row.State) && f.matchesLabels(set.Labels) && f.matchesText(row.Name, row.Namespace, row.Why) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b setRow) int {
		return cmp.Or(cmp.Compare(rank(setStates, a.State), rank(setStates, b.State)), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return setsView{
		Sets: newTally("replica set", setStates, in, func(s state) string { return "/replicasets" + f.with(s).query(1) }),
		List: list[setRow]{page: paginate(rows, f, "/replicasets"), Filter: f, States: setStates, Path: "/replicasets", Noun: "replica set"},
	}
}

// setView is the page of a replica set.
type setView struct {
	Row        setRow
	Generation int64
	Created    time.Time
	Conditions []conditionView
	Placements []placementView
	Revisions  asked[revisionView]
	Events     asked[eventView]
	worksView
}

// placementView is the rollout to the clusters of one placement.
type placementView struct {
	Name, Strategy string
	Summary        workv1alpha1.ManifestWorkReplicaSetSummary
	Groups         int // of its clusters
	Wanted         int // clusters
}

func newSetView(set *workv1alpha1.ManifestWorkReplicaSet, works []*workv1.ManifestWork, sees func(string) bool, f filter) setView {
	path := "/replicasets/" + set.Namespace + "/" + set.Name
	v := setView{
		Row: setRowOf(set), Generation: set.Generation, Created: set.CreationTimestamp.Time,
		Conditions: newConditionViews(set.Status.Conditions, set.Generation),
		worksView:  newWorksView(takeSnapshot(works, nil, false), sees, f, path, ""),
	}
	summaries := map[string]workv1alpha1.PlacementSummary{}
	for _, s := range set.Status.PlacementsSummary {
		summaries[s.Name] = s
	}
	for _, ref := range set.Spec.PlacementRefs {
		s := summaries[ref.Name]
		p := placementView{Name: ref.Name, Strategy: string(ref.RolloutStrategy.Kind()), Summary: s.Summary}
		p.Groups, p.Wanted = groupsOf(&s)
		v.Placements = append(v.Placements, p)
	}
	return v
}

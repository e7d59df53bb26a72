package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/explain"
)

// Summary is the state of a fleet on one screen. Its JSON is what workctl status -o json prints.
type Summary struct {
	Time     time.Time     `json:"time"`
	Hub      Hub           `json:"hub"`
	Clusters ClusterCounts `json:"clusters"`
	Works    WorkCounts    `json:"works"`
	Sets     SetCounts     `json:"sets"`
	// ClusterProblems, WorkProblems and SetProblems are what needs attention; of works what fails first, then what else is blocked, each
	// with the oldest first.
	ClusterProblems []ClusterLine `json:"clusterProblems"`
	WorkProblems    []WorkLine    `json:"workProblems"`
	SetProblems     []SetLine     `json:"setProblems"`
	// More says how many problems of each kind are left out.
	More struct {
		Clusters int `json:"clusters"`
		Works    int `json:"works"`
		Sets     int `json:"sets"`
	} `json:"more"`
}

// Hub is whether the hub is connected to the broker.
type Hub struct {
	// State is connected, away or unknown; unknown if there is no Lease or it cannot be read.
	State string       `json:"state"`
	Seen  *metav1.Time `json:"lastSeen,omitempty"`
}

// ClusterCounts counts clusters.
type ClusterCounts struct {
	Known       bool `json:"known"`
	Total       int  `json:"total"`
	Connected   int  `json:"connected"`
	Away        int  `json:"away"`
	NotAccepted int  `json:"notAccepted"`
	Paused      int  `json:"paused"`
}

// WorkCounts counts works. Each is one of Pending, Failing, Staged, Waiting, NotWatched and Ready; the others count some of
// them again.
type WorkCounts struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
	// NotWatched is how many are applied, without anybody watching whether their objects are ready.
	NotWatched int `json:"notWatched"`
	// Waiting is how many are on their way, and Staged how many of the others wait for the time to apply them.
	Waiting int `json:"waiting"`
	Staged  int `json:"staged"`
	// Failing is how many are blocked, of those that the agent has answered.
	Failing int `json:"failing"`
	// Pending is how many works the agent has not answered.
	Pending       int          `json:"pending"`
	OldestPending *PendingWork `json:"oldestPending,omitempty"`

	// Delivered, Applied and Degraded count those whose newest spec is so, Warned those that are applied with warnings.
	Delivered int `json:"delivered"`
	Applied   int `json:"applied"`
	Warned    int `json:"warned"`
	Degraded  int `json:"degraded"`
	Deleting  int `json:"deleting"`
}

// PendingWork is a work that the agent has not answered.
type PendingWork struct {
	Cluster string      `json:"cluster"`
	Name    string      `json:"name"`
	Since   metav1.Time `json:"since"`
}

// SetCounts counts sets.
type SetCounts struct {
	Total     int `json:"total"`
	RolledOut int `json:"rolledOut"`
	Paused    int `json:"paused"`
}

// ClusterLine is a cluster in a table.
type ClusterLine struct {
	Name      string       `json:"name"`
	Accepted  bool         `json:"accepted"`
	Connected string       `json:"connected"`
	Paused    bool         `json:"paused,omitempty"`
	LastSeen  *metav1.Time `json:"lastSeen,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	Works     int          `json:"works"`
	Pending   int          `json:"pending"`
	Failing   int          `json:"failing"`
	Created   metav1.Time  `json:"created"`

	unread  bool // its works
	hubAway bool // so that nobody knows whether it is still connected
}

// WorkLine is a work in a table.
type WorkLine struct {
	Cluster    string          `json:"cluster"`
	Name       string          `json:"name"`
	Delivered  string          `json:"delivered"`
	Applied    string          `json:"applied"`
	Ready      string          `json:"ready"`
	Generation int64           `json:"generation"`
	Observed   int64           `json:"observedGeneration"`
	Since      metav1.Time     `json:"since"`
	Created    metav1.Time     `json:"created"`
	Word       string          `json:"state"`
	Cause      workstate.Cause `json:"cause,omitempty"`
	Object     string          `json:"object,omitempty"`
	Message    string          `json:"message,omitempty"`

	state    workstate.State
	waitsFor []string // works, of the cause WaitsForWork
}

// SetLine is a set in a table. Total works of those that are Wanted have the newest template.
type SetLine struct {
	Namespace   string      `json:"namespace"`
	Name        string      `json:"name"`
	Total       int         `json:"total"`
	Wanted      int         `json:"wanted"`
	Applied     int         `json:"applied"`
	Available   int         `json:"available"`
	Progressing int         `json:"progressing"`
	Degraded    int         `json:"degraded"`
	RolledOut   string      `json:"rolledOut"`
	Paused      bool        `json:"paused,omitempty"`
	Since       metav1.Time `json:"since"`
	Created     metav1.Time `json:"created"`
	Message     string      `json:"message,omitempty"`
}

// Summarize summarizes a snapshot with at most lines problems of each kind; 0 means all.
func Summarize(s *Snapshot, lines int) *Summary {
	sum := &Summary{Time: s.Time, Hub: hub(s), ClusterProblems: []ClusterLine{}, WorkProblems: []WorkLine{}, SetProblems: []SetLine{}}
	works := WorkLines(s)
	sum.countWorks(s, works)
	for _, c := range ClusterLines(s, works) {
		sum.countCluster(&c)
		if !c.Accepted || c.Connected != string(metav1.ConditionTrue) || c.Paused {
			sum.ClusterProblems = append(sum.ClusterProblems, c)
		}
	}
	sum.Clusters.Known = s.ClustersKnown
	for i := range s.Sets {
		line := NewSetLine(&s.Sets[i])
		sum.Sets.Total++
		if line.Paused {
			sum.Sets.Paused++
		}
		if line.RolledOut == string(metav1.ConditionTrue) {
			sum.Sets.RolledOut++
		} else {
			sum.SetProblems = append(sum.SetProblems, line)
		}
	}
	sum.ClusterProblems, sum.More.Clusters = head(sum.ClusterProblems, lines)
	sum.WorkProblems, sum.More.Works = head(sum.WorkProblems, lines)
	sum.SetProblems, sum.More.Sets = head(sum.SetProblems, lines)
	return sum
}

func head[T any](all []T, lines int) ([]T, int) {
	if lines == 0 || len(all) <= lines {
		return all, 0
	}
	return all[:lines], len(all) - lines
}

func hub(s *Snapshot) Hub {
	if s.Presence == nil {
		return Hub{State: "unknown"}
	}
	h := Hub{State: "connected", Seen: &metav1.Time{Time: s.Presence.Spec.RenewTime.Time}}
	if workstate.Expired(s.Presence, s.Time) {
		h.State = "away"
	}
	return h
}

func (sum *Summary) countCluster(c *ClusterLine) {
	n := &sum.Clusters
	n.Total++
	switch {
	case !c.Accepted:
		n.NotAccepted++
	case c.Connected == string(metav1.ConditionTrue):
		n.Connected++
	default:
		n.Away++
	}
	if c.Paused {
		n.Paused++
	}
}

func (sum *Summary) countWorks(s *Snapshot, lines []WorkLine) {
	n := &sum.Works
	n.Total = len(lines)
	for i := range lines {
		line := &lines[i]
		count(&n.Delivered, line.Delivered)
		count(&n.Applied, line.Applied)
		if line.state.Phase == workstate.PhaseWarned {
			n.Warned++
		}
		if c := workstate.Current(&s.Works[i], workv1.WorkDegraded); c != nil {
			count(&n.Degraded, string(c.Status))
		}
		if line.state.Phase == workstate.PhaseDeleting {
			n.Deleting++
		}
		switch {
		case line.pending():
			n.Pending++
			if n.OldestPending == nil || line.Since.Before(&n.OldestPending.Since) {
				n.OldestPending = &PendingWork{line.Cluster, line.Name, line.Since}
			}
		case line.failing():
			n.Failing++
		case line.Cause == workstate.Staged:
			n.Staged++
		case line.Ready == string(metav1.ConditionFalse):
			n.Waiting++
		case line.Ready == "":
			n.NotWatched++
		default:
			n.Ready++
		}
	}
	sum.WorkProblems = attention(lines, true)
}

// attention returns the lines of works that need attention, the worst first. A work that waits for one of which there is no line needs it if
// lines has all works of its cluster, or its agent says that there is no such work.
func attention(lines []WorkLine, all bool) []WorkLine {
	goesOn := make(map[types.NamespacedName]bool, len(lines))
	for i := range lines {
		goesOn[types.NamespacedName{Namespace: lines[i].Cluster, Name: lines[i].Name}] = !lines[i].state.Blocked()
	}
	worst := []WorkLine{}
	for i := range lines {
		l := &lines[i]
		// Whatever a deletion waits for may have finalizers, which the agent need not be allowed to see.
		if l.late() || l.state.Phase == workstate.PhaseDeleting || slices.ContainsFunc(l.waitsFor, func(name string) bool {
			goes, known := goesOn[types.NamespacedName{Namespace: l.Cluster, Name: name}]
			return !goes && (known || all || workstate.IsAbsent(l.Message, name))
		}) {
			worst = append(worst, *l)
		}
	}
	slices.SortStableFunc(worst, func(a, b WorkLine) int {
		return cmp.Or(a.severity()-b.severity(), a.Since.Time.Compare(b.Since.Time), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Name, b.Name))
	})
	return worst
}

// severity orders works: a cluster that is away has one line, and not those of all of its works, before what fails.
func (l *WorkLine) severity() int {
	switch {
	case l.failing():
		return 0
	case l.state.Blocked():
		return 1
	}
	return 2
}

func count(n *int, status string) {
	if status == string(metav1.ConditionTrue) {
		*n++
	}
}

// WorkLines returns a line for each work, in the order of the snapshot. Whether hub and agents are there is told
// for works that wait for them, not for those that have their newest spec.
func WorkLines(s *Snapshot) []WorkLine {
	clusters := make(map[string]*clusterv1.ManagedCluster, len(s.Clusters))
	for i := range s.Clusters {
		clusters[s.Clusters[i].Name] = &s.Clusters[i]
	}
	lines := make([]WorkLine, len(s.Works))
	for i := range s.Works {
		w := &s.Works[i]
		f := workstate.Facts{Now: s.Time, Work: w}
		if !workstate.Answered(w) || w.DeletionTimestamp != nil {
			f.Cluster = clusters[w.Namespace]
			f.Presence, f.Leader = s.leasesOf(f.Cluster)
			f.NoCluster = f.Cluster == nil && s.ClustersKnown
		}
		lines[i] = NewWorkLine(w, explain.Explain(f))
	}
	return lines
}

// NewWorkLine returns the line of a work.
func NewWorkLine(w *workv1.ManifestWork, e explain.Explanation) WorkLine {
	line := WorkLine{
		Cluster: w.Namespace, Name: w.Name, Generation: w.Generation, Observed: e.Observed, Word: e.Word, state: e.State, Created: w.CreationTimestamp,
		Delivered: string(metav1.ConditionUnknown), Applied: string(metav1.ConditionUnknown), Ready: "", Since: w.CreationTimestamp,
	}
	if workstate.Answered(w) {
		line.Delivered = string(metav1.ConditionTrue)
	} else if c := workstate.Current(w, workv1.WorkDelivered); c != nil {
		line.Delivered = string(c.Status)
	}
	if c := workstate.Current(w, workv1.WorkApplied); c != nil {
		line.Applied = string(c.Status)
	}
	switch e.Readiness() {
	case explain.Done:
		line.Ready = string(metav1.ConditionTrue)
	case explain.Waiting:
		line.Ready = string(metav1.ConditionFalse)
	}
	if b := e.Blocker; b != nil {
		line.Cause, line.Object, line.Message = b.Cause, b.Object, b.Message
		if b.Cause == workstate.WaitsForWork {
			line.waitsFor = workv1.DependsOn(w)
		}
		if b.Since != nil {
			line.Since = *b.Since
		}
	}
	return line
}

// pending reports whether the agent has not answered the newest spec.
func (l *WorkLine) pending() bool { return l.Delivered != string(metav1.ConditionTrue) }

// failing reports whether the agent has answered, and the work does not go on by itself.
func (l *WorkLine) failing() bool { return !l.pending() && l.state.Blocked() }

// late reports whether the work has not got as far as it should by now. What waits for a time, or for others that are not
// blocked, has.
func (l *WorkLine) late() bool {
	switch l.Cause {
	case workstate.Staged, workstate.RolloutWaits, workstate.WaitsForWave, workstate.WaitsForHook, workstate.WaitsForWork:
		return l.state.Blocked()
	}
	return !l.Done()
}

// Done reports whether the work has got as far as it can.
func (l *WorkLine) Done() bool { return l.state.Done() }

// ClusterLines returns a line for each cluster, in the order of the snapshot. lines are those of the works.
func ClusterLines(s *Snapshot, lines []WorkLine) []ClusterLine {
	all := make([]ClusterLine, len(s.Clusters))
	index := make(map[string]*ClusterLine, len(s.Clusters))
	for i := range s.Clusters {
		all[i] = NewClusterLine(&s.Clusters[i])
		presence, _ := s.leasesOf(&s.Clusters[i])
		all[i].unread, all[i].hubAway = s.WorksUnread, presence != nil && workstate.Expired(presence, s.Time)
		index[all[i].Name] = &all[i]
	}
	for i := range lines {
		c := index[lines[i].Cluster]
		if c == nil {
			continue
		}
		c.Works++
		switch {
		case lines[i].pending():
			c.Pending++
		case lines[i].failing():
			c.Failing++
		}
	}
	return all
}

// NewClusterLine returns the line of a cluster without its works.
func NewClusterLine(c *clusterv1.ManagedCluster) ClusterLine {
	line := ClusterLine{Name: c.Name, Accepted: c.Spec.HubAcceptsClient, Connected: string(metav1.ConditionUnknown), Created: c.CreationTimestamp,
		Paused: workv1.IsPaused(c)}
	if available := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable); available != nil {
		line.Connected = string(available.Status)
		if available.Status != metav1.ConditionTrue {
			line.Reason = available.Message
		}
	}
	if at, err := time.Parse(time.RFC3339, c.Annotations[clusterv1.LastSeenAnnotationKey]); err == nil {
		line.LastSeen = &metav1.Time{Time: at}
	}
	return line
}

// NewSetLine returns the line of a set.
func NewSetLine(set *workv1alpha1.ManifestWorkReplicaSet) SetLine {
	n := set.Status.Summary
	line := SetLine{Namespace: set.Namespace, Name: set.Name, Total: n.Total, Wanted: set.Status.SelectedClusters, Applied: n.Applied, Available: n.Available,
		Progressing: n.Progressing, Degraded: n.Degraded, RolledOut: string(metav1.ConditionUnknown), Since: set.CreationTimestamp, Created: set.CreationTimestamp,
		Paused: workv1.IsPaused(set)}
	if c := meta.FindStatusCondition(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut); c != nil {
		line.RolledOut, line.Since = string(c.Status), c.LastTransitionTime
	}
	line.Message = setMessage(set)
	if unseen(set) {
		line.RolledOut, line.Message = string(metav1.ConditionUnknown), notSeen
	}
	if line.Paused {
		line.Message = cmp.Or(line.Message, "paused")
	}
	return line
}

// setMessage says what keeps a set from being as it should, empty if nothing does.
func setMessage(set *workv1alpha1.ManifestWorkReplicaSet) string {
	with := func(kind string, status metav1.ConditionStatus) *metav1.Condition {
		if c := meta.FindStatusCondition(set.Status.Conditions, kind); c != nil && c.Status == status {
			return c
		}
		return nil
	}
	held := with(workv1alpha1.ManifestWorkReplicaSetConditionRemovalsHeld, metav1.ConditionTrue)
	unverified := with(workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified, metav1.ConditionFalse)
	var progressing *metav1.Condition
	if with(workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut, metav1.ConditionTrue) == nil {
		progressing = meta.FindStatusCondition(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	}
	text := ""
	for _, c := range []*metav1.Condition{held, unverified, progressing} { // PlacementRolledOut has no message while somebody is waited for
		if c != nil && !strings.Contains(text, c.Message) {
			text = strings.TrimPrefix(text+"; "+c.Message, "; ")
		}
	}
	if text != "" {
		return text
	}
	notRolledOut := with(workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut, metav1.ConditionFalse)
	notApplied := with(workv1alpha1.ManifestWorkReplicaSetConditionManifestworkApplied, metav1.ConditionFalse)
	if c := cmp.Or(held, unverified, notRolledOut, notApplied); c != nil {
		return cmp.Or(c.Message, c.Reason)
	}
	return ""
}

const notSeen = "the hub has not seen the newest template yet"

// unseen reports whether the status of a set is that of an earlier spec, or of the time before Retry.
func unseen(set *workv1alpha1.ManifestWorkReplicaSet) bool {
	progressing := meta.FindStatusCondition(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	if progressing == nil {
		return false
	}
	_, back := set.Annotations[workwirev1alpha1.ServedRevisionAnnotationKey]
	retried := !back && meta.IsStatusConditionTrue(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionRolledBack) &&
		progressing.Reason != workv1alpha1.ReasonRollingBack // the hub writes this before the annotation
	return retried || progressing.ObservedGeneration != 0 && progressing.ObservedGeneration < set.Generation
}

// Age returns the time from at to now, such as "3m"; "-" if at is not known.
func Age(now time.Time, at *metav1.Time) string {
	if at == nil || at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(at.Time)))
}

func ratio(observed, wanted int64) string { return fmt.Sprintf("%d/%d", observed, wanted) }

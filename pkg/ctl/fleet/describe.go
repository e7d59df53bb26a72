package fleet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/explain"
)

// maxEvents and maxLines bound the lists of a description.
const (
	maxEvents = 20
	maxLines  = 20
)

// Description writes descriptions as text.
type Description struct {
	Out   io.Writer
	Style cli.Style
	Now   time.Time
}

// DescribeWork writes the explanation of a work, its manifests with their feedback, conditions and events.
func (r *Reader) DescribeWork(ctx context.Context, d Description, cluster, name string) error {
	f, err := r.Facts(ctx, cluster, name)
	if err != nil {
		return err
	}
	e := explain.Explain(f)
	if err := WriteExplanation(d.Out, d.Style, d.Now, &e); err != nil {
		return err
	}
	if err := d.table("Manifests", ManifestTable(f.Work)); err != nil {
		return err
	}
	if err := d.table("Feedback", FeedbackTable(f.Work)); err != nil {
		return err
	}
	if err := d.conditions(f.Work.Status.Conditions); err != nil {
		return err
	}
	return d.events(r.events(ctx, cluster, "ManifestWork", name))
}

// DescribeCluster writes the presence of a cluster, its works that need attention, its conditions and events.
func (r *Reader) DescribeCluster(ctx context.Context, d Description, name string) error {
	cluster, err := r.Clients.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return notFound(err, "cluster", name, "workctl get clusters")
	}
	s := &Snapshot{Time: d.Now, Clusters: []clusterv1.ManagedCluster{*cluster}, ClustersKnown: true}
	if s.Works, err = r.Works(ctx, name, ""); err != nil {
		return err
	}
	s.readLeases(ctx, r)
	works := WorkLines(s)
	line := ClusterLines(s, works)[0]
	seen := ""
	if at := lastSeen(&line, d.Now); at != "-" {
		seen = fmt.Sprintf(", last seen %s ago", at)
	}
	_, err = fmt.Fprintf(d.Out, "Cluster %s: connected %s%s, accepted %t, paused %t\nWorks: %d, %d pending, %d failing\n", name,
		line.Connected, seen, line.Accepted, line.Paused, line.Works, line.Pending, line.Failing)
	if err != nil {
		return err
	}
	works, more := head(attention(works, true), maxLines)
	if err := d.table("Works that need attention", problemTable(works, d.Now)); err != nil {
		return err
	}
	if more > 0 {
		_, _ = fmt.Fprintf(d.Out, "… and %d more: workctl get works -n %s --blocked\n", more, name)
	}
	if err := d.conditions(cluster.Status.Conditions); err != nil {
		return err
	}
	return d.events(r.events(ctx, "", "ManagedCluster", name))
}

// DescribeSet writes how far the rollout of a set has got, with its stages, its placements, its works that need attention,
// conditions and events.
func (r *Reader) DescribeSet(ctx context.Context, d Description, namespace, name string) error {
	set, err := r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return notFound(err, "set", name, "workctl get sets -A")
	}
	s := &Snapshot{Time: d.Now}
	if s.Works, err = r.Works(ctx, "", workv1.ReplicaSetLabelKey+"="+workv1alpha1.WorkLabel(types.NamespacedName{Namespace: namespace, Name: name})); err != nil {
		return err
	}
	works := WorkLines(s)
	total := len(works)
	works = attention(works, false)
	rollout := RolloutOf(set)
	if _, err := fmt.Fprintf(d.Out, "Set %s/%s: %s\n%sWorks: %d, %s attention\n", namespace, name, rollout.Line, rollout.Stages, total,
		cli.Plural(len(works), "of them needs", "of them need")); err != nil {
		return err
	}
	if err := d.table("Placements", placementTable(set)); err != nil {
		return err
	}
	works, more := head(works, maxLines)
	if err := d.table("Works that need attention", problemTable(works, d.Now)); err != nil {
		return err
	}
	if more > 0 {
		_, _ = fmt.Fprintf(d.Out, "… and %d more\n", more)
	}
	if err := d.conditions(set.Status.Conditions); err != nil {
		return err
	}
	return d.events(r.events(ctx, namespace, "ManifestWorkReplicaSet", name))
}

func placementTable(set *workv1alpha1.ManifestWorkReplicaSet) *cli.Rows {
	t := &cli.Rows{Header: []string{"PLACEMENT", "STRATEGY", "GROUPS", "TOTAL", "APPLIED", "AVAILABLE", "PROGRESSING", "DEGRADED"}}
	for _, ref := range set.Spec.PlacementRefs {
		var p workv1alpha1.PlacementSummary
		if i := slices.IndexFunc(set.Status.PlacementsSummary, func(p workv1alpha1.PlacementSummary) bool { return p.Name == ref.Name }); i >= 0 {
			p = set.Status.PlacementsSummary[i]
		}
		n := p.Summary
		t.Add(ref.Name, string(ref.RolloutStrategy.Kind()), p.AvailableDecisionGroups, fmt.Sprint(n.Total), fmt.Sprint(n.Applied),
			fmt.Sprint(n.Available), fmt.Sprint(n.Progressing), fmt.Sprint(n.Degraded))
	}
	return t
}

// ManifestTable returns a table of the manifests of a work with the first message that tells of a fault.
func ManifestTable(w *workv1.ManifestWork) *cli.Rows {
	t := &cli.Rows{Header: []string{"#", "OBJECT", "APPLIED", "AVAILABLE", "READY", "MESSAGE"}}
	for _, entry := range w.Status.ResourceStatus.Manifests {
		m := entry.ResourceMeta
		status := func(kind string) cli.Cell {
			if c := meta.FindStatusCondition(entry.Conditions, kind); c != nil {
				return statusTone(string(c.Status))
			}
			return cli.Cell{}
		}
		ready := statusTone(string(metav1.ConditionFalse))
		switch workstate.PhaseOfManifest(&entry) {
		case workstate.PhaseReady:
			ready = statusTone(string(metav1.ConditionTrue))
		case workstate.PhaseApplied:
			ready = notWatched
		}
		t.Add(fmt.Sprint(m.Ordinal), workstate.ObjectName(m), status(workv1.ManifestApplied), status(workv1.ManifestAvailable), ready, firstFault(entry.Conditions))
	}
	return t
}

// FeedbackTable returns a table of the feedback values of the manifests of a work.
func FeedbackTable(w *workv1.ManifestWork) *cli.Rows {
	t := &cli.Rows{Header: []string{"#", "OBJECT", "NAME", "VALUE"}}
	for _, entry := range w.Status.ResourceStatus.Manifests {
		for _, v := range entry.StatusFeedbacks.Values {
			t.Add(fmt.Sprint(entry.ResourceMeta.Ordinal), workstate.ObjectName(entry.ResourceMeta), v.Name, workstate.ValueText(v.Value))
		}
	}
	return t
}

// firstFault returns the first message of a condition that is not as it should be.
func firstFault(conditions []metav1.Condition) string {
	for _, bad := range []struct {
		kind   string
		status metav1.ConditionStatus
	}{
		{workv1.ManifestApplied, metav1.ConditionFalse}, {workv1.ManifestApplied, metav1.ConditionUnknown}, {workv1.ManifestDegraded, metav1.ConditionTrue},
		{workv1.ManifestAvailable, metav1.ConditionFalse}, {workv1.ManifestAvailable, metav1.ConditionUnknown},
		{workv1.ManifestProgressing, metav1.ConditionTrue}, {workv1.ManifestStatusFeedbackSynced, metav1.ConditionFalse},
	} {
		if c := meta.FindStatusCondition(conditions, bad.kind); c != nil && c.Status == bad.status {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// table writes a table with a heading, unless it is empty.
func (d Description) table(title string, rows *cli.Rows) error {
	if len(rows.Rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(d.Out, "\n%s\n", d.Style.Paint(cli.Bold, title)); err != nil {
		return err
	}
	return rows.Write(d.Out, d.Style, 0)
}

func (d Description) conditions(conditions []metav1.Condition) error {
	t := &cli.Rows{Header: []string{"TYPE", "STATUS", "REASON", "GENERATION", "SINCE", "MESSAGE"}}
	for i := range conditions {
		c := &conditions[i]
		generation := ""
		if c.ObservedGeneration > 0 {
			generation = fmt.Sprint(c.ObservedGeneration)
		}
		t.Add(c.Type, string(c.Status), c.Reason, generation, Age(d.Now, &c.LastTransitionTime),
			strings.ReplaceAll(strings.TrimSpace(c.Message), "\n", "; "))
	}
	return d.table("Conditions", t)
}

func (d Description) events(events []corev1.Event) error {
	t := &cli.Rows{Header: []string{"LAST", "TYPE", "REASON", "COUNT", "MESSAGE"}}
	for i := range events {
		e := &events[i]
		tone := cli.Plain
		if e.Type == corev1.EventTypeWarning {
			tone = cli.Warn
		}
		t.Add(Age(d.Now, new(lastTime(e))), cli.Cell{Text: e.Type, Tone: tone}, e.Reason, fmt.Sprint(max(1, e.Count)), e.Message)
	}
	return d.table("Events", t)
}

// events returns the newest events about an object, the last one first; none if the user may not read
// them.
func (r *Reader) events(ctx context.Context, namespace, kind, name string) []corev1.Event {
	selector := fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}.AsSelector().String()
	found, err := r.Kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil
	}
	slices.SortStableFunc(found.Items, func(a, b corev1.Event) int { return lastTime(&b).Time.Compare(lastTime(&a).Time) })
	return found.Items[:min(len(found.Items), maxEvents)]
}

func lastTime(e *corev1.Event) metav1.Time {
	if e.Series != nil {
		return metav1.Time{Time: e.Series.LastObservedTime.Time}
	}
	return metav1.Time{Time: cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)}
}

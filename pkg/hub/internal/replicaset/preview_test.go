package replicaset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/previews"
	"github.com/workwire/workwire/pkg/hub/revisions"
	"github.com/workwire/workwire/test/kit"
)

// previewed returns the annotations of a set that demands previews, and has one of a template, with these refusals.
func previewed(t *testing.T, template string, refused int) map[string]string {
	t.Helper()
	value, err := (&previews.Record{Template: template, Time: metav1.NewTime(start), Clusters: 3, Asked: 3, Answered: 3, Refused: refused}).Value()
	kit.NoError(t, err)
	return map[string]string{
		workv1alpha1.PreviewAnnotationKey: workv1alpha1.PreviewRequired, workv1alpha1.PreviewLimitAnnotationKey: "deleted=0",
		workv1alpha1.PreviewedAnnotationKey: value,
	}
}

// TestPreviewHolds: which clusters get a template that waits for its preview, and what the set says. c1 has the template, c2 has an
// earlier one, and c3 is new.
func TestPreviewHolds(t *testing.T) {
	const waits = "1 of 3 clusters succeeded; waits for its preview"
	for name, c := range map[string]struct {
		works   string
		change  func(*input)
		changes string
		want    string // the beginning of Progressing
	}{
		"previewed":    {changes: "create c3 update c2", want: "True RollingOut 1 of 3 clusters succeeded"},
		"not demanded": {change: func(in *input) { in.set.Annotations = nil }, changes: "create c3 update c2", want: "True RollingOut"},
		"not previewed": {change: func(in *input) { delete(in.set.Annotations, workv1alpha1.PreviewedAnnotationKey) },
			want: "Unknown WaitsForPreview " + waits + ": workctl diff set set -n ns --record"},
		"another template": {change: func(in *input) { in.hash = "other" }, want: "Unknown WaitsForPreview " + waits + ", the one of 2026-01-02T03:04:05Z is of another template"},
		"overrides that were not previewed": {change: func(in *input) {
			in.overriding = overridingOf(t, in.set, map[string]string{"c1": "2", "c2": "2", "c3": "2"})
			in.overriding.hash = "new"
		}, want: "Unknown WaitsForPreview " + waits + ", the one of 2026-01-02T03:04:05Z is of other WorkOverrides"},
		"the labels of the set": {change: func(in *input) { in.hash = "other"; in.set.Labels = map[string]string{"team": "till"} },
			changes: "label c1 label c2", want: "Unknown WaitsForPreview"},
		"a cluster leaves": {change: func(in *input) {
			in.hash, in.placements[0].object.Status.NumberOfSelectedClusters = "other", 2
			in.placements[0].decisions[0].Status.Decisions = in.placements[0].decisions[0].Status.Decisions[1:]
		}, changes: "delete c1", want: "Unknown WaitsForPreview"},
		"paused too": {change: func(in *input) {
			in.hash = "other"
			in.set.Annotations[workv1.PausedAnnotationKey] = "true"
		}, want: "Unknown Paused"},
		"who has it works on": {works: "c1:progressing c2:new c3:new", change: func(in *input) { in.hash = "other" }, want: "True RollingOut 0 of 3"},
		"all have it":         {works: "c1:ok c2:ok c3:ok", change: func(in *input) { in.hash = "other" }, want: "False Complete"},
		"the way back": {works: "c1:ok c2:old", change: func(in *input) {
			in.own, in.set = in.set, in.set.DeepCopy()
			in.hash, in.set.Spec.ManifestWorkTemplate, in.revisions.Served = "other", template("1"), 1
		}, changes: "create c3 update c1", want: "True RollingBack"},
		"its revision is approved": {change: func(in *input) {
			in.revisions.Own = 4
			in.set.Annotations[workwirev1alpha1.ApprovalsAnnotationKey] = `[{"revision":4,"stage":"preview","time":null}]`
			delete(in.set.Annotations, workv1alpha1.PreviewLimitAnnotationKey)
		}, changes: "create c3 update c2", want: "True RollingOut"},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet("p")
			set.Annotations = previewed(t, "hash", 0)
			object, decisions := placementOf("p", []string{"c1", "c2", "c3"})
			if c.works == "" {
				c.works = "c1:ok c2:old"
			}
			in := input{
				set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: worksOf("p", strings.Fields(c.works)...),
				workByName: noWork, presence: present, cluster: noCluster, now: start, asked: true, hash: "hash",
			}
			if c.change != nil {
				c.change(&in)
			}
			p := decide(in)
			if got := strings.Join(describe(p.changes), " "); got != c.changes {
				t.Errorf("changes %q, want %q", got, c.changes)
			}
			got := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
			if text := fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message); !strings.HasPrefix(text, c.want) {
				t.Errorf("\n got %s\nwant %s", text, c.want)
			}
			rolledOut := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut)
			if in.held = heldByPreview(in); strings.HasSuffix(rolledOut.Message, in.held) != (in.held == "" || strings.HasPrefix(c.want, "Unknown WaitsForPreview")) {
				t.Errorf("%s, want %q", rolledOut.Message, in.held)
			}
			if stalled := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStalled); stalled != nil {
				t.Errorf("%+v", stalled)
			}
		})
	}
}

// TestPreviewGate: on an API server, a set that demands previews gives a template to nobody until a record of it is written, tells why, and
// holds the next one again.
func TestPreviewGate(t *testing.T) {
	e := newEnv(t, 2)
	r := e.start()
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Annotations = map[string]string{workv1alpha1.PreviewAnnotationKey: workv1alpha1.PreviewRequired}
	e.createSet(set)
	awaits := func(want string) {
		t.Helper()
		kit.Eventually(t, "Progressing is "+want, func() error {
			current, err := e.getSet(set.Name)
			if err != nil {
				return err
			}
			c := meta.FindStatusCondition(current.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
			if c == nil || !strings.Contains(c.Reason+" "+c.Message, want) {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	}
	record := func(value string, refused int) {
		t.Helper()
		of := template(value)
		hash, err := revisions.Hash(&of)
		kit.NoError(t, err)
		e.updateSet(set.Name, func(set *workv1alpha1.ManifestWorkReplicaSet) {
			maps.Copy(set.Annotations, previewed(t, hash, refused))
		})
	}
	awaits("WaitsForPreview revision 1: 0 of 2 clusters succeeded; waits for its preview: workctl diff set set -n " + e.namespace + " --record")
	e.awaitEvent(r, "Normal WaitsForPreview revision 1: 0 of 2")
	record("2", 1)
	awaits("1 of 3 clusters refuse it")
	if works := e.works(set.Name); len(works) > 0 {
		t.Errorf("%d works", len(works))
	}
	record("2", 0)
	e.awaitTemplate(set.Name, "2", "c01 c02")
	e.updateSet(set.Name, func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.ManifestWorkTemplate = template("3") })
	awaits("is of another template")
	if written := e.awaitIdle(r, set.Name); slices.ContainsFunc(written, func(request string) bool { return strings.Contains(request, "manifestworks/") }) {
		t.Error(errors.New(strings.Join(written, "\n")))
	}
	record("3", 0)
	e.awaitTemplate(set.Name, "3", "c01 c02")
}

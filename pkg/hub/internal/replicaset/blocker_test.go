package replicaset

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// reports adds an entry for a manifest to the status of work. Conditions are texts "Type=Status message".
func reports(work *workv1.ManifestWork, object workv1.ManifestResourceMeta, conditions ...string) {
	entry := workv1.ManifestCondition{ResourceMeta: object}
	for _, text := range conditions {
		state, message, _ := strings.Cut(text, " ")
		kind, status, _ := strings.Cut(state, "=")
		entry.Conditions = append(entry.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionStatus(status), Message: message, ObservedGeneration: work.Generation,
		})
	}
	work.Status.ResourceStatus.Manifests = append(work.Status.ResourceStatus.Manifests, entry)
}

// TestBlocker: the worst object of a work is named, with what it reports.
func TestBlocker(t *testing.T) {
	web := workv1.ManifestResourceMeta{Kind: "Deployment", Namespace: "default", Name: "web"}
	crd := workv1.ManifestResourceMeta{Kind: "CustomResourceDefinition", Name: "widgets"}
	for name, c := range map[string]struct {
		report func(*workv1.ManifestWork)
		want   string
	}{
		"no status": {report: func(*workv1.ManifestWork) {}},
		"all well":  {report: func(w *workv1.ManifestWork) { reports(w, web, "Applied=True", "Progressing=False", "Degraded=False") }},
		"not ready": {report: func(w *workv1.ManifestWork) { reports(w, web, "Applied=True", "Progressing=True Available: 0/1") },
			want: "Deployment default/web: Available: 0/1"},
		"failed before not ready": {report: func(w *workv1.ManifestWork) {
			reports(w, web, "Progressing=True Available: 0/1")
			reports(w, crd, "Progressing=True x", "Degraded=True name conflict")
		}, want: "CustomResourceDefinition widgets: name conflict"},
		"not applied before all": {report: func(w *workv1.ManifestWork) {
			reports(w, crd, "Degraded=True name conflict")
			reports(w, web, "Applied=False Failed to apply manifest: forbidden")
		}, want: "Deployment default/web: Failed to apply manifest: forbidden"},
		"an earlier generation": {report: func(w *workv1.ManifestWork) {
			reports(w, web, "Progressing=True Available: 0/1")
			w.Generation++
		}},
		"a long text": {report: func(w *workv1.ManifestWork) { reports(w, web, "Degraded=True "+strings.Repeat("é", 400)) },
			want: "Deployment default/web: " + strings.Repeat("é", 150) + "…"},
	} {
		work := worksOf("p", "c1:progressing")[0]
		c.report(work)
		if got := blocker(work); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestCanary: a canary whose object is not ready keeps the next cluster from starting, and the set
// names cluster, object and reason. Without readiness the rollout goes on.
func TestCanary(t *testing.T) {
	for name, c := range map[string]struct{ annotation, changes, message string }{
		"ready":     {message: "waiting for c1: Deployment default/web: Available: 0/1"},
		"available": {annotation: workv1alpha1.RolloutSuccessAvailable, changes: "create c2 label c1"},
	} {
		set := newSet("p")
		set.Annotations = map[string]string{workv1alpha1.RolloutSuccessAnnotationKey: c.annotation}
		set.Spec.PlacementRefs[0].RolloutStrategy = clusterv1alpha1.RolloutStrategy{
			RolloutType: clusterv1alpha1.Progressive, Progressive: progressive(1, 0).Progressive,
		}
		works := worksOf("p", "c1:progressing")
		if c.annotation != "" { // the agent has been told, and has answered
			works = worksOf("p", "c1:ok")
		}
		reports(works[0], workv1.ManifestResourceMeta{Kind: "Deployment", Namespace: "default", Name: "web"}, "Applied=True", "Progressing=True Available: 0/1")
		object, decisions := placementOf("p", []string{"c1", "c2"})
		p := decide(input{
			set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: works,
			workByName: noWork, presence: present, cluster: noCluster, now: start,
		})
		if got := strings.Join(describe(p.changes), " "); got != c.changes {
			t.Errorf("%s: changes %q, want %q", name, got, c.changes)
		}
		if got := waitingMessage(p.rollouts); got != c.message {
			t.Errorf("%s: %q, want %q", name, got, c.message)
		}
	}
}

package crds_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/revisions"
	"github.com/workwire/workwire/test/kit"
)

// fleet are the kinds above single works, with the columns that kubectl shows for them.
var fleet = map[schema.GroupVersionKind]struct {
	resource string
	scope    meta.RESTScopeName
	columns  []string
}{
	clusterv1.GroupVersion.WithKind("ManagedCluster"): {
		"managedclusters", meta.RESTScopeNameRoot, []string{"Name", "Accepted", "Available", "Last seen", "Age"},
	},
	clusterv1beta2.GroupVersion.WithKind("ManagedClusterSet"): {
		"managedclustersets", meta.RESTScopeNameRoot, []string{"Name", "Empty", "Clusters", "Age"},
	},
	clusterv1beta2.GroupVersion.WithKind("ManagedClusterSetBinding"): {
		"managedclustersetbindings", meta.RESTScopeNameNamespace, []string{"Name", "Bound", "Age"},
	},
	clusterv1beta1.GroupVersion.WithKind("Placement"): {
		"placements", meta.RESTScopeNameNamespace, []string{"Name", "Satisfied", "Reason", "Selected", "Age"},
	},
	clusterv1beta1.GroupVersion.WithKind("PlacementDecision"): {
		"placementdecisions", meta.RESTScopeNameNamespace, []string{"Name", "Placement", "Group", "Group name", "Age"},
	},
	clusterv1alpha1.GroupVersion.WithKind("AddOnPlacementScore"): {
		"addonplacementscores", meta.RESTScopeNameNamespace, []string{"Name", "Valid until", "Age"},
	},
	workv1alpha1.GroupVersion.WithKind("ManifestWorkReplicaSet"): {
		"manifestworkreplicasets", meta.RESTScopeNameNamespace,
		[]string{"Name", "Total", "Wanted", "Available", "Rolled out", "Stopped", "Progressing", "Since", "Message", "Age"},
	},
	workwirev1alpha1.GroupVersion.WithKind("ManifestWorkReplicaSetRevision"): {
		"manifestworkreplicasetrevisions", meta.RESTScopeNameNamespace, []string{"Name", "Set", "Revision", "Change cause", "Age"},
	},
	workwirev1alpha1.GroupVersion.WithKind("WorkOverride"): {
		"workoverrides", meta.RESTScopeNameNamespace, []string{"Name", "Set", "Age"},
	},
	workwirev1alpha1.GroupVersion.WithKind("RolloutPlan"): {
		"rolloutplans", meta.RESTScopeNameNamespace, []string{"Name", "Age"},
	},
}

func testFleetServed(t *testing.T, config *rest.Config) {
	resources, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(config))
	kit.NoError(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(resources)
	for kind, want := range fleet {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Error(err)
		} else if mapping.Scope.Name() != want.scope || mapping.Resource.Resource != want.resource {
			t.Errorf("%s is %s in scope %s, want %+v", kind.Kind, mapping.Resource, mapping.Scope.Name(), want)
		}
	}
}

// create sends an object as strictly as kubectl does; what has a namespace goes to ns, unless it
// names one.
func create(ctx context.Context, t *testing.T, config *rest.Config, ns string, object *unstructured.Unstructured) error {
	t.Helper()
	kind, ok := fleet[object.GroupVersionKind()]
	if !ok {
		t.Fatalf("%s %s is of no kind that this test knows", object.GetKind(), object.GetName())
	}
	resource := dynamic.NewForConfigOrDie(config).Resource(object.GroupVersionKind().GroupVersion().WithResource(kind.resource))
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	var client dynamic.ResourceInterface = resource
	if kind.scope == meta.RESTScopeNameNamespace {
		if object.GetNamespace() != "" {
			ns = object.GetNamespace()
		}
		client = resource.Namespace(ns)
	}
	_, err := client.Create(ctx, object, options)
	return err
}

func testFleetAccepted(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	found := map[string]bool{}
	for _, object := range readYAML(t, "testdata/fleet-accepted.yaml") {
		found[object.GetKind()] = true
		if err := create(ctx, t, config, ns, object); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	if len(found) != len(fleet) {
		t.Errorf("the file has only %v", found)
	}
	clients := versioned.NewForConfigOrDie(config)
	set, err := clients.WorkV1alpha1().ManifestWorkReplicaSets(ns).Get(ctx, "type", metav1.GetOptions{})
	kit.NoError(t, err)
	want := []clusterv1alpha1.RolloutType{
		clusterv1alpha1.Progressive, clusterv1alpha1.ProgressivePerGroup, clusterv1alpha1.All,
	}
	for i, ref := range set.Spec.PlacementRefs {
		if got := ref.RolloutStrategy.Kind(); got != want[i] {
			t.Errorf("%s: rollout is %s, want %s", ref.Name, got, want[i])
		}
	}
	progressive := set.Spec.PlacementRefs[0].RolloutStrategy.Progressive
	if progressive.MinSuccessTime.Duration != 90*time.Minute || progressive.ProgressDeadline != "1h30m5s" ||
		progressive.MaxConcurrency != intstr.FromInt32(2) || progressive.MaxFailures != intstr.FromString("3") {
		t.Errorf("options read as %+v", progressive)
	}
}

// The examples are those of the documentation, the set word for word.
func testFleetExamples(ctx context.Context, t *testing.T, config *rest.Config) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ocm-ns"}}
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().
		Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../examples/replicaset/*.yaml")
	kit.NoError(t, err)
	for _, file := range files {
		objects := readYAML(t, file)
		if len(objects) != 1 {
			t.Errorf("%s holds %d objects", file, len(objects))
		}
		for _, object := range objects {
			if err := create(ctx, t, config, "", object); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	clients := versioned.NewForConfigOrDie(config)
	set, err := clients.WorkV1alpha1().ManifestWorkReplicaSets("ocm-ns").Get(ctx, "mwrset-cronjob", metav1.GetOptions{})
	kit.NoError(t, err)
	if set.Spec.CascadeDeletionPolicy != workv1alpha1.Background {
		t.Errorf("default of cascadeDeletionPolicy is %q", set.Spec.CascadeDeletionPolicy)
	}
	groups := set.Spec.PlacementRefs[1].RolloutStrategy.Progressive.MandatoryDecisionGroups.MandatoryDecisionGroups
	if len(groups) != 2 || groups[1].GroupName != "prod-canary-east" {
		t.Errorf("mandatory groups read as %+v", groups)
	}
	for _, ref := range set.Spec.PlacementRefs {
		if _, err := clients.ClusterV1beta1().Placements("ocm-ns").Get(ctx, ref.Name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}

func testFleetRefused(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	for _, object := range readYAML(t, "testdata/fleet-refused.yaml") {
		want := object.GetAnnotations()["want"]
		err := create(ctx, t, config, ns, object)
		if err == nil || want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %s: got %v, want an error with %q", object.GetKind(), object.GetName(), err, want)
		}
	}
	decision, err := versioned.NewForConfigOrDie(config).ClusterV1beta1().PlacementDecisions(ns).
		Get(ctx, "all-fields-decision-1", metav1.GetOptions{})
	kit.NoError(t, err)
	for i := range clusterv1beta1.MaxDecisions + 1 {
		decision.Status.Decisions = append(decision.Status.Decisions,
			clusterv1beta1.ClusterDecision{ClusterName: "cluster" + strconv.Itoa(i)})
	}
	_, err = versioned.NewForConfigOrDie(config).ClusterV1beta1().PlacementDecisions(ns).
		UpdateStatus(ctx, decision, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "must have at most 100 items") {
		t.Errorf("more than 100 decisions: %v", err)
	}
	scores := versioned.NewForConfigOrDie(config).ClusterV1alpha1().AddOnPlacementScores(ns)
	_, err = scores.Create(ctx, &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Name: "unreadable"}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	for _, status := range []string{`{"validUntil":"2026-12-24t18:00:00z"}`, `{"scores":[{"name":"a","value":1,"quantity":"1e1.5"}]}`} {
		_, err = scores.Patch(ctx, "unreadable", types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
		if !apierrors.IsInvalid(err) {
			t.Errorf("a score with %s: %v", status, err)
		}
	}
}

// What a Go program writes that sets nothing but what it must is accepted, and so is each status.
func testFleetWritten(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	clients := versioned.NewForConfigOrDie(config)
	now := metav1.Now()
	condition := func(kind, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: now, Reason: reason}}
	}
	name := metav1.ObjectMeta{Name: "written"}

	cluster, err := clients.ClusterV1().ManagedClusters().
		Create(ctx, &clusterv1.ManagedCluster{ObjectMeta: name}, metav1.CreateOptions{})
	kit.NoError(t, err)
	if cluster.Spec.HubAcceptsClient || cluster.Spec.LeaseDurationSeconds != 60 {
		t.Errorf("defaults of a ManagedCluster: %+v", cluster.Spec)
	}
	cluster.Status.Conditions = condition(clusterv1.ManagedClusterConditionAvailable, "Connected")
	cluster.Status.Version.Kubernetes = "v1.36.3"
	cluster.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "region", Value: "west"}}
	if _, err := clients.ClusterV1().ManagedClusters().UpdateStatus(ctx, cluster, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}

	clusterSet, err := clients.ClusterV1beta2().ManagedClusterSets().
		Create(ctx, &clusterv1beta2.ManagedClusterSet{ObjectMeta: name}, metav1.CreateOptions{})
	kit.NoError(t, err)
	if clusterSet.Spec.ClusterSelector.SelectorType != clusterv1beta2.ExclusiveClusterSetLabel {
		t.Errorf("defaults of a ManagedClusterSet: %+v", clusterSet.Spec)
	}
	clusterSet.Status.Conditions = condition(clusterv1beta2.ManagedClusterSetConditionEmpty, clusterv1beta2.ReasonNoClusterMatched)
	clusterSet.Status.Conditions[0].Message = "No ManagedCluster selected"
	if _, err := clients.ClusterV1beta2().ManagedClusterSets().UpdateStatus(ctx, clusterSet, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: name}
	binding.Spec.ClusterSet = binding.Name
	binding, err = clients.ClusterV1beta2().ManagedClusterSetBindings(ns).Create(ctx, binding, metav1.CreateOptions{})
	kit.NoError(t, err)
	binding.Status.Conditions = condition(clusterv1beta2.ClusterSetBindingBoundType, clusterv1beta2.ReasonClusterSetBound)
	if _, err := clients.ClusterV1beta2().ManagedClusterSetBindings(ns).UpdateStatus(ctx, binding, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}

	placement, err := clients.ClusterV1beta1().Placements(ns).
		Create(ctx, &clusterv1beta1.Placement{ObjectMeta: name}, metav1.CreateOptions{})
	kit.NoError(t, err)
	placement.Status.Conditions = condition(
		clusterv1beta1.PlacementConditionSatisfied, clusterv1beta1.ReasonAllDecisionsScheduled)
	placement.Status.DecisionGroups = []clusterv1beta1.DecisionGroupStatus{{}}
	if _, err := clients.ClusterV1beta1().Placements(ns).UpdateStatus(ctx, placement, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := clients.ClusterV1beta1().PlacementDecisions(ns).
		Create(ctx, &clusterv1beta1.PlacementDecision{ObjectMeta: name}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}

	scores := clients.ClusterV1alpha1().AddOnPlacementScores(ns)
	score, err := scores.Create(ctx, &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: name}, metav1.CreateOptions{})
	kit.NoError(t, err)
	score.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "cpu", Value: 101}}
	if _, err := scores.UpdateStatus(ctx, score, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "value: Invalid value") {
		t.Errorf("a score above 100: %v", err)
	}
	quantity := resource.MustParse("1.5Gi")
	score.Status.Scores[0].Value, score.Status.Scores[0].Quantity = -100, &quantity
	score.Status.ValidUntil = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if _, err := scores.UpdateStatus(ctx, score, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}

	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: name}
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "p"}}
	set.Spec.PlacementRefs[0].RolloutStrategy.Progressive = &clusterv1alpha1.RolloutProgressive{}
	set.Spec.ManifestWorkTemplate.Workload.Manifests = make([]workv1.Manifest, 1)
	set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw = []byte(`{}`)
	set, err = clients.WorkV1alpha1().ManifestWorkReplicaSets(ns).Create(ctx, set, metav1.CreateOptions{})
	kit.NoError(t, err)
	set.Status.Conditions = condition(
		workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut, workv1alpha1.ReasonComplete)
	set.Status.Conditions = append(set.Status.Conditions,
		condition(workv1alpha1.ManifestWorkReplicaSetConditionProgressing, workv1alpha1.ReasonSoaking)...)
	set.Status.Conditions = append(set.Status.Conditions, metav1.Condition{
		Type: workv1alpha1.ManifestWorkReplicaSetConditionStopped, Status: metav1.ConditionFalse, LastTransitionTime: now, Reason: workv1alpha1.ReasonAsExpected,
	})
	set.Status.SelectedClusters = 4
	set.Status.PlacementsSummary = []workv1alpha1.PlacementSummary{{Name: "p"}}
	set.Status.Summary.Total = 3
	if _, err := clients.WorkV1alpha1().ManifestWorkReplicaSets(ns).UpdateStatus(ctx, set, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	set.Annotations = map[string]string{workwirev1alpha1.ChangeCauseAnnotationKey: "because"}
	revision := revisions.New(set, "0123456789abcdef", 3)
	revision.Name = "written-revision"
	if _, err := clients.WorkwireV1alpha1().ManifestWorkReplicaSetRevisions(ns).Create(ctx, revision, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func testFleetColumns(ctx context.Context, t *testing.T, config *rest.Config, ns string) {
	cells := map[string][]any{
		"ManagedCluster":                 {"written", false, "True"},
		"ManagedClusterSet":              {"written", "True", "No ManagedCluster selected"},
		"ManagedClusterSetBinding":       {"written", "True"},
		"Placement":                      {"written", "True", "AllDecisionsScheduled", float64(0)},
		"PlacementDecision":              {"all-fields-decision-1", "all-fields", "0", "prod-canary-west"},
		"AddOnPlacementScore":            {"written", "2026-01-02T03:04:05Z"},
		"ManifestWorkReplicaSet":         {"written", float64(3), float64(4), float64(0), "True", "False", "Soaking"},
		"ManifestWorkReplicaSetRevision": {"written-revision", "written", float64(3), "because"},
		"WorkOverride":                   {"all-fields", "all-fields"},
		"RolloutPlan":                    {"all-fields"},
	}
	for kind, served := range fleet {
		object := cells[kind.Kind][0].(string)
		table := readTable(ctx, t, config, kind.GroupVersion().WithResource(served.resource), ns, object, served.scope)
		var names []string
		for _, column := range table.ColumnDefinitions {
			names = append(names, column.Name)
		}
		if !jsonEqual(served.columns, names) {
			t.Errorf("columns of %s are %v, want %v", kind.Kind, names, served.columns)
		}
		if got := table.Rows[0].Cells; !jsonEqual(cells[kind.Kind], got[:len(cells[kind.Kind])]) {
			t.Errorf("cells of %s are %v, want %v", kind.Kind, got, cells[kind.Kind])
		}
	}
	// A cluster that was last seen in 2020: in years, whenever this runs.
	seen := readTable(ctx, t, config, clusterv1.GroupVersion.WithResource("managedclusters"), "", "all-fields", meta.RESTScopeNameRoot)
	if cell, ok := seen.Rows[0].Cells[3].(string); !ok || !strings.Contains(cell, "y") {
		t.Errorf("last seen is shown as %v", seen.Rows[0].Cells[3])
	}
}

// readTable reads an object as kubectl get does.
func readTable(ctx context.Context, t *testing.T, config *rest.Config, resource schema.GroupVersionResource,
	ns, name string, scope meta.RESTScopeName,
) *metav1.Table {
	t.Helper()
	path := []string{"apis", resource.Group, resource.Version}
	if scope == meta.RESTScopeNameNamespace {
		path = append(path, "namespaces", ns)
	}
	text, err := versioned.NewForConfigOrDie(config).WorkV1().RESTClient().Get().
		AbsPath(append(path, resource.Resource, name)...).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	kit.NoError(t, err)
	table := &metav1.Table{}
	kit.NoError(t, utilyaml.Unmarshal(text, table))
	return table
}

// Each example says in its first line what it shows; what follows is the text of the documentation.
func TestExampleBeginsWithWhatItShows(t *testing.T) {
	files, err := filepath.Glob("../../examples/replicaset/*.yaml")
	kit.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.NoError(t, err)
		if !bytes.HasPrefix(text, []byte("# ")) {
			t.Errorf("%s does not begin with what it shows", file)
		}
	}
}

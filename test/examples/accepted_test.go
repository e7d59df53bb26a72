package examples

import (
	"cmp"
	"io/fs"
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/examples"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/test/kit"
)

// files lists the examples.
func files(t *testing.T) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(examples.Files, ".", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && path.Ext(file) == ".yaml" {
			found = append(found, file)
		}
		return err
	})
	kit.NoError(t, err)
	if len(found) < 30 {
		t.Fatalf("only %d examples found", len(found))
	}
	return found
}

// refused are the examples of what the hub does not take, with what it says.
var refused = map[string]string{
	"ignore-fields/misplaced-force.yaml": "spec.manifestConfigs[0].updateStrategy: Invalid value: " +
		"force belongs to the options of server-side apply: set updateStrategy.serverSideApply.force",
}

// TestEveryExampleIsAccepted sends every file as it is, and as strictly as kubectl does.
func TestEveryExampleIsAccepted(t *testing.T) {
	t.Parallel()
	const cluster, fleet = "cluster1", "ocm-ns"
	namespaces := kubernetes.NewForConfigOrDie(hubPlane.REST()).CoreV1().Namespaces()
	for _, name := range []string{cluster, fleet} {
		_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) { // with -count
			t.Fatal(err)
		}
	}
	client := dynamic.NewForConfigOrDie(hubPlane.REST())
	resources := map[string]schema.GroupVersionResource{
		"ManifestWork": worksResource, "Role": rbacv1.SchemeGroupVersion.WithResource("roles"),
		"ManifestWorkReplicaSet":   workv1alpha1.GroupVersion.WithResource("manifestworkreplicasets"),
		"Placement":                clusterv1beta1.GroupVersion.WithResource("placements"),
		"WorkOverride":             workwirev1alpha1.GroupVersion.WithResource("workoverrides"),
		"RolloutPlan":              workwirev1alpha1.GroupVersion.WithResource("rolloutplans"),
		"ManagedClusterSetBinding": clusterv1beta2.GroupVersion.WithResource("managedclustersetbindings"),
	}
	for _, file := range files(t) {
		t.Run(file, func(t *testing.T) {
			text, err := examples.Files.ReadFile(file)
			kit.NoError(t, err)
			if !strings.HasPrefix(string(text), "# ") {
				t.Error("it does not begin with what it shows")
			}
			obj := parse(t, string(text))
			namespace := cmp.Or(obj.GetNamespace(), cluster)
			if want := map[bool]string{true: fleet, false: cluster}[path.Dir(file) == "replicaset"]; namespace != want {
				t.Errorf("it is for %s, not for %s", namespace, want)
			}
			_, err = client.Resource(resources[obj.GetKind()]).Namespace(namespace).Create(t.Context(), obj,
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
			switch want := refused[file]; {
			case want == "" && err != nil:
				t.Error(err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// TestMisplacedFieldIsNamed: a field that belongs elsewhere is refused by its place.
func TestMisplacedFieldIsNamed(t *testing.T) {
	t.Parallel()
	obj := read(t, "feedback/watch.yaml")
	config := field(obj.Object, "spec", "manifestConfigs", 0).(map[string]any)
	config["resourceIdentifier"].(map[string]any)["feedbackScrapeType"] = "Watch"
	namespace := hubPlane.Namespace(t, "misplaced")
	obj.SetNamespace(namespace)
	_, err := dynamic.NewForConfigOrDie(hubPlane.REST()).Resource(worksResource).Namespace(namespace).
		Create(t.Context(), obj, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if want := `unknown field "spec.manifestConfigs[0].resourceIdentifier.feedbackScrapeType"`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

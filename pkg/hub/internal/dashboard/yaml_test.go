package dashboard

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

func TestYAML(t *testing.T) {
	const applied = "kubectl.kubernetes.io/last-applied-configuration"
	for _, c := range []struct {
		name, manifest string
		has, lacks     []string
	}{
		{name: "numbers stay", manifest: `{"apiVersion":"v1","kind":"ConfigMap","number":9007199254740993,"data":{"a":"seen"}}`, has: []string{"number: 9007199254740993", "a: seen"}},
		{
			name: "a Secret", has: []string{"password: (hidden)", "user: (hidden)", "type: Opaque"}, lacks: []string{"aHVudGVy", "hunter"},
			manifest: `{"apiVersion":"v1","kind":"Secret","type":"Opaque","data":{"password":"aHVudGVy"},"stringData":{"user":"hunter"},"metadata":{"annotations":{"` + applied + `":"hunter"}}}`,
		},
		{name: "Secrets in a List", lacks: []string{"hunter"}, manifest: `{"apiVersion":"v1","kind":"List","items":[{"kind":"Secret","stringData":{"a":"hunter"}}]}`},
		{name: "a SecretList", lacks: []string{"hunter"}, manifest: `{"apiVersion":"v1","kind":"SecretList","items":[{"data":{"a":"hunter"}}]}`},
		{name: "a copy of a Secret", lacks: []string{"hunter"}, manifest: `{"kind":"Secret","metadata":{"annotations":{"objectset.rio.cattle.io/applied":"hunter"}}}`},
		{name: "a Secret with data of another type", lacks: []string{"hunter"}, manifest: `{"apiVersion":"v1","kind":"Secret","data":["hunter"]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
				Namespace: "c1", Name: "shop", Annotations: map[string]string{applied: "hunter", "mine": "1"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
			}}
			work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(c.manifest)}}}
			text, err := yamlOf(work)
			kit.NoError(t, err)
			for _, want := range append(c.has, "apiVersion: work.open-cluster-management.io/v1\nkind: ManifestWork\n", `mine: "1"`) {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in %s", want, text)
				}
			}
			for _, not := range append(c.lacks, "managedFields", applied) {
				if strings.Contains(text, not) {
					t.Errorf("%q in %s", not, text)
				}
			}
			if string(work.Spec.Workload.Manifests[0].Raw) != c.manifest || work.Annotations[applied] == "" {
				t.Error("the work itself has changed")
			}
		})
	}
}

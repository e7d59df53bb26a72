package policies_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/examples"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// example is a spec of a file in testdata.
type example struct {
	Name string `json:"name"`
	// Want is the message with which works are refused; WantSet that of replica sets, if another.
	Want    string         `json:"want"`
	WantSet string         `json:"wantSet"`
	Spec    map[string]any `json:"spec"`
}

func (e example) want(resource schema.GroupVersionResource) string {
	if resource == sets && e.WantSet != "" {
		return e.WantSet
	}
	return e.Want
}

func TestAccepted(t *testing.T) {
	namespace := plane.Namespace(t, "accepted")
	testAccepted(t, plane.REST(), namespace)
}

func testAccepted(t *testing.T, config *rest.Config, ns string) {
	client := dynamic.NewForConfigOrDie(config)
	for _, resource := range []schema.GroupVersionResource{works, sets} {
		for _, example := range read[[]example](t, "testdata/accepted.yaml") {
			created, err := client.Resource(resource).Namespace(ns).
				Create(t.Context(), object(resource, example.Name, example.Spec), metav1.CreateOptions{})
			if err != nil {
				t.Errorf("%s %s: %v", resource.Resource, example.Name, err)
				continue
			}
			// Once stored, it may be written as it is, and changed.
			created.SetLabels(map[string]string{"team": "shop"})
			path := []string{"spec", "deleteOption", "propagationPolicy"}
			if resource == sets {
				path = []string{"spec", "manifestWorkTemplate", "deleteOption", "propagationPolicy"}
			}
			kit.NoError(t, unstructured.SetNestedField(created.Object, "Orphan", path...))
			if _, err := client.Resource(resource).Namespace(ns).Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
				t.Errorf("update of %s %s: %v", resource.Resource, example.Name, err)
			}
		}
	}
}

// TestRefused: whether the definitions or the policies refuse it, the words are the same.
func TestRefused(t *testing.T) {
	ns := plane.Namespace(t, "refused")
	client := dynamic.NewForConfigOrDie(plane.REST())
	for _, resource := range []schema.GroupVersionResource{works, sets} {
		good, err := client.Resource(resource).Namespace(ns).
			Create(t.Context(), object(resource, "good", specOf(configMap("a"))), metav1.CreateOptions{})
		kit.NoError(t, err)
		for _, example := range read[[]example](t, "testdata/refused.yaml") {
			bad := object(resource, example.Name, example.Spec)
			_, err := client.Resource(resource).Namespace(ns).Create(t.Context(), bad, metav1.CreateOptions{})
			if err == nil || !strings.Contains(err.Error(), example.want(resource)) {
				t.Errorf("create %s %s: got %v, want %s", resource.Resource, example.Name, err, example.want(resource))
			}
			changed := good.DeepCopy()
			changed.Object["spec"] = bad.Object["spec"]
			_, err = client.Resource(resource).Namespace(ns).Update(t.Context(), changed, metav1.UpdateOptions{})
			if err == nil || !strings.Contains(err.Error(), example.want(resource)) {
				t.Errorf("update %s %s: got %v, want %s", resource.Resource, example.Name, err, example.want(resource))
			}
		}
	}
}

// TestSize: the bytes that a policy counts are those that an agent counts.
func TestSize(t *testing.T) {
	ns := plane.Namespace(t, "size")
	odd := configMap("odd")
	odd["data"] = map[string]any{
		"html": `<a href="x">T & C</a>, `, "script": "#!/bin/sh\nset -eu; [ a != b ] && exit\t# , {\\}\r\n",
		"names": "Zoë, 東京, 🦊", "paragraph": "a\u2028b", "spaces": strings.Repeat(" , ", 20), "": "",
	}
	odd["more"] = []any{true, false, nil, int64(-7), int64(12345678901), []any{}, map[string]any{}, []any{"a, b", "c"}}
	for name, manifests := range map[string][]map[string]any{
		"one": {configMap("a")}, "odd": {odd}, "odd among others": {configMap("a"), odd, configMap("b")},
		"many": manyConfigMaps(2000),
	} {
		t.Run(name, func(t *testing.T) {
			for _, resource := range []schema.GroupVersionResource{works, sets} {
				for _, over := range []int{0, 1} {
					manifests, want := filled(t, manifests, workv1.MaxManifestsSize+over)
					_, err := dynamic.NewForConfigOrDie(plane.REST()).Resource(resource).Namespace(ns).Create(t.Context(),
						object(resource, "size", specOf(manifests...)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					switch {
					case (want == nil) != (over <= 0):
						t.Fatalf("an agent says %v about %d bytes too many", want, over)
					case want == nil && err != nil:
						t.Errorf("%s with %d bytes: %v", resource.Resource, workv1.MaxManifestsSize+over, err)
					case want != nil:
						denied(t, err, "workwire-manifests", want.Error())
					}
				}
			}
		})
	}
}

// filled adds a manifest that brings all to the size, and says what an agent finds wrong with them.
func filled(t *testing.T, manifests []map[string]any, size int) ([]map[string]any, error) {
	t.Helper()
	filler := configMap("filler")
	filler["data"] = map[string]any{"x": ""}
	manifests = append(manifests[:len(manifests):len(manifests)], filler)
	bundle := &wire.Bundle{}
	for _, manifest := range manifests {
		text, err := json.Marshal(manifest)
		kit.NoError(t, err)
		size -= len(text)
		bundle.Manifests = append(bundle.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: text}})
	}
	filler["data"] = map[string]any{"x": strings.Repeat("x", size)}
	text, err := json.Marshal(filler)
	kit.NoError(t, err)
	bundle.Manifests[len(manifests)-1].Raw = text
	return manifests, bundle.Validate()
}

// TestLarge: as many manifests as fit a work are looked at within what the API server grants a
// policy, and what is larger than it may be searched is refused with a size that is at least about
// right.
func TestLarge(t *testing.T) {
	ns := plane.Namespace(t, "large")
	client := dynamic.NewForConfigOrDie(plane.REST()).Resource(works).Namespace(ns)
	create := func(name string, manifests ...map[string]any) error {
		_, err := client.Create(t.Context(), object(works, name, specOf(manifests...)),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	kit.NoError(t, create("small-2000", manyConfigMaps(2000)...))
	denied(t, create("duplicate-2000", append(manyConfigMaps(2000), configMap("c1234"))...), "workwire-manifests",
		"duplicate manifest for resource default/c1234 with resource type v1.ConfigMap")

	var smallest []map[string]any
	for i := range 8980 {
		smallest = append(smallest, map[string]any{
			"apiVersion": "v", "kind": "K", "metadata": map[string]any{"name": fmt.Sprintf("n%04d", i)},
		})
	}
	text, err := json.Marshal(smallest)
	kit.NoError(t, err)
	if size := len(text) - len(smallest) - 1; size > workv1.MaxManifestsSize || size < workv1.MaxManifestsSize-1000 {
		t.Fatalf("%d manifests have %d bytes: no limit is tested", len(smallest), size)
	}
	kit.NoError(t, create("smallest", smallest...))
	denied(t, create("smallest-duplicate", append(smallest, smallest[7])...), "workwire-manifests",
		"duplicate manifest for resource /n0007 with resource type v.K")

	for _, size := range []int{900_000, 1_000_000, 1_100_000, 2_500_000} {
		manifests, want := filled(t, []map[string]any{configMap("a")}, size)
		err := create("larger", manifests...)
		if size < 1_000_000 {
			denied(t, err, "workwire-manifests", want.Error())
		} else if err == nil || !strings.Contains(err.Error(), "bytes which exceeds the 512000 limit") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func manyConfigMaps(n int) []map[string]any {
	var manifests []map[string]any
	for i := range n {
		manifests = append(manifests, configMap(fmt.Sprintf("c%d", i)))
	}
	return manifests
}

// TestExamples: no policy has anything against what the documentation shows.
func TestExamples(t *testing.T) {
	ns := plane.Namespace(t, "examples")
	tried := 0
	err := fs.WalkDir(examples.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := examples.Files.ReadFile(path)
		kit.NoError(t, err)
		for _, document := range strings.Split(string(text), "\n---\n") {
			object := &unstructured.Unstructured{}
			kit.NoError(t, yaml.Unmarshal([]byte(document), object))
			resource, known := map[string]schema.GroupVersionResource{"ManifestWork": works, "ManifestWorkReplicaSet": sets}[object.GetKind()]
			if !known {
				continue
			}
			tried++
			object.SetNamespace(ns)
			_, err := dynamic.NewForConfigOrDie(plane.REST()).Resource(resource).Namespace(ns).
				Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Errorf("%s: %v", path, err)
			}
		}
		return nil
	})
	kit.NoError(t, err)
	if tried < 20 {
		t.Errorf("only %d examples found", tried)
	}
}

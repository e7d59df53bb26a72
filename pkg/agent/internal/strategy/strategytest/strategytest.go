// Package strategytest builds specs and manifests for tests of the packages below strategy.
package strategytest

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Mapping returns the resources of a few kinds. Other kinds are not served.
func Mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	resource, known := map[string]string{
		"ConfigMap": "configmaps", "Secret": "secrets", "Namespace": "namespaces", "Deployment": "deployments", "Job": "jobs",
		"ClusterRole": "clusterroles", "Service": "services", "ServiceAccount": "serviceaccounts", "Pod": "pods",
		"ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
	}[kind.Kind]
	if !known {
		return nil, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	mapping := &meta.RESTMapping{Resource: kind.GroupVersion().WithResource(resource), GroupVersionKind: kind, Scope: meta.RESTScopeNamespace}
	switch kind.Kind {
	case "Namespace", "ClusterRole", "ValidatingWebhookConfiguration":
		mapping.Scope = meta.RESTScopeRoot
	}
	return mapping, nil
}

// Spec returns a spec with the manifests.
func Spec(manifests ...string) *workv1.ManifestWorkSpec {
	s := &workv1.ManifestWorkSpec{}
	for _, manifest := range manifests {
		s.Workload.Manifests = append(s.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}})
	}
	return s
}

// ConfigMap returns a manifest in namespace ns. Rest begins with a comma.
func ConfigMap(name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":%q}%s}`, name, rest)
}

// Manifest parses one manifest, which must be valid.
func Manifest(t testing.TB, text string, change ...func(*workv1.ManifestWorkSpec)) *strategy.Manifest {
	t.Helper()
	s := Spec(text)
	for _, change := range change {
		change(s)
	}
	parsed := strategy.Parse(nil, s, Mapping)
	if parsed[0].Err != nil {
		t.Fatalf("parse %s: %v", text, parsed[0].Err)
	}
	return &parsed[0]
}

// Configured sets the update strategy of all ConfigMaps.
func Configured(update *workv1.UpdateStrategy) func(*workv1.ManifestWorkSpec) {
	return func(s *workv1.ManifestWorkSpec) {
		s.ManifestConfigs = append(s.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "*", Name: "*"},
			UpdateStrategy:     update,
		})
	}
}

// ServerSide returns the strategy ServerSideApply.
func ServerSide(config *workv1.ServerSideApplyConfig) *workv1.UpdateStrategy {
	return &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: config}
}

// Orphan makes the spec orphan all objects.
func Orphan(s *workv1.ManifestWorkSpec) {
	s.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
}

// ErrorText returns the text of an error, empty for nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Decode returns the object of a JSON text.
func Decode(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return obj
}

// IgnoreFields sets server-side apply with ignoreFields for ConfigMaps, Secrets and Deployments.
func IgnoreFields(entries ...workv1.IgnoreField) func(*workv1.ManifestWorkSpec) {
	return func(s *workv1.ManifestWorkSpec) {
		for _, resource := range []string{"configmaps", "secrets", "deployments.apps"} {
			name, group, _ := strings.Cut(resource, ".")
			s.ManifestConfigs = append(s.ManifestConfigs, workv1.ManifestConfigOption{
				ResourceIdentifier: workv1.ResourceIdentifier{Group: group, Resource: name, Namespace: "*", Name: "*"},
				UpdateStrategy:     ServerSide(&workv1.ServerSideApplyConfig{IgnoreFields: entries}),
			})
		}
	}
}

// OnPresent returns an entry of ignoreFields with JSON paths and condition OnSpokePresent.
func OnPresent(paths ...string) workv1.IgnoreField {
	return workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JSONPaths: paths}
}

// OnChange returns an entry of ignoreFields with JSON paths and condition OnSpokeChange.
func OnChange(paths ...string) workv1.IgnoreField {
	return workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPaths: paths}
}

// Pointers returns an entry of ignoreFields with JSON pointers.
func Pointers(pointers ...string) workv1.IgnoreField {
	return workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JSONPointers: pointers}
}

// Expressions returns an entry of ignoreFields with jq expressions.
func Expressions(expressions ...string) workv1.IgnoreField {
	return workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JQPathExpressions: expressions}
}

// Updated returns an entry of managedFields for an update of apps/v1.
func Updated(manager, subresource, set string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apps/v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(set),
	}
}

// Applied returns an entry of managedFields for a server-side apply.
func Applied(manager, set string) metav1.ManagedFieldsEntry {
	entry := Updated(manager, "", set)
	entry.Operation = metav1.ManagedFieldsOperationApply
	return entry
}

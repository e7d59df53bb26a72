package crds_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/test/kit"
)

func all() []*apiextensionsv1.CustomResourceDefinition {
	return slices.Concat(crds.Hub(), crds.Spoke(), crds.SpokeOptional(), crds.Optional())
}

// The API server's own checks: structural schemas, defaults that fit them, the cost of rules.
func TestDefinitionsAreValid(t *testing.T) {
	for _, definition := range all() {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
			definition, internal, nil)
		kit.NoError(t, err)
		// The API server sets this on creation; the check wants it.
		internal.Status.StoredVersions = []string{definition.Spec.Versions[0].Name}
		for _, fault := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
			t.Errorf("%s: %v", definition.Name, fault)
		}
	}
}

func TestNames(t *testing.T) {
	checkNames(t, crds.Hub(), map[string]apiextensionsv1.ResourceScope{
		"manifestworks.work.open-cluster-management.io":                apiextensionsv1.NamespaceScoped,
		"manifestworkreplicasets.work.open-cluster-management.io":      apiextensionsv1.NamespaceScoped,
		"managedclusters.cluster.open-cluster-management.io":           apiextensionsv1.ClusterScoped,
		"managedclustersets.cluster.open-cluster-management.io":        apiextensionsv1.ClusterScoped,
		"managedclustersetbindings.cluster.open-cluster-management.io": apiextensionsv1.NamespaceScoped,
		"placements.cluster.open-cluster-management.io":                apiextensionsv1.NamespaceScoped,
		"placementdecisions.cluster.open-cluster-management.io":        apiextensionsv1.NamespaceScoped,
		"addonplacementscores.cluster.open-cluster-management.io":      apiextensionsv1.NamespaceScoped,
		"manifestworkreplicasetrevisions.workwire.dev":                 apiextensionsv1.NamespaceScoped,
		"workoverrides.workwire.dev":                                   apiextensionsv1.NamespaceScoped,
		"rolloutplans.workwire.dev":                                    apiextensionsv1.NamespaceScoped,
	})
	checkNames(t, crds.Spoke(), map[string]apiextensionsv1.ResourceScope{
		"appliedmanifestworks.work.open-cluster-management.io": apiextensionsv1.ClusterScoped,
	})
	checkNames(t, crds.SpokeOptional(), map[string]apiextensionsv1.ResourceScope{
		"clusterclaims.cluster.open-cluster-management.io": apiextensionsv1.ClusterScoped,
	})
	hub := crds.Hub()
	hub[0].Name = "changed"
	if crds.Hub()[0].Name == "changed" {
		t.Error("Hub gives the same object twice")
	}
}

func checkNames(t *testing.T, definitions []*apiextensionsv1.CustomResourceDefinition, want map[string]apiextensionsv1.ResourceScope) {
	t.Helper()
	got := map[string]apiextensionsv1.ResourceScope{}
	for _, definition := range definitions {
		got[definition.Name] = definition.Spec.Scope
	}
	if !jsonEqual(want, got) {
		t.Errorf("definitions %v, want %v", got, want)
	}
}

// Every file is installed somewhere.
func TestEveryFileIsUsed(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	kit.NoError(t, err)
	optional, err := filepath.Glob("optional/*.yaml")
	kit.NoError(t, err)
	files = append(files, optional...)
	if len(files) != len(all()) {
		t.Errorf("%d files, %d definitions: %v", len(files), len(all()), files)
	}
}

// Every field that users see in kubectl explain has a text.
func TestEveryFieldIsDescribed(t *testing.T) {
	for _, definition := range all() {
		for _, version := range definition.Spec.Versions {
			checkDescriptions(t, definition.Spec.Names.Kind, *version.Schema.OpenAPIV3Schema)
		}
	}
}

func checkDescriptions(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if strings.HasSuffix(path, ".metadata") {
		return // the API server describes it
	}
	if schema.Description == "" {
		t.Errorf("%s has no description", path)
	}
	for name, property := range schema.Properties {
		checkDescriptions(t, path+"."+name, property)
	}
	if schema.Items != nil && len(schema.Items.Schema.Properties) > 0 {
		checkDescriptions(t, path+"[]", *schema.Items.Schema)
	}
}

func jsonEqual(a, b any) bool {
	left, errLeft := json.Marshal(a)
	right, errRight := json.Marshal(b)
	return errLeft == nil && errRight == nil && string(left) == string(right)
}

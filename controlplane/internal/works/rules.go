package works

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// rules are those of the definition: its schema, with the rules in it. They take objects without a type, which is what they
// cost. So what a write does not change is left out. A work that was valid under older rules stays as valid
// as its definition lets it be: only one that breaks a rule is compared with what it was.
type rules struct {
	whole, status interface {
		rest.RESTCreateStrategy
		rest.RESTUpdateStrategy
	}
	// justStatus has the schema of the status alone.
	justStatus rest.RESTCreateStrategy
}

func newRules(typer runtime.ObjectTyper, version apiextensionsv1.CustomResourceDefinitionVersion) (rules, error) {
	defined := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema.DeepCopy(), defined, nil); err != nil {
		return rules{}, err
	}
	schema := defined.OpenAPIV3Schema
	structural, validator, err := compiled(schema)
	if err != nil {
		return rules{}, err
	}
	ofStatus := schema.Properties["status"]
	statusValidator, _, err := validation.NewSchemaValidator(&ofStatus)
	if err != nil {
		return rules{}, err
	}
	whole := customresource.NewStrategy(typer, true, kind, validator, statusValidator, structural, &apiextensions.CustomResourceSubresourceStatus{}, nil, version.SelectableFields)

	half := *schema
	half.Properties = maps.Clone(schema.Properties)
	delete(half.Properties, "spec")
	half.Required = slices.DeleteFunc(slices.Clone(schema.Required), func(name string) bool { return name == "spec" })
	if structural, validator, err = compiled(&half); err != nil {
		return rules{}, err
	}
	return rules{
		whole: whole, status: customresource.NewStatusStrategy(whole),
		justStatus: customresource.NewStrategy(typer, true, kind, validator, statusValidator, structural, nil, nil, nil),
	}, nil
}

// compiled returns both forms in which a strategy takes a schema.
func compiled(schema *apiextensions.JSONSchemaProps) (*structuralschema.Structural, validation.SchemaValidator, error) {
	structural, err := structuralschema.NewStructural(schema)
	if err != nil {
		return nil, nil, err
	}
	validator, _, err := validation.NewSchemaValidator(schema)
	return structural, validator, err
}

// created returns what is wrong with a new work.
func (r rules) created(ctx context.Context, work *workv1.ManifestWork) field.ErrorList {
	object, err := untyped(work, true, true)
	if err != nil {
		return err
	}
	return missing(r.whole.Validate(ctx, object))
}

// updated returns what is wrong with a work whose status is as before.
func (r rules) updated(ctx context.Context, work, before *workv1.ManifestWork) field.ErrorList {
	if object, err := untyped(work, true, false); err == nil && len(r.whole.Validate(ctx, object)) == 0 {
		return nil
	}
	return compared(ctx, r.whole, work, before)
}

// reported returns what is wrong with a work of which only the status is not as before.
func (r rules) reported(ctx context.Context, work, before *workv1.ManifestWork) field.ErrorList {
	if object, err := untyped(work, false, true); err == nil && len(r.justStatus.Validate(ctx, object)) == 0 {
		return nil
	}
	return compared(ctx, r.status, work, before)
}

// compared returns what is wrong with a work that was not wrong before.
func compared(ctx context.Context, s rest.RESTUpdateStrategy, work, before *workv1.ManifestWork) field.ErrorList {
	object, err := untyped(work, true, true)
	if err != nil {
		return err
	}
	old, err := untyped(before, true, true)
	if err != nil {
		return err
	}
	return missing(s.ValidateUpdate(ctx, object, old))
}

// untyped returns a work as the rules take it, with its spec, its status, or both. Manifests are empty: the definition says
// nothing of what is in them.
func untyped(work *workv1.ManifestWork, spec, status bool) (*unstructured.Unstructured, field.ErrorList) {
	half := workv1.ManifestWork{ObjectMeta: work.ObjectMeta}
	half.ManagedFields = nil
	half.SetGroupVersionKind(kind)
	if spec {
		half.Spec = work.Spec
		half.Spec.Workload.Manifests = slices.Clone(work.Spec.Workload.Manifests)
		for i := range half.Spec.Workload.Manifests {
			if manifest := &half.Spec.Workload.Manifests[i]; len(manifest.Raw) > 0 && manifest.Raw[0] == '{' {
				manifest.Raw = []byte("{}")
			}
		}
	}
	if status {
		half.Status = work.Status
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&half)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	if !spec {
		delete(content, "spec")
	}
	dropNulls(content)
	return &unstructured.Unstructured{Object: content}, nil
}

// dropNulls takes out the fields that are null, as whoever serves a definition does: a type writes what it has none of so.
func dropNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, content := range value {
			if content == nil {
				delete(value, name)
			}
			dropNulls(content)
		}
	case []any:
		for _, content := range value {
			dropNulls(content)
		}
	}
}

// missing says of a text that is empty, and may not be, that it is required: a type has an empty one where there is none.
func missing(errs field.ErrorList) field.ErrorList {
	for i, err := range errs {
		if err.Type == field.ErrorTypeInvalid && err.BadValue == "" && strings.HasSuffix(err.Detail, "should be at least 1 chars long") {
			errs[i] = field.Required(field.NewPath(err.Field), "")
		}
	}
	return errs
}

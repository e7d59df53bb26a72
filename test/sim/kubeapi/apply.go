package kubeapi

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// managed is the only kind of which the model records who manages which field, and which can be applied: it has the
// schema of no other.
const managed = "ConfigMap"

// configMapSchema is the schema of a ConfigMap as far as it says how fields are merged.
const configMapSchema = `types:
- name: configMap
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: data, type: {map: {elementType: {scalar: string}}}}
    - name: metadata
      type:
        map:
          fields:
          - {name: labels, type: {map: {elementType: {scalar: string}}}}
          - {name: annotations, type: {map: {elementType: {scalar: string}}}}
          - {name: finalizers, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
          - name: ownerReferences
            type: {list: {elementType: {namedType: any}, elementRelationship: associative, keys: [uid]}}
          elementType: {namedType: any}
- name: any
  scalar: untyped
  list: {elementType: {namedType: any}, elementRelationship: atomic}
  map: {elementType: {namedType: any}, elementRelationship: separable}
`

// configMaps is what the API server of Kubernetes does with managed fields, for ConfigMaps.
type configMaps struct{ kind typed.ParseableType }

// newFieldManager returns what records who manages the fields of ConfigMaps.
func newFieldManager() *managedfields.FieldManager {
	parser, err := typed.NewParser(configMapSchema)
	if err != nil {
		panic(err)
	}
	c := configMaps{parser.Type("configMap")}
	v1 := schema.GroupVersion{Version: "v1"}
	m, err := managedfields.NewDefaultFieldManager(c, c, c, c, v1.WithKind(managed), v1, "", nil)
	if err != nil {
		panic(err)
	}
	return m
}

func (c configMaps) ObjectToTyped(o runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return c.kind.FromUnstructured(o.(*Object).Object, options...)
}

func (configMaps) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	return &Object{Object: value.AsValue().Unstructured().(map[string]any)}, nil
}

func (configMaps) New(kind schema.GroupVersionKind) (runtime.Object, error) { return empty(kind), nil }

func (configMaps) Default(runtime.Object) {}

// ConvertToVersion returns o: there is one version.
func (configMaps) ConvertToVersion(o runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return o, nil
}

func (configMaps) Convert(_, _, _ any) error { return nil }

func (configMaps) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func empty(kind schema.GroupVersionKind) *Object {
	o := &Object{Object: map[string]any{}}
	o.SetGroupVersionKind(kind)
	return o
}

// managerOf returns the field manager of a request.
func managerOf(r *http.Request) string {
	if name := r.URL.Query().Get("fieldManager"); name != "" {
		return name
	}
	return userOf(r)
}

// updated returns after with a record of the fields that a request has changed, unless it is an apply, which has recorded them.
func (s *Server) updated(r *http.Request, kind Kind, before, after *Object) *Object {
	if kind.Kind != managed || isApply(r) {
		return after
	}
	if before == nil {
		before = empty(kind.GroupVersion().WithKind(kind.Kind))
	}
	return s.fields.UpdateNoErrors(before.DeepCopy(), after, managerOf(r)).(*Object)
}

func isApply(r *http.Request) bool {
	return r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.ApplyPatchType)
}

// applied returns what becomes of before, nil if there is none, when the body of a request is applied.
func (s *Server) applied(r *http.Request, kind Kind, before *Object, body []byte) (*Object, *apierrors.StatusError) {
	patch, failure := decode(body)
	if failure != nil {
		return nil, failure
	}
	if before == nil {
		before = empty(kind.GroupVersion().WithKind(kind.Kind))
	}
	after, err := s.fields.Apply(before.DeepCopy(), patch, managerOf(r), r.URL.Query().Get("force") == "true")
	if conflict, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return nil, conflict
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after.(*Object), nil
}

package restmapper

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// definition is the part of a CustomResourceDefinition that the mapper needs. The informer stores
// these instead of whole objects, most of which is schemas.
type definition struct {
	metav1.ObjectMeta                              // name and resourceVersion
	kind              schema.GroupKind             // zero until it is established
	mappings          map[string]*meta.RESTMapping // by served version
}

// Run watches CustomResourceDefinitions until ctx ends. Without the right to list and watch them it
// logs that once and retries with a backoff, while the mapper works by discovery. It must be called
// once.
func (m *Mapper) Run(ctx context.Context) error {
	source := listwatch.Of(dynamic.New(m.config.Client).Resource(crdResource), nil, nil)
	informer := cache.NewSharedIndexInformer(source, &unstructured.Unstructured{}, 0, nil)
	var once sync.Once
	logError := func(ctx context.Context, _ *cache.Reflector, err error) {
		switch {
		case ctx.Err() != nil || errors.Is(err, io.EOF):
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			once.Do(func() {
				m.config.Logger.WarnContext(ctx, "watch of CustomResourceDefinitions forbidden, new kinds are found by discovery "+
					"seconds later; allow the agent to list and watch customresourcedefinitions.apiextensions.k8s.io", "error", err)
			})
		default:
			m.config.Logger.DebugContext(ctx, "watch of CustomResourceDefinitions ended, retrying", "error", err)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { m.update(nil, obj) },
		UpdateFunc: m.update,
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			m.update(obj, nil)
		},
	})
	if err := errors.Join(err, informer.SetTransform(parse), informer.SetWatchErrorHandlerWithContext(logError)); err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return nil
}

// update replaces the definition before by now; either may be nil.
func (m *Mapper) update(before, now any) {
	var former, def definition
	if before, ok := before.(*definition); ok {
		former = *before
	}
	if now, ok := now.(*definition); ok {
		def = *now
	}
	if former.kind.Kind != "" && former.kind != def.kind {
		m.remove(former)
	}
	if def.kind.Kind == "" {
		return
	}
	m.mu.Lock()
	known := m.defined[def.kind]
	m.defined[def.kind] = def
	delete(m.removed, def.kind)
	m.mu.Unlock()
	if !maps.EqualFunc(known.mappings, def.mappings, func(a, b *meta.RESTMapping) bool { return *a == *b }) {
		m.config.Changed(def.kind)
	}
}

// remove deletes the kind of a definition and what discovery returned for it.
func (m *Mapper) remove(def definition) {
	m.mu.Lock()
	now := m.now()
	delete(m.defined, def.kind)
	maps.DeleteFunc(m.removed, func(_ schema.GroupKind, since time.Time) bool { return now.Sub(since) >= removalGrace })
	m.removed[def.kind] = now
	m.mu.Unlock()
	for version := range def.mappings {
		m.Forget(schema.GroupVersion{Group: def.kind.Group, Version: version})
	}
	m.config.Changed(def.kind)
}

// parse turns a CustomResourceDefinition into a *definition. It is a [cache.TransformFunc].
func parse(obj any) (any, error) {
	from, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	var crd struct {
		Spec struct {
			Group    string `json:"group"`
			Scope    string `json:"scope"`
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
			} `json:"versions"`
		} `json:"spec"`
		Status struct {
			// The names in the spec may belong to another definition.
			AcceptedNames struct {
				Kind   string `json:"kind"`
				Plural string `json:"plural"`
			} `json:"acceptedNames"`
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	def := &definition{ObjectMeta: metav1.ObjectMeta{Name: from.GetName(), ResourceVersion: from.GetResourceVersion()}}
	content := map[string]any{"spec": from.Object["spec"], "status": from.Object["status"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &crd); err != nil {
		return def, nil // as if it were not established
	}
	names := crd.Status.AcceptedNames
	if names.Kind == "" || names.Plural == "" || !meta.IsStatusConditionTrue(crd.Status.Conditions, "Established") {
		return def, nil
	}
	def.kind = schema.GroupKind{Group: crd.Spec.Group, Kind: names.Kind}
	def.mappings = map[string]*meta.RESTMapping{}
	for _, version := range crd.Spec.Versions {
		if version.Served {
			def.mappings[version.Name] = newMapping(def.kind.WithVersion(version.Name), names.Plural, crd.Spec.Scope == "Namespaced")
		}
	}
	return def, nil
}

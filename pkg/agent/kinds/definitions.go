package kinds

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

var definitionsResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// definition is what matters here of an established CustomResourceDefinition.
type definition struct {
	kind       schema.GroupKind
	plural     string
	namespaced bool
	versions   []string // that are served, sorted
}

func (d definition) mapping(version string) (Mapping, bool) {
	if !slices.Contains(d.versions, version) {
		return Mapping{}, false
	}
	return Mapping{
		Resource:   schema.GroupVersionResource{Group: d.kind.Group, Version: version, Resource: d.plural},
		Namespaced: d.namespaced,
	}, true
}

func (d definition) equal(other definition) bool {
	return d.kind == other.kind && d.plural == other.plural && d.namespaced == other.namespaced &&
		slices.Equal(d.versions, other.versions)
}

// Run keeps the kinds of CustomResourceDefinitions known until ctx ends. Without
// the right to list and watch these it says so once, keeps trying at a slow
// pace, and the resolver works by discovery. It must be called once.
func (r *Resolver) Run(ctx context.Context) error {
	client := dynamic.New(r.config.Client).Resource(definitionsResource)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedIndexInformer(source, &unstructured.Unstructured{}, 0, nil)
	if err := informer.SetTransform(trim); err != nil {
		return err
	}
	var once sync.Once
	if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		switch {
		case ctx.Err() != nil || errors.Is(err, io.EOF):
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			once.Do(func() {
				r.config.Logger.WarnContext(ctx, "cannot watch CustomResourceDefinitions, so new kinds are found by discovery only, seconds later; "+
					"let the agent list and watch customresourcedefinitions.apiextensions.k8s.io", "error", err)
			})
		default:
			r.config.Logger.DebugContext(ctx, "watch of CustomResourceDefinitions ended, trying again", "error", err)
		}
	}); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.update(obj) },
		UpdateFunc: func(_, obj any) { r.update(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if crd, ok := obj.(*unstructured.Unstructured); ok {
				r.drop(crd.GetName())
			}
		},
	}); err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return nil
}

// update takes over a definition that was added or changed.
func (r *Resolver) update(obj any) {
	crd, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	def, established := parse(crd)
	if !established {
		r.drop(crd.GetName())
		return
	}
	r.mu.Lock()
	former, known := r.names[crd.GetName()]
	r.mu.Unlock()
	if known && former != def.kind {
		r.drop(crd.GetName())
	}
	r.mu.Lock()
	before := r.defined[def.kind]
	r.names[crd.GetName()] = def.kind
	r.defined[def.kind] = def
	delete(r.gone, def.kind)
	r.mu.Unlock()
	if !before.equal(def) {
		r.config.Changed(def.kind)
	}
}

// drop forgets the kind of a definition, and what discovery said of it.
func (r *Resolver) drop(name string) {
	r.mu.Lock()
	kind, known := r.names[name]
	if known {
		def, now := r.defined[kind], r.config.Clock.Now()
		delete(r.names, name)
		delete(r.defined, kind)
		maps.DeleteFunc(r.gone, func(_ schema.GroupKind, since time.Time) bool { return now.Sub(since) >= goneFor })
		r.gone[kind] = now
		for _, version := range def.versions {
			r.forget(schema.GroupVersion{Group: kind.Group, Version: version})
		}
	}
	r.mu.Unlock()
	if known {
		r.config.Changed(kind)
	}
}

// parse reads a definition; it is false until the cluster serves it.
func parse(crd *unstructured.Unstructured) (definition, bool) {
	var def definition
	def.kind.Group, _, _ = unstructured.NestedString(crd.Object, "spec", "group")
	// The names asked for in the spec may be taken by another definition.
	def.kind.Kind, _, _ = unstructured.NestedString(crd.Object, "status", "acceptedNames", "kind")
	def.plural, _, _ = unstructured.NestedString(crd.Object, "status", "acceptedNames", "plural")
	scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
	def.namespaced = scope == "Namespaced"
	versions, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "versions")
	for name, version := range named(versions, "name") {
		if served, _ := version["served"].(bool); served {
			def.versions = append(def.versions, name)
		}
	}
	slices.Sort(def.versions)
	conditions, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "status", "conditions")
	established := named(conditions, "type")["Established"]["status"] == "True"
	return def, established && def.kind.Kind != "" && def.plural != ""
}

// named gives the objects in a list by one of their fields.
func named(list any, field string) map[string]map[string]any {
	items, _ := list.([]any)
	found := make(map[string]map[string]any, len(items))
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			if name, ok := object[field].(string); ok {
				found[name] = object
			}
		}
	}
	return found
}

// trim drops the schemas: they are most of a definition, and not needed.
func trim(obj any) (any, error) {
	crd, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	crd.SetManagedFields(nil)
	crd.SetAnnotations(nil)
	versions, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "versions")
	for _, version := range named(versions, "name") {
		delete(version, "schema")
		delete(version, "additionalPrinterColumns")
	}
	return crd, nil
}

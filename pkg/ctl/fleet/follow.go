package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

// Followed is a snapshot that watches keep up to date.
type Followed struct {
	reader  *Reader
	stores  map[string]cache.Store // by kind; without those that the user may not list
	changed chan struct{}
}

// kinds are those that a snapshot has.
var kinds = []string{"work", "cluster", "set"}

// Follow reads works, clusters and sets once and watches them until ctx ends. namespace limits works
// and sets. What the user may not list is left out and named in the warnings, except the kind needed, which is
// work, cluster or set: then it fails. The goroutines end with ctx.
func (r *Reader) Follow(ctx context.Context, namespace, needed string) (*Followed, []string, error) {
	sources := map[string]*cache.ListWatch{
		"work":    listwatch.Of(r.Clients.WorkV1().ManifestWorks(namespace), nil, nil),
		"cluster": listwatch.Of(r.Clients.ClusterV1().ManagedClusters(), nil, nil),
		"set":     listwatch.Of(r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace), nil, nil),
	}
	objects := map[string]runtime.Object{"work": &workv1.ManifestWork{}, "cluster": &clusterv1.ManagedCluster{}, "set": &workv1alpha1.ManifestWorkReplicaSet{}}
	warnings, err := listable(ctx, sources, needed)
	if err != nil {
		return nil, nil, err
	}
	ctx = silent(ctx)
	f := &Followed{reader: r, stores: map[string]cache.Store{}, changed: make(chan struct{}, 1)}
	var synced []cache.InformerSynced
	for kind, source := range sources {
		store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: source, ObjectType: objects[kind], Transform: slim,
			Handler: cache.ResourceEventHandlerFuncs{AddFunc: f.note, UpdateFunc: func(_, object any) { f.note(object) }, DeleteFunc: f.note},
		})
		f.stores[kind], synced = store, append(synced, controller.HasSynced)
		go controller.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, nil, fmt.Errorf("list works, clusters and sets: %w", ctx.Err())
	}
	return f, warnings, nil
}

// listable removes the sources that the user may not list, since a watch would try forever, and returns a warning
// for each. It returns an error if the kind needed is among them.
func listable(ctx context.Context, sources map[string]*cache.ListWatch, needed string) ([]string, error) {
	var w missing
	for _, kind := range kinds {
		_, err := sources[kind].ListWithContextFunc(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			continue
		}
		operation := "list the " + kind + "s"
		if kind == needed {
			return nil, cli.APIError(operation, err)
		}
		if err := w.optional(operation, err); err != nil {
			return nil, err
		}
		delete(sources, kind)
	}
	return w.warnings, nil
}

// slim drops what a summary does not need, so that 10,000 works need little memory.
func slim(object any) (any, error) {
	switch o := object.(type) {
	case *workv1.ManifestWork:
		o.Spec, o.ManagedFields = workv1.ManifestWorkSpec{}, nil
	case *workv1alpha1.ManifestWorkReplicaSet:
		o.Spec, o.ManagedFields = workv1alpha1.ManifestWorkReplicaSetSpec{}, nil
	case *clusterv1.ManagedCluster:
		o.ManagedFields = nil
	}
	return object, nil
}

func (f *Followed) note(any) {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Changed receives after changes; several changes may be one value.
func (f *Followed) Changed() <-chan struct{} { return f.changed }

// Snapshot returns the newest state. It reads the hub's Leases, and is O(works).
func (f *Followed) Snapshot(ctx context.Context) *Snapshot {
	s := &Snapshot{Time: time.Now(), ClustersKnown: f.stores["cluster"] != nil, WorksUnread: f.stores["work"] == nil}
	s.Works = values(f.stores["work"], func(w *workv1.ManifestWork) (string, string) { return w.Namespace, w.Name })
	s.Clusters = values(f.stores["cluster"], func(c *clusterv1.ManagedCluster) (string, string) { return "", c.Name })
	s.Sets = values(f.stores["set"], func(s *workv1alpha1.ManifestWorkReplicaSet) (string, string) { return s.Namespace, s.Name })
	s.readLeases(ctx, f.reader)
	return s
}

// values returns the objects of a store in the order of lists; none if it is nil.
func values[T any](store cache.Store, name func(*T) (namespace, name string)) []T {
	if store == nil {
		return nil
	}
	var all []T
	for _, object := range store.List() {
		if o, ok := object.(*T); ok {
			all = append(all, *o)
		}
	}
	slices.SortFunc(all, func(a, b T) int {
		an, a1 := name(&a)
		bn, b1 := name(&b)
		return cmp.Or(cmp.Compare(an, bn), cmp.Compare(a1, b1))
	})
	return all
}

// silent has client-go log nothing: what it says while the API is away, and when a watch ends, is in the way of the screen.
func silent(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
)

// Followed is a snapshot that watches keep up to date.
type Followed struct {
	reader   *Reader
	works    cache.Store
	clusters cache.Store // nil if the user may not list them, as sets
	sets     cache.Store
	changed  chan struct{}
}

// Follow reads works, clusters and sets once and watches them until ctx ends. namespace limits works
// and sets. What the user may not list is left out and named in the warnings, except works: then it fails.
// The goroutines end with ctx.
func (r *Reader) Follow(ctx context.Context, namespace string) (*Followed, []string, error) {
	clustersKnown, setsKnown, warnings, err := r.listable(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // what it would log while the API is away is in the way of the screen
	f := &Followed{reader: r, changed: make(chan struct{}, 1)}
	works, clusters, sets := r.Clients.WorkV1().ManifestWorks(namespace), r.Clients.ClusterV1().ManagedClusters(),
		r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace)
	stores := []*cache.Store{&f.works}
	sources := []*cache.ListWatch{listWatch(works.List, works.Watch)}
	objects := []runtime.Object{&workv1.ManifestWork{}}
	if clustersKnown {
		stores, sources, objects = append(stores, &f.clusters), append(sources, listWatch(clusters.List, clusters.Watch)), append(objects, &clusterv1.ManagedCluster{})
	}
	if setsKnown {
		stores, sources, objects = append(stores, &f.sets), append(sources, listWatch(sets.List, sets.Watch)), append(objects, &workv1alpha1.ManifestWorkReplicaSet{})
	}
	var synced []cache.InformerSynced
	for i := range sources {
		store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: sources[i], ObjectType: objects[i], Transform: slim,
			Handler: cache.ResourceEventHandlerFuncs{AddFunc: f.note, UpdateFunc: func(_, object any) { f.note(object) }, DeleteFunc: f.note},
		})
		*stores[i], synced = store, append(synced, controller.HasSynced)
		go controller.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, nil, fmt.Errorf("list works, clusters and sets: %w", ctx.Err())
	}
	return f, warnings, nil
}

// listable returns whether the user may list clusters and sets, and an error if not works. A watch would
// try forever.
func (r *Reader) listable(ctx context.Context, namespace string) (clusters, sets bool, warnings []string, err error) {
	one := metav1.ListOptions{Limit: 1}
	if _, err := r.Clients.WorkV1().ManifestWorks(namespace).List(ctx, one); err != nil {
		return false, false, nil, cli.APIError("list the works", err)
	}
	w := missing{}
	_, err = r.Clients.ClusterV1().ManagedClusters().List(ctx, one)
	if clusters, err = err == nil, w.optional("list the clusters", err); err != nil {
		return false, false, nil, err
	}
	_, err = r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace).List(ctx, one)
	if sets, err = err == nil, w.optional("list the sets", err); err != nil {
		return false, false, nil, err
	}
	return clusters, sets, w.warnings, nil
}

func listWatch[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error)) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return follow(ctx, o)
		},
	}
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
	s := &Snapshot{Time: time.Now(), ClustersKnown: f.clusters != nil}
	s.Works = values(f.works, func(w *workv1.ManifestWork) (string, string) { return w.Namespace, w.Name })
	s.Clusters = values(f.clusters, func(c *clusterv1.ManagedCluster) (string, string) { return "", c.Name })
	s.Sets = values(f.sets, func(s *workv1alpha1.ManifestWorkReplicaSet) (string, string) { return s.Namespace, s.Name })
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

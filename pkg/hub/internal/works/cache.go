package works

import (
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
	"github.com/workwire/workwire/pkg/wire"
)

// Names of the indexes.
const (
	byUID        = "uid"
	byReplicaSet = "replicaset"
)

// Cache holds all works of all namespaces, with lookups by UID, by cluster and by replica set; see
// [controller.Cache].
type Cache struct {
	*controller.Cache[*workv1.ManifestWork]
}

// NewCache returns the cache of works, and registers the metric workwire_hub_works with r, which may be nil. It
// does no I/O. It fails when it is called twice for the same informers, and when the metric is registered
// already.
func NewCache(informers *controller.Informers, r prometheus.Registerer) (*Cache, error) {
	c := &Cache{Cache: controller.CacheOf(informers, workv1.SchemeGroupVersion.WithResource("manifestworks"), &workv1.ManifestWork{}, codec, client)}
	err := c.AddIndexers(cache.Indexers{
		byUID: index(func(work *workv1.ManifestWork) string { return bucket(work.UID) }),
		byReplicaSet: index(func(work *workv1.ManifestWork) string {
			return strings.Clone(work.Labels[workv1.ReplicaSetLabelKey]) // the index outlives this version of the work
		}),
	})
	err = errors.Join(err, controller.Register(r, controller.NewGaugeFunc("works", "ManifestWorks on the hub.", c.Len)))
	if err != nil {
		return nil, fmt.Errorf("works: %w", err)
	}
	return c, nil
}

// codec holds works packed, without the annotation of kubectl apply, which may be as long as the manifests.
var codec = controller.Codec[*workv1.ManifestWork]{
	Hold: func(work *workv1.ManifestWork) any {
		delete(work.Annotations, corev1.LastAppliedConfigAnnotation)
		return hold(work)
	},
	Pack: func(work *workv1.ManifestWork) {
		delete(work.Annotations, corev1.LastAppliedConfigAnnotation)
		pack(work)
	},
}

// client lists and watches works.
func client(c versioned.Interface) listwatch.Client[*workv1.ManifestWorkList] {
	works := c.WorkV1()
	return controller.ParsedOnce[*workv1.ManifestWork](works.ManifestWorks(""), works.RESTClient(), "manifestworks")
}

// index indexes works by a value; works without one are not in the index.
func index(value func(*workv1.ManifestWork) string) cache.IndexFunc {
	return func(object any) ([]string, error) {
		work, ok := object.(*workv1.ManifestWork)
		if !ok || value(work) == "" {
			return nil, nil
		}
		return []string{value(work)}, nil
	}
}

// ByUID returns the work with uid as the informer has it, visible or not.
func (c *Cache) ByUID(uid types.UID) (*workv1.ManifestWork, bool) {
	return c.Find(byUID, bucket(uid), uid)
}

// buckets is how many parts the index by UID has. A lookup costs a pass over one: of 1,000,000 works, 15
// are in each. An index value of its own for each work would be a fifth of what a work takes.
const buckets = 1 << 16

// bucket returns the value of the index by UID, empty for no UID.
func bucket(uid types.UID) string {
	if uid == "" {
		return ""
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(uid))
	n := sum.Sum32() % buckets
	return string([]byte{byte(n >> 8), byte(n)})
}

// LatestByUID is [Cache.ByUID] with the writes that the informer has not seen yet.
func (c *Cache) LatestByUID(uid types.UID) (*workv1.ManifestWork, bool) {
	cached, ok := c.ByUID(uid)
	if !ok {
		return nil, false
	}
	latest, ok := c.Latest(controller.KeyOf(cached))
	if !ok || latest.UID != uid {
		return nil, false
	}
	return latest, true
}

// OfCluster returns the works of cluster, visible or not. It costs one pass over them.
func (c *Cache) OfCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	return slices.Values(c.List(cache.NamespaceIndex, string(cluster)))
}

// OfReplicaSet returns the works whose label [workv1.ReplicaSetLabelKey] has this value as they
// were last seen or written here. It costs one pass over them.
func (c *Cache) OfReplicaSet(label string) []*workv1.ManifestWork {
	return c.LatestList(byReplicaSet, label)
}

// Clusters returns each cluster that has works. It costs one pass over the clusters.
func (c *Cache) Clusters() iter.Seq[wire.ClusterName] {
	return func(yield func(wire.ClusterName) bool) {
		for _, namespace := range c.IndexValues(cache.NamespaceIndex) {
			if !yield(wire.ClusterName(namespace)) {
				return
			}
		}
	}
}

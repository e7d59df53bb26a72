// Package informer gives controllers the works of a source in a shared informer of client-go, with its
// handlers, indexers and listers. It is a package of its own, so that programs without a controller
// do not compile client-go's caches in.
//
//	works := informer.New(client, metav1.NamespaceAll, 0, cache.Indexers{})
//	_, err := works.AddEventHandler(handler)
//	go works.RunWithContext(ctx)
//	cache.WaitForCacheSync(ctx.Done(), works.HasSynced)
//	lister := listers.New[*workv1.ManifestWork](works.GetIndexer(), workv1.Resource("manifestworks"))
//	work, err := listers.NewNamespaced(lister, "cluster1").Get("settings")
package informer

import (
	"time"

	"k8s.io/client-go/tools/cache"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

// New returns an informer of the works of a cluster, whose name is the namespace, or of all clusters
// with metav1.NamespaceAll. client is a source.Client, or a generated client of a Kubernetes API.
// Every resync (0: never), handlers get an update of each work. The informer runs until the context
// of its method RunWithContext ends; when the client's Run has ended, it tries until then to list
// again. Its methods are safe for concurrent use; what it returns must not be changed.
func New(client workclient.ManifestWorksGetter, namespace string, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(listwatch.Of(client.ManifestWorks(namespace), nil, nil), &workv1.ManifestWork{}, resync, indexers)
}

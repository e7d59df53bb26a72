// Package profiles keeps a ClusterProfile (multicluster.x-k8s.io/v1alpha1, the inventory of SIG Multicluster) for each accepted
// cluster, for programs that find clusters by that API (docs/clusters.md).
//
//	c, err := profiles.New(profiles.Config{Clusters: informers.ManagedClusters(), Client: client, Namespace: "inventory", ...})
//	...
//	err = c.Run(ctx)
package profiles

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
	"github.com/workwire/workwire/pkg/runtime/required"
)

// Resource is that of ClusterProfiles.
var Resource = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"}

// Config configures a [Controller].
type Config struct {
	// Clusters has the ManagedClusters; required.
	Clusters *controller.Cache[*clusterv1.ManagedCluster]
	// Client reads and writes ClusterProfiles; required.
	Client dynamic.Interface
	// Namespace of the ClusterProfiles; required.
	Namespace string
	// Manager is the name of the hub as a cluster manager, a value of a label; required. Profiles of others are left alone.
	Manager string
	// Queues creates the metrics of the queue; default none.
	Queues workqueue.MetricsProvider
	// Logger gets a line about each profile that is made or deleted, and each failure; default slog.Default().
	Logger *slog.Logger
}

// Controller keeps ClusterProfiles.
type Controller struct {
	*controller.Controller[string]
	cfg      Config
	client   dynamic.ResourceInterface
	informer cache.SharedIndexInformer
	failure  atomic.Pointer[error] // of the informer's last list or watch
}

// New returns a controller. It does no I/O and starts nothing. It reports every fault of cfg.
func New(cfg Config) (*Controller, error) {
	if err := required.Fields(cfg, "Clusters", "Client", "Namespace", "Manager"); err != nil {
		return nil, fmt.Errorf("profiles: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	c := &Controller{cfg: cfg, client: cfg.Client.Resource(Resource).Namespace(cfg.Namespace)}
	c.informer = cache.NewSharedIndexInformer(listwatch.Of(c.client, nil, nil), &unstructured.Unstructured{}, 0, nil)
	err := c.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		c.failure.Store(&err)
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err == nil {
		changed := func(object any) {
			if deleted, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = deleted.Obj
			}
			if p, ok := object.(*unstructured.Unstructured); ok {
				c.Add(p.GetName())
			}
		}
		c.Controller, err = controller.New(controller.Config[string]{
			Name: "clusterprofiles", Reconcile: c.reconcile, Queues: cfg.Queues, Logger: cfg.Logger,
			Watches: []controller.Watch{
				controller.On(cfg.Clusters, func(before, after *clusterv1.ManagedCluster) { c.Add(cmp.Or(after, before).Name) }),
				// Profiles that are there already are added, too: a cluster may have gone while nobody looked.
				controller.OnInformer(c.informer, cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, after any) { changed(after) }, DeleteFunc: changed}, c.unread),
			},
		})
	}
	if err != nil {
		return nil, fmt.Errorf("profiles: %w", err)
	}
	return c, nil
}

// Run keeps ClusterProfiles until ctx ends; it returns nil then, when everything that it started has ended. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { c.informer.RunWithContext(ctx); return nil })
	group.Go(func() error { return c.Controller.Run(ctx) })
	return group.Wait()
}

// unread returns why no ClusterProfiles have been read yet.
func (c *Controller) unread() error {
	if err := c.failure.Load(); err != nil {
		return fmt.Errorf("ClusterProfiles in %s cannot be read; install their definition, deploy/crds/optional, and the rights: %w", c.cfg.Namespace, *err)
	}
	return fmt.Errorf("ClusterProfiles in %s are not read yet", c.cfg.Namespace)
}

// reconcile makes the ClusterProfile of a cluster what it should be.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	object, found, err := c.informer.GetStore().GetByKey(c.cfg.Namespace + "/" + name)
	if err != nil {
		return 0, err
	}
	var current *unstructured.Unstructured
	if found {
		current, _ = object.(*unstructured.Unstructured)
	}
	cluster, ok := c.cfg.Clusters.Latest(types.NamespacedName{Name: name})
	wanted := ok && cluster.DeletionTimestamp == nil && cluster.Spec.HubAcceptsClient
	switch {
	case current != nil && !c.ours(current):
		if wanted {
			c.cfg.Logger.Warn("the cluster has no ClusterProfile: another cluster manager has one of this name", "cluster", name, "namespace", c.cfg.Namespace)
		}
		return 0, nil
	case !wanted && current != nil:
		return 0, c.remove(ctx, current)
	case !wanted, current != nil && current.GetDeletionTimestamp() != nil:
		return 0, nil
	case current == nil:
		if current, err = c.create(ctx, cluster); current == nil || err != nil {
			return 0, err
		}
	}
	return 0, c.update(ctx, cluster, current)
}

// ours reports whether a ClusterProfile is of this cluster manager.
func (c *Controller) ours(p *unstructured.Unstructured) bool {
	manager, _, _ := unstructured.NestedString(p.Object, "spec", "clusterManager", "name")
	return manager == c.cfg.Manager
}

func (c *Controller) remove(ctx context.Context, p *unstructured.Unstructured) error {
	uid := p.GetUID()
	err := c.client.Delete(ctx, p.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete ClusterProfile %s/%s: %w", c.cfg.Namespace, p.GetName(), err)
	}
	c.cfg.Logger.Info("deleted a ClusterProfile", "cluster", p.GetName(), "namespace", c.cfg.Namespace)
	return nil
}

// create makes the ClusterProfile of a cluster, without a status; nil if there is one, which a watch event brings.
func (c *Controller) create(ctx context.Context, cluster *clusterv1.ManagedCluster) (*unstructured.Unstructured, error) {
	p := profileOf(cluster, c.cfg.Manager, status{}, time.Now())
	made := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": cluster.Name, "labels": p.labelsPatch(nil)},
		"spec":     map[string]any{"displayName": p.displayName, "clusterManager": map[string]any{"name": c.cfg.Manager}},
	}}
	made.SetGroupVersionKind(Resource.GroupVersion().WithKind("ClusterProfile"))
	created, err := c.client.Create(ctx, made, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("create ClusterProfile %s/%s: %w", c.cfg.Namespace, cluster.Name, err)
	}
	c.cfg.Logger.Info("created a ClusterProfile", "cluster", cluster.Name, "namespace", c.cfg.Namespace)
	return created, nil
}

// update writes what differs.
func (c *Controller) update(ctx context.Context, cluster *clusterv1.ManagedCluster, current *unstructured.Unstructured) (err error) {
	var before struct {
		Spec struct {
			DisplayName string `json:"displayName"`
		} `json:"spec"`
		Status status `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(current.Object, &before); err != nil {
		return fmt.Errorf("read ClusterProfile %s/%s: %w", c.cfg.Namespace, cluster.Name, err)
	}
	p := profileOf(cluster, c.cfg.Manager, before.Status, time.Now())
	if labels := p.labelsPatch(current.GetLabels()); len(labels) > 0 || before.Spec.DisplayName != p.displayName {
		if current, err = c.patch(ctx, current, map[string]any{"labels": labels}, "spec", map[string]any{"displayName": p.displayName}); current == nil || err != nil {
			return err
		}
	}
	if !apiequality.Semantic.DeepEqual(before.Status, p.status) {
		_, err = c.patch(ctx, current, map[string]any{}, "status", p.status, "status")
	}
	return err
}

// patch writes to a ClusterProfile, if it is as it was read, and returns the result; nil if it is gone.
func (c *Controller) patch(ctx context.Context, current *unstructured.Unstructured, metadata map[string]any, field string, value any, subresources ...string) (*unstructured.Unstructured, error) {
	metadata["resourceVersion"] = current.GetResourceVersion()
	data, err := json.Marshal(map[string]any{"metadata": metadata, field: value})
	if err != nil {
		return nil, err
	}
	written, err := c.client.Patch(ctx, current.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("patch the %s of ClusterProfile %s/%s: %w", field, c.cfg.Namespace, current.GetName(), err)
	}
	return written, nil
}

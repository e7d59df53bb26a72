package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// minTick is the minimum time between two passes over the index.
const minTick = 50 * time.Millisecond

// runTimer applies what follows from the passing of time, once all ManagedClusters and works are read, until ctx ends.
func (c *Clusters) runTimer(ctx context.Context) {
	if !c.WaitForSync(ctx) {
		return
	}
	c.index.allRead(time.Now())
	for {
		now := time.Now()
		c.reportBrake()
		probe, next := c.index.tick(now)
		for _, name := range probe {
			c.listener.ProbeCluster(name)
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(max(next.Sub(now), minTick))
		}
		select {
		case <-timer:
		case <-c.index.wake:
		case <-ctx.Done():
			return
		}
	}
}

// reconcile writes what is known of a cluster and not stored yet.
func (c *Clusters) reconcile(ctx context.Context, name wire.ClusterName) (requeueAfter time.Duration, err error) {
	if serving, after, err := c.cfg.Shard.Assign(ctx, fleet{c}, name); err != nil || !serving {
		return after, err
	}
	if requeueAfter, err = c.write(ctx, name); err != nil {
		c.index.requeued(name)
	}
	return requeueAfter, err
}

// write is reconcile. It returns the time until the cluster may get a taint; zero if it may not.
func (c *Clusters) write(ctx context.Context, name wire.ClusterName) (time.Duration, error) {
	v, ok := c.index.view(name)
	if !ok {
		return 0, nil
	}
	s := decide(name, v, c.policy, time.Now())
	if s.register != nil {
		if err := c.register(ctx, s.register); err != nil {
			return 0, err
		}
		if v, ok = c.index.view(name); !ok || v.stored == nil || !c.cfg.Shard.Serves(name) {
			return 0, nil // somebody else has created it, or nobody serves it yet, and a watch event follows
		}
		s = decide(name, v, c.policy, time.Now())
	}
	var namespaceErr error
	if s.namespace {
		if namespaceErr = c.createNamespace(ctx, name); namespaceErr != nil && s.conditions != nil {
			s.withoutNamespace(v.stored.Status.Conditions)
		}
	}
	cluster := v.stored
	if s.conditions != nil || s.about != nil {
		var err error
		if cluster, err = c.patch(ctx, cluster, statusPatch(cluster, s), "status"); cluster == nil || err != nil {
			return 0, err
		}
		c.recordEvents(cluster, s.events...)
		if s.about != nil {
			c.index.wroteAbout(name, s.about, time.Now())
		}
	}
	if s.spec {
		var err error
		if cluster, err = c.patch(ctx, cluster, specPatch(cluster, s)); cluster == nil || err != nil {
			return 0, err
		}
		c.recordEvents(cluster, s.held.events...)
	}
	c.deleteReleased(name, s.held.released)
	return s.requeueAfter, namespaceErr
}

// deleteReleased has the deletion of works delivered that the ManagedCluster lists as released. The
// hub has no more than that of them; it is delivered until the agent reports that they are deleted.
func (c *Clusters) deleteReleased(name wire.ClusterName, works []heldWork) {
	if len(works) == 0 {
		return
	}
	now := metav1.Now()
	for _, w := range c.index.release(name, works) {
		c.cfg.Logger.Info("deleting a held work", "work", w.name, "uid", w.uid, "cluster", name)
		c.listener.WorkRemoved(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
			Name: w.name, Namespace: string(name), UID: w.uid, Generation: int64(w.generation), DeletionTimestamp: &now,
		}})
	}
}

// register creates a ManagedCluster.
func (c *Clusters) register(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	created, err := c.cfg.Client.ClusterV1().ManagedClusters().Create(ctx, cluster, metav1.CreateOptions{})
	c.metrics.countWrite("register", err)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("create ManagedCluster %s: %w", cluster.Name, err)
	}
	c.cache.Created(created)
	c.recordEvents(created, event{corev1.EventTypeNormal, clusterv1.EventRegistered, "The cluster was heard from for the first time"})
	return nil
}

// createNamespace creates the namespace of a cluster if there is none.
func (c *Clusters) createNamespace(ctx context.Context, name wire.ClusterName) error {
	_, err := c.cfg.Namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: string(name), Labels: map[string]string{clusterv1.NamespaceLabelKey: string(name)},
	}}, metav1.CreateOptions{})
	c.metrics.countWrite("namespace", err)
	if err == nil {
		return nil
	}
	switch {
	case apierrors.IsInvalid(err): // no namespace has such a name
		c.cfg.Logger.Error("the namespace of the cluster cannot be created", "cluster", name, "error", err)
		return nil
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("create namespace %s of the cluster: %w", name, err)
	}
	found, err := c.cfg.Namespaces.Get(ctx, string(name), metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("get namespace %s of the cluster: %w", name, err)
	case found.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s of the cluster is being deleted, and is created again after that", name)
	default:
		return nil
	}
}

// patch writes to cluster and returns the result; nil if the cluster is gone.
func (c *Clusters) patch(
	ctx context.Context, cluster *clusterv1.ManagedCluster, patch any, subresources ...string,
) (*clusterv1.ManagedCluster, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch of ManagedCluster %s: %w", cluster.Name, err)
	}
	written, err := c.cfg.Client.ClusterV1().ManagedClusters().
		Patch(ctx, cluster.Name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...)
	part := "spec"
	if len(subresources) > 0 {
		part = "status"
	}
	c.metrics.countWrite(part, err)
	switch {
	case apierrors.IsNotFound(err):
		c.cache.Deleted(cluster)
		c.index.removed(wire.ClusterName(cluster.Name), time.Now())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("patch the %s of ManagedCluster %s: %w", part, cluster.Name, err)
	}
	c.cache.Wrote(written)
	return written, nil
}

// recordEvents records events about a cluster and logs them.
func (c *Clusters) recordEvents(cluster *clusterv1.ManagedCluster, events ...event) {
	for _, e := range events {
		c.cfg.Logger.Info("cluster event", "cluster", cluster.Name, "event", e.reason, "message", e.message)
		c.cfg.Recorder.Event(cluster, e.kind, e.reason, e.message)
	}
}

package clusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// leastPause is the time between two passes over the roster, at least.
const leastPause = 50 * time.Millisecond

// watch concludes what time tells, until ctx ends.
func (c *Clusters) watch(ctx context.Context) {
	for {
		now := time.Now()
		ask, next := c.roster.tick(now)
		if c.cfg.Asks != nil {
			for _, name := range ask {
				c.cfg.Asks(name)
			}
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(max(next.Sub(now), leastPause))
		}
		select {
		case <-timer:
		case <-c.roster.wake:
		case <-ctx.Done():
			return
		}
	}
}

// work writes clusters until queue is shut down.
func (c *Clusters) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[wire.ClusterName]) {
	for {
		name, stopped := queue.Get()
		if stopped {
			return
		}
		if err := c.write(ctx, name); err != nil && ctx.Err() == nil {
			if !apierrors.IsConflict(err) {
				c.log.Warn("what is known of the cluster can not be written; trying again", "cluster", name, "error", err)
			}
			c.roster.retried(name)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// write brings what is stored of a cluster to what is known. Its error asks for
// another try.
func (c *Clusters) write(ctx context.Context, name wire.ClusterName) error {
	v, ok := c.roster.look(name)
	if !ok {
		return nil
	}
	s := decide(name, v, c.policy, time.Now())
	if s.register != nil {
		if err := c.register(ctx, s.register); err != nil {
			return err
		}
		if v, ok = c.roster.look(name); !ok || v.stored == nil {
			return nil // somebody else has made it, and it is about to be seen
		}
		s = decide(name, v, c.policy, time.Now())
	}
	if s.namespace {
		if err := c.namespace(ctx, name); err != nil {
			return err
		}
	}
	cluster := v.stored
	if s.conditions != nil {
		patch, err := statusPatch(cluster, s.conditions)
		if cluster, err = c.patch(ctx, cluster, patch, err, "status"); cluster == nil || err != nil {
			return err
		}
		c.tell(cluster, s.events...)
	}
	if s.spec {
		patch, err := specPatch(cluster, s.taints, s.annotations)
		_, err = c.patch(ctx, cluster, patch, err)
		return err
	}
	return nil
}

// register makes a ManagedCluster.
func (c *Clusters) register(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	made, err := c.cfg.Client.ClusterV1().ManagedClusters().Create(ctx, cluster, metav1.CreateOptions{})
	c.metrics.count("register", err)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("register the cluster: create ManagedCluster %s: %w", cluster.Name, err)
	}
	c.roster.registered(made)
	c.tell(made, event{corev1.EventTypeNormal, EventRegistered, "The cluster was heard from for the first time"})
	return nil
}

// namespace makes the namespace of a cluster if there is none.
func (c *Clusters) namespace(ctx context.Context, name wire.ClusterName) error {
	_, err := c.cfg.Namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: string(name), Labels: map[string]string{NamespaceLabelKey: string(name)},
	}}, metav1.CreateOptions{})
	c.metrics.count("namespace", err)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the cluster's namespace %s: %w", name, err)
	}
	found, err := c.cfg.Namespaces.Get(ctx, string(name), metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("read the cluster's namespace %s: %w", name, err)
	case found.DeletionTimestamp != nil:
		return fmt.Errorf("the cluster's namespace %s is being deleted, and is made anew after that", name)
	default:
		return nil
	}
}

// patch writes to cluster, and gives it as it is then, or nil if it is gone. faulty
// is why there is no patch.
func (c *Clusters) patch(
	ctx context.Context, cluster *clusterv1.ManagedCluster, patch []byte, faulty error, subresources ...string,
) (*clusterv1.ManagedCluster, error) {
	if faulty != nil {
		return nil, faulty
	}
	written, err := c.cfg.Client.ClusterV1().ManagedClusters().
		Patch(ctx, cluster.Name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	what := "spec"
	if len(subresources) > 0 {
		what = "status"
	}
	c.metrics.count(what, err)
	switch {
	case apierrors.IsNotFound(err):
		c.roster.vanished(cluster)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("write the %s of ManagedCluster %s: %w", what, cluster.Name, err)
	}
	c.roster.wrote(written)
	return written, nil
}

// tell records events, in the log as well.
func (c *Clusters) tell(cluster *clusterv1.ManagedCluster, events ...event) {
	for _, e := range events {
		c.log.Info(e.message, "event", e.reason, "cluster", cluster.Name)
		if c.cfg.Recorder != nil {
			c.cfg.Recorder.Event(cluster, e.kind, e.reason, e.message)
		}
	}
}

// result labels a metric.
func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case apierrors.IsAlreadyExists(err):
		return "exists"
	case apierrors.IsNotFound(err):
		return "gone"
	case apierrors.IsConflict(err):
		return "conflict"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return "failed"
	}
}

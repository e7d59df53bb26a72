package works

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// HasFinalizer reports whether work carries the hub's finalizer.
func HasFinalizer(work *workv1.ManifestWork) bool {
	return slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer)
}

// isVisible reports whether work is delivered to its cluster. It is if it carries the hub's
// finalizer; if it no longer does but its cluster has reported on it, as after somebody removed the
// finalizer; and if nothing can be sent to its cluster (addressable is false), so that its status
// says so. A work that is being deleted without the finalizer is not visible, and neither is a forgotten one.
func isVisible(work *workv1.ManifestWork, addressable bool) bool {
	switch {
	case workv1.IsForgotten(work):
		return false
	case HasFinalizer(work):
		return true
	case work.DeletionTimestamp != nil:
		return false
	default:
		return slices.ContainsFunc(work.Status.Conditions, func(c metav1.Condition) bool { return !workv1.IsOfHub(&c) }) || !addressable
	}
}

// needsFinalizer reports whether the hub must add its finalizer to work.
func needsFinalizer(work *workv1.ManifestWork, addressable bool) bool {
	return addressable && work.DeletionTimestamp == nil && !HasFinalizer(work) && !workv1.IsForgotten(work)
}

// Get implements [delivery.WorkStore]: it returns a visible work.
func (c *Controller) Get(uid types.UID) (delivery.StoredWork, bool) {
	work, ok := c.cfg.Cache.ByUID(uid)
	if !ok || !isVisible(work, c.cfg.Addressable(wire.ClusterName(work.Namespace))) {
		return delivery.StoredWork{}, false
	}
	return delivery.StoredWork{Work: work, Paused: c.paused(work)}, true
}

// ListCluster implements [delivery.WorkStore]: it returns the visible works.
func (c *Controller) ListCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	addressable := c.cfg.Addressable(cluster)
	return func(yield func(*workv1.ManifestWork) bool) {
		for work := range c.cfg.Cache.OfCluster(cluster) {
			if isVisible(work, addressable) && !yield(work) {
				return
			}
		}
	}
}

// Content implements [delivery.WorkStore].
func (c *Controller) Content(work *workv1.ManifestWork) *workv1.ManifestWork { return Unpack(work) }

// Unknown implements [delivery.WorkStore]: the cache is complete.
func (c *Controller) Unknown(wire.SpecVersion) delivery.UnknownAction { return delivery.AnswerUnknown }

// Clusters implements [delivery.WorkStore].
func (c *Controller) Clusters() iter.Seq[wire.ClusterName] { return c.cfg.Cache.Clusters() }

// AcceptanceChanged queues the works of a cluster that may have been accepted. It never blocks and
// costs one pass over them.
func (c *Controller) AcceptanceChanged(cluster wire.ClusterName) {
	if !c.cfg.Accepted(cluster) {
		return
	}
	addressable := c.cfg.Addressable(cluster)
	for work := range c.cfg.Cache.OfCluster(cluster) {
		if needsFinalizer(work, addressable) {
			c.finalizers.Add(controller.KeyOf(work))
		}
	}
}

// addFinalizer adds the finalizer to a work that needs it.
func (c *Controller) addFinalizer(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	work, ok := c.cfg.Cache.Get(key)
	cluster := wire.ClusterName(key.Namespace)
	if !ok || !c.cfg.Accepted(cluster) || !needsFinalizer(work, c.cfg.Addressable(cluster)) {
		return 0, nil
	}
	patch, err := kube.FinalizerPatch(work, workv1.ManifestWorkFinalizer)
	if err != nil {
		return 0, err
	}
	_, err = c.cfg.Client.WorkV1().ManifestWorks(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !errors.Is(err, context.Canceled) {
		c.added.WithLabelValues(controller.Result(err)).Inc()
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("add the finalizer to ManifestWork %s (uid %s): %w", key, work.UID, err)
	}
	return 0, nil
}

package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/kube"
)

// pass looks at a set and does what is to be done. Its error asks for another
// pass.
func (c *Controller) pass(ctx context.Context, name types.NamespacedName, m *memory) error {
	started := time.Now()
	defer func() { c.metrics.passes.Observe(time.Since(started).Seconds()) }()
	set := c.source.set(name)
	if set == nil {
		c.forget(name, m)
		return nil
	}
	set = m.latestSet(set)
	now := c.cfg.Now()
	if set.DeletionTimestamp != nil {
		return c.finish(ctx, set, m, now)
	}
	if !slices.Contains(set.Finalizers, workv1alpha1.ManifestWorkReplicaSetFinalizer) {
		var err error
		if set, err = c.finalize(ctx, set, m); set == nil {
			return err
		}
	}
	p := decide(situation{
		set: set, placements: c.source.placementsOf(set), works: c.worksOf(set, m, now),
		named: c.cfg.Works.Get, presence: c.source.presence, now: now,
	})
	errStatus := c.storeStatus(ctx, set, &p.status, m)
	if errStatus == nil {
		c.tell(set, &p, m)
	}
	c.write(ctx, set, p.changes, m)
	c.wake(name, earlier(p.again, m.again()), now)
	return errStatus
}

// wake asks for a pass at a time, by the clock that says it is now.
func (c *Controller) wake(set types.NamespacedName, at, now time.Time) {
	if !at.IsZero() {
		c.queue.AddAfter(set, max(at.Sub(now), time.Millisecond))
	}
}

// worksOf gives the works of a set as they are, as far as it is known.
func (c *Controller) worksOf(set *workv1alpha1.ManifestWorkReplicaSet, m *memory, now time.Time) []*workv1.ManifestWork {
	found := c.cfg.Works.OfReplicaSet(Label(nameOf(set)))
	return m.latestWorks(found, c.cfg.Works.Get, now)
}

// finalize puts the finalizer on the set before it has works. It gives nil when
// the set is gone.
func (c *Controller) finalize(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, m *memory) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	patch, err := kube.FinalizerPatch(set, workv1alpha1.ManifestWorkReplicaSetFinalizer)
	if err != nil {
		return nil, err
	}
	return c.patchSet(ctx, set, types.MergePatchType, patch, m, "put the finalizer on")
}

// patchSet writes the set, and gives it as it is then; nil without an error when
// it is gone, or another one.
func (c *Controller) patchSet(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, kind types.PatchType, patch []byte,
	m *memory, what string, subresources ...string,
) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	patched, err := c.cfg.Client.WorkV1alpha1().ManifestWorkReplicaSets(set.Namespace).
		Patch(ctx, set.Name, kind, patch, metav1.PatchOptions{}, subresources...)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s ManifestWorkReplicaSet %s/%s: %w", what, set.Namespace, set.Name, err)
	}
	_, _ = slim(patched)
	m.set = patched
	return patched, nil
}

// storeStatus writes the status if it is another than the set has.
func (c *Controller) storeStatus(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, status *workv1alpha1.ManifestWorkReplicaSetStatus, m *memory) error {
	if apiequality.Semantic.DeepEqual(&set.Status, status) {
		return nil
	}
	patch, err := encode(statusPatch(set, status))
	if err != nil {
		return err
	}
	if _, err = c.patchSet(ctx, set, types.JSONPatchType, patch, m, "write the status of", "status"); err != nil {
		c.metrics.statuses.WithLabelValues("failed").Inc()
		return err
	}
	c.metrics.statuses.WithLabelValues("written").Inc()
	return nil
}

// finish deletes the works of a set that is being deleted, and lets the set go:
// at once, or when they are gone.
func (c *Controller) finish(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, m *memory, now time.Time) error {
	if releasePatch(set) == nil {
		return nil // held by somebody else
	}
	var p plan
	known := c.worksOf(set, m, now)
	for _, work := range known {
		p.remove(work)
	}
	failed := c.write(ctx, set, p.changes, m)
	name := nameOf(set)
	switch {
	case failed > 0, len(known) > 0 && set.Spec.CascadeDeletionPolicy == workv1alpha1.Foreground:
		c.wake(name, m.again(), now)
		return nil // their deletion is the next change
	}
	left, err := c.unknown(ctx, set)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		c.cfg.Logger.Debug("works of the deleted set that the cache does not show yet", "set", set.Name, "namespace", set.Namespace, "works", len(left))
		c.write(ctx, set, left, m)
		c.queue.AddAfter(name, pause)
		return nil
	}
	patch, err := encode(releasePatch(set))
	if err != nil {
		return err
	}
	_, err = c.patchSet(ctx, set, types.JSONPatchType, patch, m, "take the finalizer from")
	return err
}

// unknown asks the API server for works of a set that are not being deleted, or
// that the policy says to wait for: those that the cache does not show. A set is
// not let go before there are none.
func (c *Controller) unknown(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet) ([]change, error) {
	selector, err := labels.ValidatedSelectorFromSet(labels.Set{workv1.ReplicaSetLabelKey: Label(nameOf(set))})
	if err != nil {
		return nil, nil // no work can have had this label
	}
	options := metav1.ListOptions{LabelSelector: selector.String(), Limit: 100}
	var p plan
	for {
		list, err := c.cfg.Client.WorkV1().ManifestWorks(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the works of ManifestWorkReplicaSet %s/%s: %w", set.Namespace, set.Name, err)
		}
		for i := range list.Items {
			switch work := &list.Items[i]; {
			case work.DeletionTimestamp == nil:
				p.remove(work)
			case set.Spec.CascadeDeletionPolicy == workv1alpha1.Foreground:
				return nil, errors.New("works are left whose deletion the cache does not show")
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return p.changes, nil
		}
	}
}

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

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/runtime/kube"
)

// reconcile brings the status and the works of a set up to date.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
	started := time.Now()
	defer func() { c.metrics.reconciles.Observe(time.Since(started).Seconds()) }()
	set, ok := c.sets.Latest(key)
	if !ok {
		c.forget(key)
		return 0, nil
	}
	s, now := c.memoryOf(key), c.cfg.Now()
	if s.uid != set.UID { // no reconcile saw that the former set of this name was gone
		c.forget(key)
		s = c.memoryOf(key)
		s.uid = set.UID
	}
	if set.DeletionTimestamp != nil {
		return c.finalize(ctx, set, s, now)
	}
	if !slices.Contains(set.Finalizers, workv1alpha1.ManifestWorkReplicaSetFinalizer) {
		if set, err = c.addFinalizer(ctx, set); set == nil {
			return 0, err
		}
	}
	set = c.storeRevision(ctx, set, s, now)
	revisions := revisionsOf(set, s.history.hash)
	served, missing, err := c.servedSet(ctx, set, revisions.Served, s)
	if err != nil {
		return 0, err
	}
	deciding := time.Now()
	placements, reach := c.placementsOf(set), c.cfg.Bindings.Of(set.Namespace)
	if again, ready := c.override(served, revisions.Served, placements, s); !ready {
		c.Spent(key, time.Since(deciding))
		return again, nil
	}
	c.stage(set, s)
	p := decide(input{
		set: served, own: set, revisions: revisions, hash: s.history.hash, missing: missing, placements: placements, works: c.worksOf(set), workByName: c.unownedWork, reach: reach,
		presence: func(cluster string) presence { return c.presence(cluster, reach) }, cluster: c.cluster, asked: s.edited(set, placements, now), unwritten: s.unwritten(), overriding: s.overriding, staging: s.staging, now: now, clock: c.clock,
	})
	c.Spent(key, time.Since(deciding)) // a look at each work of the set
	if err = c.updateStatus(ctx, set, &p.status); err == nil {
		c.report(set, &p, s)
		err = c.storeRevisions(ctx, set, revisions, p.revisions, s)
	}
	if p.revisions.Served != revisions.Served { // the changes are of the template that it goes back from
		return interval, err
	}
	if s.staging != nil {
		s.staging.openUntil = p.openUntil
	}
	c.reportApprovals(set, &p, s) // also if the status could not be written: the next plan does not act on them again
	c.writeAll(ctx, set, p.changes, s)
	return s.requeueAfter(p.requeueAt, now), err
}

// requeueAfter returns the time until requeueAt, until a failed write is due, or until the works
// created last are no longer assumed to exist, whichever is first; 0 means never.
func (s *setMemory) requeueAfter(requeueAt, now time.Time) time.Duration {
	for _, f := range s.failures {
		requeueAt = rollout.Earlier(requeueAt, f.retryAt)
	}
	if s.history.retry.retryAt.After(now) {
		requeueAt = rollout.Earlier(requeueAt, s.history.retry.retryAt)
	}
	if s.createdUntil.After(now) {
		requeueAt = rollout.Earlier(requeueAt, s.createdUntil)
	}
	if requeueAt.IsZero() {
		return 0
	}
	return max(requeueAt.Sub(now), time.Millisecond)
}

// placementsOf returns the placements of a set with their decisions.
func (c *Controller) placementsOf(set *workv1alpha1.ManifestWorkReplicaSet) []placement {
	placements := make([]placement, 0, len(set.Spec.PlacementRefs))
	for i := range set.Spec.PlacementRefs {
		ref := &set.Spec.PlacementRefs[i]
		key := types.NamespacedName{Namespace: set.Namespace, Name: ref.Name}
		object, _ := c.placements.Get(key)
		placements = append(placements, placement{ref: ref, object: object, decisions: c.decisions.List(byPlacementLabel, key.String())})
	}
	return placements
}

// worksOf returns the works of a set, including writes that the informer does not show yet.
func (c *Controller) worksOf(set *workv1alpha1.ManifestWorkReplicaSet) []*workv1.ManifestWork {
	return c.cfg.Works.OfReplicaSet(workv1alpha1.WorkLabel(controller.KeyOf(set)))
}

// unownedWork returns a work by its name, unless it belongs to another set that exists: its name has a
// hash that the author of a set can choose a collision for.
func (c *Controller) unownedWork(key types.NamespacedName) (*workv1.ManifestWork, bool) {
	work, ok := c.cfg.Works.Latest(key)
	if !ok {
		return nil, false
	}
	if _, owned := c.setOf(work); owned {
		return nil, false
	}
	return work, true
}

// setOf returns the set that a work belongs to.
func (c *Controller) setOf(work *workv1.ManifestWork) (*workv1alpha1.ManifestWorkReplicaSet, bool) {
	key, labelled := workv1alpha1.ParseWorkLabel(work.Labels[workv1.ReplicaSetLabelKey])
	if !labelled {
		return nil, false
	}
	return c.sets.Get(key)
}

// presence returns the presence of a cluster, for a set with this reach. A cluster without a
// ManagedCluster counts as connected.
func (c *Controller) presence(cluster string, reach clustersets.Reach) presence {
	object, ok := c.cluster(cluster)
	if !ok {
		return presence{outside: !reach.HasAll()}
	}
	p := presenceOf(object)
	p.outside = !reach.Has(object.Labels)
	return p
}

func (c *Controller) cluster(name string) (*clusterv1.ManagedCluster, bool) {
	return c.clusters.Get(types.NamespacedName{Name: name})
}

// addFinalizer adds the finalizer, before the set has works. It returns nil if the set is gone.
func (c *Controller) addFinalizer(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	patch, err := kube.FinalizerPatch(set, workv1alpha1.ManifestWorkReplicaSetFinalizer)
	if err != nil {
		return nil, err
	}
	return c.patchSet(ctx, set, "add finalizer to", types.MergePatchType, patch)
}

// patchSet returns the patched set; nil without an error if the set is gone.
func (c *Controller) patchSet(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, operation string,
	kind types.PatchType, patch []byte, subresources ...string,
) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	patched, err := c.cfg.Client.WorkV1alpha1().ManifestWorkReplicaSets(set.Namespace).
		Patch(ctx, set.Name, kind, patch, metav1.PatchOptions{}, subresources...)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s ManifestWorkReplicaSet %s/%s: %w", operation, set.Namespace, set.Name, err)
	}
	c.sets.Wrote(patched)
	return patched, nil
}

// jsonPatchSet is patchSet with a JSON patch.
func (c *Controller) jsonPatchSet(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, operation string,
	patch kube.JSONPatch, subresources ...string,
) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	data, err := patch.Encode()
	if err != nil {
		return nil, err
	}
	return c.patchSet(ctx, set, operation, types.JSONPatchType, data, subresources...)
}

// updateStatus writes the status if it differs.
func (c *Controller) updateStatus(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, status *workv1alpha1.ManifestWorkReplicaSetStatus) error {
	if sameStatus(&set.Status, status) {
		return nil
	}
	if _, err := c.jsonPatchSet(ctx, set, "update status of", kube.StatusPatch(set.UID, status), "status"); err != nil {
		c.metrics.statuses.WithLabelValues("failed").Inc()
		return err
	}
	c.metrics.statuses.WithLabelValues("written").Inc()
	return nil
}

// sameStatus reports whether a stored status needs no write. A definition of Open Cluster Management
// drops selectedClusters and observedGeneration, which never change alone.
func sameStatus(stored, wanted *workv1alpha1.ManifestWorkReplicaSetStatus) bool {
	known := *wanted
	if stored.SelectedClusters == 0 {
		known.SelectedClusters = 0
	}
	if stored.ObservedGeneration == 0 {
		known.ObservedGeneration = 0
	}
	return apiequality.Semantic.DeepEqual(stored, &known)
}

// finalize deletes the works of a set that is being deleted and removes its finalizer: at once, or
// when the works are gone, as the policy of the set says.
func (c *Controller) finalize(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, s *setMemory, now time.Time) (requeueAfter time.Duration, err error) {
	patch := kube.RemoveFinalizerPatch(set, workv1alpha1.ManifestWorkReplicaSetFinalizer)
	if patch == nil {
		return 0, nil // others hold the set
	}
	var p plan
	known := c.worksOf(set)
	for _, work := range known {
		p.remove(work)
	}
	failed := c.writeAll(ctx, set, p.changes, s)
	if failed > 0 || len(known) > 0 && set.Spec.CascadeDeletionPolicy == workv1alpha1.Foreground {
		return s.requeueAfter(time.Time{}, now), nil // the deletion of the works queues the set again
	}
	remaining, err := c.listRemaining(ctx, set)
	if err != nil {
		return 0, err
	}
	if len(remaining) > 0 {
		c.cfg.Logger.Debug("deleted set has works that the cache does not show yet", "set", set.Name, "namespace", set.Namespace, "works", len(remaining))
		c.writeAll(ctx, set, remaining, s)
		return interval, nil
	}
	_, err = c.jsonPatchSet(ctx, set, "remove finalizer from", patch)
	return 0, err
}

// listRemaining lists the works of a set on the API server, which may have works that the cache
// does not show, and returns the deletions of those that are not being deleted. It fails if the
// policy says to wait for works that are being deleted.
func (c *Controller) listRemaining(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet) ([]change, error) {
	selector, err := labels.ValidatedSelectorFromSet(labels.Set{workv1.ReplicaSetLabelKey: workv1alpha1.WorkLabel(controller.KeyOf(set))})
	if err != nil {
		return nil, nil // no work can have this label
	}
	options := metav1.ListOptions{LabelSelector: selector.String(), Limit: 100}
	var p plan
	for {
		list, err := c.cfg.Client.WorkV1().ManifestWorks(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list works of ManifestWorkReplicaSet %s/%s: %w", set.Namespace, set.Name, err)
		}
		for i := range list.Items {
			switch work := &list.Items[i]; {
			case work.DeletionTimestamp == nil:
				p.remove(work)
			case set.Spec.CascadeDeletionPolicy == workv1alpha1.Foreground:
				return nil, errors.New("works are being deleted that the cache does not show yet")
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return p.changes, nil
		}
	}
}

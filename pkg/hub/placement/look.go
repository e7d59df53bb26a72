package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// byPlacement is the index of PlacementDecisions by the Placements that they
// name, by label or as owner.
const byPlacement = "placement"

func placementsOf(object any) ([]string, error) {
	var values []string
	if d, ok := object.(*clusterv1beta1.PlacementDecision); ok {
		for _, key := range placementKeys(d) {
			values = append(values, key.String())
		}
	}
	return values, nil
}

func placementKeys(d *clusterv1beta1.PlacementDecision) []types.NamespacedName {
	var keys []types.NamespacedName
	add := func(name string) {
		if key := (types.NamespacedName{Namespace: d.Namespace, Name: name}); name != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	add(d.Labels[clusterv1beta1.PlacementLabel])
	for _, owner := range d.OwnerReferences {
		if isPlacement(owner) {
			add(owner.Name)
		}
	}
	return keys
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// look does what a placement needs. When it does not fail, again is in how long
// it needs another look even if nothing changes; 0: never. An error asks for
// another try.
func (c *Controller) look(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	if wait := c.progress.behind(key, c.placements.GetStore(), c.decisions.GetStore(), time.Now()); wait > 0 {
		return wait, nil
	}
	p, _, err := get[*clusterv1beta1.Placement](c.placements.GetStore(), key)
	if err != nil {
		return 0, err
	}
	mine, orphans, err := c.decisionsFor(key, p)
	if err != nil {
		return 0, err
	}
	switch {
	case len(orphans) > 0:
		err = c.collect(ctx, key, orphans)
	case p == nil:
		c.progress.forget(key)
	case p.DeletionTimestamp != nil:
		// Its decisions go when it is gone.
	default:
		again, err = c.serve(ctx, p, mine)
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return 0, nil // the placement goes, too
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case apierrors.IsConflict(err):
		c.metrics.looks.WithLabelValues("conflict").Inc()
	default:
		c.metrics.looks.WithLabelValues("failed").Inc()
		c.cfg.Logger.Warn("the placement can not be served; trying again", "placement", key.Name, "namespace", key.Namespace, "error", err)
	}
	return again, err
}

// decisionsFor gives the PlacementDecisions of p, and those that belong to a
// Placement of its name that is no more.
func (c *Controller) decisionsFor(key types.NamespacedName, p *clusterv1beta1.Placement) (mine, orphans []*clusterv1beta1.PlacementDecision, err error) {
	objects, err := c.decisions.GetIndexer().ByIndex(byPlacement, key.String())
	if err != nil {
		return nil, nil, fmt.Errorf("PlacementDecisions of %s: %w", key, err)
	}
	for _, object := range objects {
		d, ok := object.(*clusterv1beta1.PlacementDecision)
		if !ok || d.DeletionTimestamp != nil {
			continue
		}
		switch owned := slices.ContainsFunc(d.OwnerReferences, func(o metav1.OwnerReference) bool {
			return isPlacement(o) && o.Name == key.Name
		}); {
		case p != nil && ownedBy(d, p):
			mine = append(mine, d)
		case owned:
			orphans = append(orphans, d)
		case p != nil && metav1.GetControllerOf(d) == nil:
			mine = append(mine, d) // it bears the placement's label: who lists by that finds it
		}
	}
	return mine, orphans, nil
}

// collect deletes the decisions of a Placement that is no more. An API server
// without a garbage collector would keep them for ever. It asks first: the watch
// of Placements may be behind that of PlacementDecisions.
func (c *Controller) collect(ctx context.Context, key types.NamespacedName, orphans []*clusterv1beta1.PlacementDecision) error {
	live, err := c.cfg.Client.ClusterV1beta1().Placements(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read Placement %s: %w", key, err)
	}
	if err == nil {
		orphans = slices.DeleteFunc(orphans, func(d *clusterv1beta1.PlacementDecision) bool { return ownedBy(d, live) })
	}
	return c.removeAll(ctx, key, orphans)
}

// serve brings the decisions and the status of p up to date.
func (c *Controller) serve(ctx context.Context, p *clusterv1beta1.Placement, mine []*clusterv1beta1.PlacementDecision) (again time.Duration, err error) {
	r, fault := newRules(p)
	if fault != nil {
		c.metrics.looks.WithLabelValues("misconfigured").Inc()
		return 0, c.store(ctx, p, misconfigured(p, fault))
	}
	now := time.Now()
	o := schedule(r, c.fleet.byName(), groupsOf(p.Name, mine), now)
	todo := planDecisions(p, o.groups, mine, func(name string) bool {
		_, taken, _ := c.decisions.GetStore().GetByKey(p.Namespace + "/" + name)
		return taken
	})
	if !todo.empty() {
		if err := c.carryOut(ctx, keyOf(p), &todo); err != nil {
			return 0, err
		}
		text := summary(&o, &todo)
		c.cfg.Logger.Info("the placement's decisions have changed: "+text, "placement", p.Name, "namespace", p.Namespace)
		c.event(p, corev1.EventTypeNormal, "DecisionUpdate", text)
	}
	if err := c.store(ctx, p, satisfied(p, r, &o, todo.groups)); err != nil {
		return 0, err
	}
	if todo.empty() {
		c.metrics.looks.WithLabelValues("unchanged").Inc()
	} else {
		c.metrics.looks.WithLabelValues("changed").Inc()
	}
	if o.again.IsZero() {
		return 0, nil
	}
	return max(time.Millisecond, time.Until(o.again)), nil
}

// store writes the status of p when it is another.
func (c *Controller) store(ctx context.Context, p *clusterv1beta1.Placement, status *clusterv1beta1.PlacementStatus) error {
	if apiequality.Semantic.DeepEqual(&p.Status, status) {
		return nil
	}
	changed := p.DeepCopy()
	changed.Status = *status
	written, err := c.cfg.Client.ClusterV1beta1().Placements(p.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	c.metrics.wrote("status", err)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the status of Placement %s/%s: %w", p.Namespace, p.Name, err)
	}
	c.progress.await(keyOf(p), echo{name: p.Name, uid: p.UID, version: written.ResourceVersion, placement: true}, time.Now())
	is := meta.FindStatusCondition(status.Conditions, clusterv1beta1.PlacementConditionMisconfigured)
	was := meta.FindStatusCondition(p.Status.Conditions, clusterv1beta1.PlacementConditionMisconfigured)
	if is != nil && is.Status == metav1.ConditionTrue && (was == nil || was.Message != is.Message) {
		c.event(p, corev1.EventTypeWarning, is.Reason, is.Message)
	}
	return nil
}

func (c *Controller) event(p *clusterv1beta1.Placement, kind, reason, text string) {
	if c.cfg.Recorder != nil {
		c.cfg.Recorder.Event(p, kind, reason, text)
	}
}

// get reads an object from a cache.
func get[T any](store cache.Store, key types.NamespacedName) (object T, ok bool, err error) {
	found, ok, err := store.GetByKey(key.String())
	if err != nil || !ok {
		return object, false, err
	}
	object, ok = found.(T)
	if !ok {
		return object, false, errors.New("the cache holds another type")
	}
	return object, true, nil
}

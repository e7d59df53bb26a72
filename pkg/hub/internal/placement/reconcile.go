package placement

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

// byPlacement is the index of PlacementDecisions by the Placements that their label or owner names.
const byPlacement = "placement"

func indexByPlacement(object any) ([]string, error) {
	var values []string
	if d, ok := object.(*clusterv1beta1.PlacementDecision); ok {
		for _, key := range placementKeys(d) {
			values = append(values, key.String())
		}
	}
	return values, nil
}

// placementKeys returns the keys of the Placements that the label and the owners of d name.
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

// reconcile brings the decisions and the status of a Placement up to date.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
	p, _ := c.placements.Latest(key)
	if p == nil {
		c.clusters.setRules(key, nil)
	}
	existing, orphans := c.decisionsFor(key, p)
	switch {
	case len(orphans) > 0:
		err = c.removeOrphans(ctx, key, orphans)
	case p != nil && p.DeletionTimestamp == nil:
		requeueAfter, err = c.update(ctx, p, existing)
	}
	switch {
	case err == nil || ctx.Err() != nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
	case apierrors.IsConflict(err):
		c.metrics.evaluations.WithLabelValues("conflict").Inc()
	default:
		c.metrics.evaluations.WithLabelValues("failed").Inc()
	}
	return requeueAfter, err
}

// decisionsFor returns the PlacementDecisions of p, which may be nil, and the orphans: those of a
// deleted Placement of the same name.
func (c *Controller) decisionsFor(key types.NamespacedName, p *clusterv1beta1.Placement) (existing, orphans []*clusterv1beta1.PlacementDecision) {
	for _, d := range c.decisions.LatestList(byPlacement, key.String()) {
		if d.DeletionTimestamp != nil {
			continue
		}
		switch owned := slices.ContainsFunc(d.OwnerReferences, func(o metav1.OwnerReference) bool {
			return isPlacement(o) && o.Name == key.Name
		}); {
		case p != nil && ownedBy(d, p):
			existing = append(existing, d)
		case owned:
			orphans = append(orphans, d)
		case p != nil && metav1.GetControllerOf(d) == nil:
			existing = append(existing, d) // readers find it by the label of the placement
		}
	}
	return existing, orphans
}

// removeOrphans deletes the decisions of a deleted Placement, since the API server may not have a
// garbage collector. It reads the Placement from the API server first: the cache of Placements may
// be older than the cache of PlacementDecisions.
func (c *Controller) removeOrphans(ctx context.Context, key types.NamespacedName, orphans []*clusterv1beta1.PlacementDecision) error {
	live, err := c.cfg.Client.ClusterV1beta1().Placements(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get Placement %s: %w", key, err)
	}
	if err == nil {
		orphans = slices.DeleteFunc(orphans, func(d *clusterv1beta1.PlacementDecision) bool { return ownedBy(d, live) })
	}
	return c.removeAll(ctx, key, orphans)
}

// update writes the decisions and the status of p if they have changed.
func (c *Controller) update(ctx context.Context, p *clusterv1beta1.Placement, existing []*clusterv1beta1.PlacementDecision) (requeueAfter time.Duration, err error) {
	deciding := time.Now()
	spent := func() { c.Spent(controller.KeyOf(p), time.Since(deciding)) } // compiling, and a look at each cluster
	r, err := c.rules(controller.KeyOf(p), p)
	if err != nil {
		spent()
		c.metrics.evaluations.WithLabelValues("misconfigured").Inc()
		return 0, c.updateStatus(ctx, p, misconfiguredStatus(p, err))
	}
	clusters := c.clusters.byName()
	if !r.prepare(clusters, deciding, deciding.Add(maxPrepareTime)) {
		spent()
		c.metrics.evaluations.WithLabelValues("misconfigured").Inc()
		return prepareAgain, c.updateStatus(ctx, p, misconfiguredStatus(p, errTooSlow))
	}
	before := readGroups(p.Name, existing)
	o := schedule(r, clusters, before, deciding, c.usage.of)
	spent()
	if keepsDecisions(p, r, &o, before) {
		c.metrics.evaluations.WithLabelValues("kept").Inc()
		return 0, c.updateStatus(ctx, p, keptStatus(p, r))
	}
	todo := planDecisions(p, o.groups, existing, func(name string) bool {
		_, taken := c.decisions.Latest(types.NamespacedName{Namespace: p.Namespace, Name: name})
		return taken
	})
	if !todo.empty() {
		if err := c.execute(ctx, controller.KeyOf(p), &todo); err != nil {
			return 0, err
		}
		change := changeSummary(&o, &todo)
		c.cfg.Logger.Info("placement decisions updated", "placement", p.Name, "namespace", p.Namespace, "change", change)
		c.cfg.Recorder.Event(p, corev1.EventTypeNormal, clusterv1beta1.EventDecisionUpdate, change)
	}
	if err := c.updateStatus(ctx, p, scheduledStatus(p, r, &o, todo.groups)); err != nil {
		return 0, err
	}
	if todo.empty() {
		c.metrics.evaluations.WithLabelValues("unchanged").Inc()
	} else {
		c.metrics.evaluations.WithLabelValues("changed").Inc()
	}
	if o.requeueAt.IsZero() {
		return 0, nil
	}
	return max(time.Millisecond, time.Until(o.requeueAt)), nil
}

// updateStatus writes the status of p if it differs.
func (c *Controller) updateStatus(ctx context.Context, p *clusterv1beta1.Placement, status *clusterv1beta1.PlacementStatus) error {
	if apiequality.Semantic.DeepEqual(&p.Status, status) {
		return nil
	}
	changed := p.DeepCopy()
	changed.Status = *status
	written, err := c.cfg.Client.ClusterV1beta1().Placements(p.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	c.metrics.countWrite("status", err)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update status of Placement %s/%s: %w", p.Namespace, p.Name, err)
	}
	c.placements.Wrote(written)
	for kind, reason := range map[string]string{
		clusterv1beta1.PlacementConditionMisconfigured: clusterv1beta1.ReasonMisconfigured,
		clusterv1beta1.PlacementConditionBound:         clusterv1beta1.ReasonDecisionsKept,
	} {
		before, after := meta.FindStatusCondition(p.Status.Conditions, kind), meta.FindStatusCondition(status.Conditions, kind)
		if after != nil && after.Reason == reason && (before == nil || before.Message != after.Message) {
			c.cfg.Recorder.Event(p, corev1.EventTypeWarning, after.Reason, after.Message)
		}
	}
	return nil
}

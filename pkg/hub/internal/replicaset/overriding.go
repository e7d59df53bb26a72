package replicaset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/watchedvalues"
	"github.com/workwire/workwire/pkg/hub/overrides"
	"github.com/workwire/workwire/pkg/hub/previews"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	// bySet indexes WorkOverrides by "<namespace>/<name>" of their set.
	bySet = "set"
	// maxRenderTime is how long one reconcile renders. What is left follows in the next, and nothing is decided before.
	maxRenderTime = 2 * time.Second
	// maxCompared is how many specs of works are remembered for a cluster: one for each placement, mostly.
	maxCompared = 4
	// maxRendered is how many bytes of rendered manifests of a set are held until its decision has been made.
	maxRendered = 32 << 20
)

// overriding is what the WorkOverrides of a set make of its template. From one decision to the next it holds no rendered specs, only
// whether they failed and which specs of works are equal to them. The reconcile of the set owns it.
type overriding struct {
	versions []overrideVersion
	hash     string                               // [previews.OverridesHash]
	set      *workv1alpha1.ManifestWorkReplicaSet // with the template that clusters receive
	served   int64                                // its revision, if it is not the set's own
	rules    *overrides.Rules
	// references are the ConfigMaps and Secrets in namespace that the rules refer to, and valueVersions their versions
	// of which the results are.
	references    []overrides.Reference
	valueVersions []int
	namespace     string
	watcher       *watchedvalues.Watcher
	cluster       func(name string) (*clusterv1.ManagedCluster, bool)
	clusters      map[string]*rendering
	rendered      int // bytes of the specs that clusters hold
}

// overrideVersion identifies what a WorkOverride says.
type overrideVersion struct {
	uid        types.UID
	generation int64
}

// rendering is the result for one cluster.
type rendering struct {
	of       *clusterv1.ManagedCluster // as it was
	spec     *workv1.ManifestWorkSpec  // until it has been decided about; nil: to be rendered again
	err      error
	compared map[comparison]bool // as of the input
	asked    bool                // since renderAll
}

func indexSet(object any) ([]string, error) {
	if o, ok := object.(*workwirev1alpha1.WorkOverride); ok {
		return []string{o.Namespace + "/" + o.Spec.ReplicaSet}, nil
	}
	return nil, nil
}

// versionsOf returns the versions of the WorkOverrides of a set, sorted.
func (c *Controller) versionsOf(set types.NamespacedName) ([]overrideVersion, []*workwirev1alpha1.WorkOverride) {
	list := c.overrides.List(bySet, set.String())
	var versions []overrideVersion
	for _, o := range list {
		versions = append(versions, overrideVersion{o.UID, o.Generation})
	}
	slices.SortFunc(versions, func(a, b overrideVersion) int { return cmp.Compare(a.uid, b.uid) })
	return versions, list
}

// override brings the renderings of a set up to date, nil if it has no WorkOverrides. If they are not ready, nothing can be
// decided yet: try again after a time or, if it is 0, when the set is queued because its values have been read.
func (c *Controller) override(set *workv1alpha1.ManifestWorkReplicaSet, served int64, placements []placement, s *setMemory) (again time.Duration, ready bool) {
	versions, list := c.versionsOf(controller.KeyOf(set))
	if len(list) == 0 {
		c.dropOverriding(set, s)
		return 0, true
	}
	o := s.overriding
	if o == nil || !slices.Equal(o.versions, versions) {
		o = &overriding{versions: versions, hash: previews.OverridesHash(list), rules: c.compiler.Compile(list), cluster: c.cluster, namespace: set.Namespace, watcher: c.values}
		o.references = o.rules.References()
		s.overriding = o
		c.useValues(set, o.references)
	}
	o.renew(set, served)
	if o.readValues() {
		again, ready = interval, o.renderAll(placements, time.Now().Add(maxRenderTime))
	}
	if !ready {
		o.dropSpecs() // the next attempt may be long after
	}
	return again, ready
}

// useValues has the ConfigMaps and Secrets watched that the overrides of a set refer to.
func (c *Controller) useValues(set *workv1alpha1.ManifestWorkReplicaSet, references []overrides.Reference) {
	keys := make([]watchedvalues.Key, 0, len(references))
	for _, from := range references {
		keys = append(keys, watchedvalues.Key{Namespace: set.Namespace, Reference: from})
	}
	c.values.Use(controller.KeyOf(set), keys)
}

// dropOverriding forgets the overrides of a set.
func (c *Controller) dropOverriding(set *workv1alpha1.ManifestWorkReplicaSet, s *setMemory) {
	if s.overriding != nil && len(s.overriding.references) > 0 {
		c.useValues(set, nil)
	}
	s.overriding = nil
}

// readValues drops the results if values have changed. It reports whether all values have been read, or are known not to be readable.
func (o *overriding) readValues() bool {
	if len(o.references) == 0 {
		return true
	}
	versions := make([]int, 0, len(o.references))
	for _, from := range o.references {
		_, version, _, known := o.watcher.Get(watchedvalues.Key{Namespace: o.namespace, Reference: from})
		if !known {
			return false
		}
		versions = append(versions, version)
	}
	if !slices.Equal(versions, o.valueVersions) {
		o.valueVersions = versions
		o.reset()
	}
	return true
}

// value is the [overrides.Values] of the set.
func (o *overriding) value(from overrides.Reference, key string) (string, error) {
	data, _, err, _ := o.watcher.Get(watchedvalues.Key{Namespace: o.namespace, Reference: from})
	if err != nil {
		return "", err
	}
	return overrides.ValueOf(data, data != nil, from, key)
}

// renew drops the results if the template has changed.
func (o *overriding) renew(set *workv1alpha1.ManifestWorkReplicaSet, served int64) {
	if o.set == nil || o.set.Generation != set.Generation || o.served != served {
		o.reset()
	}
	o.set, o.served = set, served
}

// reset drops the results.
func (o *overriding) reset() { o.clusters, o.rendered = make(map[string]*rendering), 0 }

// renderAll renders for all chosen clusters until a time, and forgets those that are not chosen, and that the last decision did not ask about.
// It reports whether it has finished.
func (o *overriding) renderAll(placements []placement, until time.Time) bool {
	for _, placement := range placements {
		for _, decision := range placement.decisions {
			for _, d := range decision.Status.Decisions {
				if o.of(d.ClusterName); time.Now().After(until) {
					return false
				}
			}
		}
	}
	maps.DeleteFunc(o.clusters, func(_ string, r *rendering) bool {
		asked := r.asked
		r.asked = false
		return !asked
	})
	return true
}

// of returns the result for a cluster.
func (o *overriding) of(name string) *rendering {
	cluster := o.clusterOf(name)
	known := o.clusters[name]
	if known != nil && (known.of == cluster || overrides.SameCluster(known.of, cluster)) {
		known.of, known.asked = cluster, true
		return known
	}
	spec, err := o.render(&o.set.Spec.ManifestWorkTemplate, name)
	known = &rendering{of: cluster, err: err, compared: make(map[comparison]bool, 1), asked: true}
	if size := o.sizeOf(spec); o.rendered+size <= maxRendered {
		known.spec, o.rendered = spec, o.rendered+size
	}
	o.clusters[name] = known
	return known
}

// sizeOf returns the bytes of the manifests of a spec, 0 if it is the template itself.
func (o *overriding) sizeOf(spec *workv1.ManifestWorkSpec) (size int) {
	if spec != nil && spec != &o.set.Spec.ManifestWorkTemplate {
		for _, m := range spec.Workload.Manifests {
			size += len(m.Raw)
		}
	}
	return size
}

// specOf returns the spec of a cluster.
func (o *overriding) specOf(name string) (*workv1.ManifestWorkSpec, error) {
	if known := o.of(name); known.spec != nil || known.err != nil {
		return known.spec, known.err
	}
	return o.render(&o.set.Spec.ManifestWorkTemplate, name)
}

// dropSpecs drops the specs once it has been decided about the set, or cannot be yet. o may be nil.
func (o *overriding) dropSpecs() {
	if o == nil {
		return
	}
	for _, known := range o.clusters {
		known.spec = nil
	}
	o.rendered = 0
}

// clusterOf returns a ManagedCluster, or one that has nothing but its name.
func (o *overriding) clusterOf(name string) *clusterv1.ManagedCluster {
	if cluster, ok := o.cluster(name); ok {
		return cluster
	}
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// render returns what the overrides make of a template for a cluster.
func (o *overriding) render(template *workv1.ManifestWorkSpec, name string) (*workv1.ManifestWorkSpec, error) {
	return o.rules.Render(template, o.clusterOf(name), o.value)
}

// fails reports whether the spec of a cluster cannot be rendered. Then nothing reaches the cluster.
func (o *overriding) fails(cluster string) bool { return o != nil && o.of(cluster).err != nil }

// setFor returns the set with the template of a cluster, nil if it cannot be rendered.
func (in input) setFor(cluster string) *workv1alpha1.ManifestWorkReplicaSet {
	if in.overriding == nil {
		return in.set
	}
	spec, err := in.overriding.specOf(cluster)
	if err != nil {
		return nil
	}
	set := *in.set
	set.Spec.ManifestWorkTemplate = *spec
	return &set
}

// unrenderedMessage says for which clusters overrides fail, and why for the first of them; empty if there are none.
func unrenderedMessage(in input, rollouts []placementRollout) string {
	var clusters []string
	for _, r := range rollouts {
		clusters = append(clusters, r.unrendered...)
	}
	slices.Sort(clusters)
	clusters = slices.Compact(clusters)
	if len(clusters) == 0 {
		return ""
	}
	texts := make([]string, 0, maxBlockers)
	for _, name := range clusters[:min(len(clusters), maxBlockers)] {
		text := name + ": "
		var of *overrides.Error
		if errors.As(in.overriding.of(name).err, &of) {
			text += of.Reason()
		}
		texts = append(texts, text)
	}
	return fmt.Sprintf("the overrides of %d clusters fail, and their works stay unchanged: %s", len(clusters), condition.First(texts, maxBlockers, len(clusters), "; "))
}

// setOverridden sets the condition OverridesRendered; a set without WorkOverrides has none.
func setOverridden(status *workv1alpha1.ManifestWorkReplicaSetStatus, in input, rollouts []placementRollout) {
	const kind = workv1alpha1.ManifestWorkReplicaSetConditionOverridesRendered
	if in.overriding == nil {
		meta.RemoveStatusCondition(&status.Conditions, kind)
		return
	}
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: workv1alpha1.ReasonAsExpected, ObservedGeneration: in.set.Generation}
	if c.Message = unrenderedMessage(in, rollouts); c.Message != "" {
		c.Status, c.Reason = metav1.ConditionFalse, workv1alpha1.ReasonOverrideFailed
	}
	conditionSetter(status, in.now)(c)
}

// overrideChanged queues the sets of a WorkOverride.
func (c *Controller) overrideChanged(before, after *workwirev1alpha1.WorkOverride) {
	if before != nil && after != nil && before.UID == after.UID && before.Generation == after.Generation {
		return
	}
	for _, o := range []*workwirev1alpha1.WorkOverride{before, after} {
		if o != nil {
			c.Add(types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ReplicaSet})
		}
	}
}

// overriddenOtherwise reports whether the WorkOverrides of a set are no longer those of its last decision.
func (c *Controller) overriddenOtherwise(set *workv1alpha1.ManifestWorkReplicaSet, s *setMemory) bool {
	versions, _ := c.versionsOf(controller.KeyOf(set))
	var decided []overrideVersion
	if s.overriding != nil {
		decided = s.overriding.versions
	}
	return !slices.Equal(versions, decided)
}

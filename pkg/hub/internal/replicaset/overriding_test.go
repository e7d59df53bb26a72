package replicaset

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/hub/internal/watchedvalues"
	"github.com/workwire/workwire/pkg/hub/overrides"
	"github.com/workwire/workwire/test/kit"
)

// byValue gives each cluster the value of its label.
const byValue = `[{name: values, patches: [{target: {kind: ConfigMap}, json: [{op: replace, path: /data/value, expression: cluster.labels.value}]}]}]`

// newOverride returns a WorkOverride of a set with these rules, in YAML.
func newOverride(t testing.TB, set, rules string) *workwirev1alpha1.WorkOverride {
	t.Helper()
	o := &workwirev1alpha1.WorkOverride{ObjectMeta: metav1.ObjectMeta{Name: "values"}, Spec: workwirev1alpha1.WorkOverrideSpec{ReplicaSet: set}}
	kit.NoError(t, yaml.UnmarshalStrict([]byte(rules), &o.Spec.Rules))
	return o
}

// overridingOf returns the overriding of set by byValue, with clusters that have these labels "value".
func overridingOf(t testing.TB, set *workv1alpha1.ManifestWorkReplicaSet, values map[string]string) *overriding {
	t.Helper()
	compiler, err := overrides.NewCompiler()
	kit.NoError(t, err)
	o := &overriding{rules: compiler.Compile([]*workwirev1alpha1.WorkOverride{newOverride(t, set.Name, byValue)})}
	o.cluster = func(name string) (*clusterv1.ManagedCluster, bool) {
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if value, ok := values[name]; ok {
			cluster.Labels = map[string]string{"value": value}
		}
		return cluster, true
	}
	o.renew(set, 0)
	return o
}

// TestDecideOverridden decides about clusters of which one has its value, others do not, and for one the overrides fail.
func TestDecideOverridden(t *testing.T) {
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
	object, decisions := placementOf("p", []string{"c1", "c2", "c3", "c4"})
	works := worksOf("p", "c1:ok", "c2:ok", "c3:old", "c4:ok")
	works[0].Spec = template("a") // it has what its label says; c2 and c4 have the template
	values := map[string]string{"c1": "a", "c3": "c", "c4": "d"}
	in := input{
		set: set, placements: []placement{{ref: &set.Spec.PlacementRefs[0], object: object, decisions: decisions}}, works: works,
		workByName: noWork, presence: present, cluster: noCluster, now: start, overriding: overridingOf(t, set, values),
	}
	p := decide(in)
	if got := describe(p.changes); !slices.Equal(got, []string{"update c3"}) { // maxConcurrency is 1; c2 is left alone
		t.Errorf("%q", got)
	}
	patch, err := p.changes[0].patch.Encode()
	if err != nil || !strings.Contains(string(patch), `"value":"c"`) {
		t.Errorf("%v: %s", err, patch)
	}
	const failed = `the overrides of 1 clusters fail, and their works stay unchanged: c2: WorkOverride values, rule values: ` +
		`patch 1 of ConfigMap a, operation 1 (replace /data/value), expression "cluster.labels.value": no such key: value`
	condition := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionOverridesRendered)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != workv1alpha1.ReasonOverrideFailed || condition.Message != failed {
		t.Errorf("%+v", condition)
	}
	progressing := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	if progressing.Reason != workv1alpha1.ReasonRollingOut || !strings.HasSuffix(progressing.Message, failed) || strings.Contains(progressing.Message, "get nothing") {
		t.Errorf("%+v", progressing)
	}

	// When the others have theirs, nothing goes on by itself.
	works[2].Spec, works[2].Status, works[3].Spec = template("c"), works[0].Status, template("d")
	p = decide(in)
	if len(p.changes) != 0 {
		t.Errorf("%q", describe(p.changes))
	}
	progressing = meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	stalled := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStalled)
	if progressing.Status != metav1.ConditionFalse || progressing.Reason != workv1alpha1.ReasonOverrideFailed || stalled == nil || stalled.Reason != workv1alpha1.ReasonOverrideFailed {
		t.Errorf("%+v, %+v", progressing, stalled)
	}

	// With the label the cluster goes on, and the condition says so; without overrides there is none.
	values["c2"] = "b"
	p = decide(in)
	condition = meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionOverridesRendered)
	if got := describe(p.changes); !slices.Equal(got, []string{"update c2"}) || condition == nil || condition.Status != metav1.ConditionTrue {
		t.Errorf("%q, %+v", got, condition)
	}
	in.overriding, set.Status = nil, p.status
	p = decide(in)
	if meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionOverridesRendered) != nil {
		t.Error("the condition stays")
	}
	if got := describe(p.changes); !slices.Equal(got, []string{"update c1"}) {
		t.Errorf("%q", got)
	}
}

// TestOverridesThatFailProveNothing: a template is neither complete nor proven while there is none for some clusters, and they are
// counted in their stages. Cluster c1 has the label stage=canary.
func TestOverridesThatFailProveNothing(t *testing.T) {
	const plan = `stages:
- {name: canary, clusterSelector: {matchLabels: {stage: canary}}}
- {name: production, approval: Required}
`
	for name, c := range map[string]struct {
		plan   string
		values map[string]string
		works  string
		staged string
		proven int64
		gauge  string
	}{
		"without a plan": {values: map[string]string{"c1": "2"}, works: "c1:ok", proven: 1, gauge: "progressing"},
		"a stage of which nothing is rendered": {
			plan: plan, values: map[string]string{"c1": "2"}, works: "c1:ok", proven: 1, gauge: "progressing",
			staged: "False OverrideFailed canary: 1 of 1 clusters succeeded; complete\nproduction: 0 of 2 clusters succeeded; the overrides of 2 clusters fail",
		},
		"a part of a stage": {
			plan: plan, values: map[string]string{"c1": "2", "c3": "2"}, works: "c1:ok c3:ok", proven: 1, gauge: "progressing",
			staged: "False OverrideFailed canary: 1 of 1 clusters succeeded; complete\nproduction: 1 of 2 clusters succeeded; the overrides of 1 clusters fail",
		},
		"a part of a stage that waits": {
			plan: plan, values: map[string]string{"c1": "2", "c3": "2"}, works: "c1:ok c3:old", proven: 1, gauge: "progressing",
			staged: "False WaitsForApproval canary: 1 of 1 clusters succeeded; complete\nproduction: 0 of 2 clusters succeeded; waits for approval; the overrides of 1 clusters fail",
		},
		"a canary": {
			plan: plan, values: map[string]string{"c2": "2", "c3": "2"}, works: "c2:old c3:old", proven: 1, gauge: "progressing",
			staged: "False OverrideFailed canary: 0 of 1 clusters succeeded; the overrides of 1 clusters fail\nproduction: 0 of 2 clusters succeeded; waits for stage canary",
		},
		"all have theirs": {
			plan: plan, values: map[string]string{"c1": "2", "c2": "2", "c3": "2"}, works: "c1:ok c2:ok c3:ok", proven: 2, gauge: "complete",
			staged: "True Complete canary: 1 of 1 clusters succeeded; complete\nproduction: 2 of 2 clusters succeeded; complete",
		},
	} {
		set := newSet("p")
		set.Annotations = map[string]string{}
		object, decisions := placementOf("p", []string{"c1", "c2", "c3"})
		in := input{
			set: set, placements: []placement{{ref: &set.Spec.PlacementRefs[0], object: object, decisions: decisions}}, works: worksOf("p", strings.Fields(c.works)...),
			workByName: noWork, presence: present, now: start, overriding: overridingOf(t, set, c.values), revisions: rollout.Revisions{Own: 2, Proven: 1},
			cluster: func(name string) (*clusterv1.ManagedCluster, bool) {
				cluster := &clusterv1.ManagedCluster{}
				if name == "c1" {
					cluster.Labels = map[string]string{"stage": "canary"}
				}
				return cluster, true
			},
		}
		rollback(&in)
		if c.plan != "" {
			in.staging = stagingOf(t, c.plan)
		}
		p := decide(in)
		if p.revisions.Proven != c.proven {
			t.Errorf("%s: revision %d is proven, want %d", name, p.revisions.Proven, c.proven)
		}
		complete := meta.IsStatusConditionTrue(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut)
		if gauge := gaugesOf(&p).rollout; gauge != c.gauge || complete != (c.gauge == "complete") {
			t.Errorf("%s: counted as %s, complete %t", name, gauge, complete)
		}
		staged := ""
		if condition := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStaged); condition != nil {
			staged = fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message)
		}
		if staged != c.staged {
			t.Errorf("%s:\n got %s\nwant %s", name, staged, c.staged)
		}
	}
}

// TestAbandonedOverridden: of a set that has gone back, works are known by what the overrides make of the template that failed.
func TestAbandonedOverridden(t *testing.T) {
	own, served := newSet("p"), newSet("p")
	own.Spec.ManifestWorkTemplate = template("3")
	own.Spec.ManifestWorkTemplate.Workload.Manifests = append(own.Spec.ManifestWorkTemplate.Workload.Manifests, served.Spec.ManifestWorkTemplate.Workload.Manifests...)
	in := input{set: served, own: own, revisions: rollout.Revisions{Own: 2, Proven: 1, Served: 1}, overriding: overridingOf(t, served, map[string]string{"c1": "a"})}
	spec, err := in.overriding.render(&own.Spec.ManifestWorkTemplate, "c1")
	kit.NoError(t, err)
	works := worksOf("p", "c1:old", "c1:old")
	works[0].Spec = *spec
	if !in.hasAbandoned(works[0]) || in.hasAbandoned(works[1]) || in.hasTemplate(works[0]) {
		t.Errorf("abandoned: %v, %v", in.hasAbandoned(works[0]), in.hasAbandoned(works[1]))
	}
	in.overriding.renew(served, 1)
	if len(in.overriding.clusters) > 0 {
		t.Error("what was rendered of another revision stays")
	}
}

// TestGoneBackWithoutOverrides: a set that has gone back, except to clusters whose overrides fail with the earlier template, says so, and does not go
// on by itself.
func TestGoneBackWithoutOverrides(t *testing.T) {
	for works, want := range map[string]string{"c1:ok": "False OverrideFailed", "c1:old": "True RollingBack", "c1:new": "True RollingBack"} {
		own, set := newSet("p"), newSet("p")
		own.Spec.ManifestWorkTemplate = template("3")
		set.Annotations = map[string]string{}
		object, decisions := placementOf("p", []string{"c1", "c2"})
		in := input{
			set: set, own: own, placements: []placement{{ref: &set.Spec.PlacementRefs[0], object: object, decisions: decisions}}, works: worksOf("p", works),
			workByName: noWork, presence: present, cluster: noCluster, now: start, overriding: overridingOf(t, set, map[string]string{"c1": "2"}),
			revisions: rollout.Revisions{Own: 2, Proven: 1, Served: 1},
		}
		rollback(&in)
		p := decide(in)
		progressing := meta.FindStatusCondition(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
		stalled := meta.IsStatusConditionTrue(p.status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionStalled)
		if got := fmt.Sprint(progressing.Status, " ", progressing.Reason); got != want || stalled != (works == "c1:ok") {
			t.Errorf("%s: %s, stalled %t: %s", works, got, stalled, progressing.Message)
		}
		for _, text := range []string{"the overrides of 1 clusters fail", "c2: WorkOverride values", "back from revision 2 to revision 1"} {
			if !strings.Contains(progressing.Message, text) {
				t.Errorf("%s: %s, want %s", works, progressing.Message, text)
			}
		}
	}
}

// TestDecidePausedOverridden holds overrides like a template.
func TestDecidePausedOverridden(t *testing.T) {
	set := newSet("p")
	set.Annotations = map[string]string{workv1.PausedAnnotationKey: "true"}
	object, decisions := placementOf("p", []string{"c1"})
	p := decide(input{
		set: set, placements: []placement{{ref: &set.Spec.PlacementRefs[0], object: object, decisions: decisions}}, works: worksOf("p", "c1:ok"),
		workByName: noWork, presence: present, cluster: noCluster, now: start, overriding: overridingOf(t, set, map[string]string{"c1": "a"}),
	})
	if len(p.changes) != 0 {
		t.Errorf("%q", describe(p.changes))
	}
}

// TestRenderAll renders as many clusters as there is time for, each once, and forgets those that are not chosen.
func TestRenderAll(t *testing.T) {
	set := newSet("p")
	o := overridingOf(t, set, nil)
	object, decisions := placementOf("p", []string{"c1", "c2", "c3"})
	chosen := []placement{{object: object, decisions: decisions}}
	for want := 1; want <= 3; want++ {
		if o.renderAll(chosen, start) {
			t.Error("it has finished")
		}
		if len(o.clusters) == 1 {
			first := o.clusters["c1"]
			if o.of("c1") != first {
				t.Error("c1 is rendered again")
			}
		}
		for _, name := range []string{"c1", "c2", "c3"}[:want] { // as if some time were left
			o.of(name)
		}
	}
	if !o.renderAll(chosen, time.Now().Add(time.Hour)) || len(o.clusters) != 3 {
		t.Errorf("%v", o.clusters)
	}
	object, decisions = placementOf("p", []string{"c2"})
	if !o.renderAll([]placement{{object: object, decisions: decisions}}, time.Now().Add(time.Hour)) || len(o.clusters) != 1 {
		t.Errorf("%v", o.clusters)
	}
}

// TestRenderedOnce: nothing is rendered again that has not changed, also of a set that has gone back and has works of clusters that are away
// and not chosen.
func TestRenderedOnce(t *testing.T) {
	for _, goneBack := range []bool{false, true} {
		in := overriddenInput(t, 4, goneBack)
		for range 3 {
			if p := decideAgain(t, in); len(p.changes) > 0 {
				t.Errorf("gone back %t: %q", goneBack, describe(p.changes))
			}
			in.overriding.rules = nil // whoever renders panics
		}
	}
}

// TestChangedRenderedOnce: what clusters get that do not have it is rendered once for each, and held no longer than until that is decided.
func TestChangedRenderedOnce(t *testing.T) {
	in := overriddenInput(t, 4, false)
	in.works = packed(t, worksOf("p", "c0000:old", "c0001:old"))
	if !in.overriding.renderAll(in.placements, time.Now().Add(time.Hour)) || in.overriding.rendered == 0 {
		t.Fatal("not all are rendered")
	}
	rules := in.overriding.rules
	in.overriding.rules = nil // whoever renders panics
	if got, want := strings.Join(describe(decide(in).changes), " "), "create c0002 create c0003 update c0000 update c0001"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for name, held := range in.overriding.clusters {
		if held.spec != nil || in.overriding.rendered != 0 {
			t.Errorf("the spec of %s is held", name)
		}
	}
	in.overriding.rules = rules // too much to hold is rendered again
	in.overriding.reset()
	in.overriding.rendered = maxRendered
	if got := len(decide(in).changes); got != 4 {
		t.Errorf("%d changes", got)
	}

	in.overriding.reset()
	unselected := in.overriding.of("c0000")
	unselected.spec, in.overriding.rendered = &in.set.Spec.ManifestWorkTemplate, 0 // no rule selects it
	if in.overriding.dropSpecs(); unselected.spec != nil {
		t.Error("the template is held")
	}
}

// createClusters creates ManagedClusters with labels value=c01 and so on.
func (e *env) createClusters() {
	e.t.Helper()
	for _, name := range e.clusters {
		_, err := e.client.ClusterV1().ManagedClusters().Create(e.t.Context(), &clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"value": e.short(name)}},
			Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
		}, metav1.CreateOptions{})
		kit.NoError(e.t, err)
	}
}

func (e *env) patchCluster(name, patch string) {
	e.t.Helper()
	_, err := e.client.ClusterV1().ManagedClusters().Patch(e.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	kit.NoError(e.t, err)
}

// valuesOf returns the values in the works of a set: "c01=a c02=b".
func (e *env) valuesOf(set string) string {
	e.t.Helper()
	var texts []string
	for _, work := range e.works(set) {
		object := struct{ Data map[string]string }{}
		kit.NoError(e.t, yaml.Unmarshal(work.Spec.Workload.Manifests[0].Raw, &object))
		texts = append(texts, e.short(work.Namespace)+"="+object.Data["value"])
	}
	return strings.Join(texts, " ")
}

func (e *env) awaitValues(set, want string) {
	e.t.Helper()
	kit.Eventually(e.t, "the values "+want, func() error {
		if got := e.valuesOf(set); got != want {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// TestOverride rolls out values of each cluster: at the start, when a label changes, when a rule fails, and when the override is deleted.
func TestOverride(t *testing.T) {
	e := newEnv(t, 3)
	e.createClusters()
	e.writePlacement("p", e.clusters)
	api := e.client.WorkwireV1alpha1().WorkOverrides(e.namespace)
	owner := newOverride(t, "set", `[{patches: [{target: {kind: ConfigMap}, merge: {expression: "{'data': {'owner': cluster.annotations[?'owner'].orValue('nobody')}}"}}]}]`)
	owner.Name = "owner"
	for _, o := range []*workwirev1alpha1.WorkOverride{newOverride(t, "set", byValue), owner} {
		_, err := api.Create(t.Context(), o, metav1.CreateOptions{})
		kit.NoError(t, err)
	}
	r := e.start()
	e.createSet(newSet("p"))
	e.awaitValues("set", "c01=c01 c02=c02 c03=c03")
	e.reportApplied("set", e.clusters)
	complete := func() {
		t.Helper()
		kit.Eventually(t, "the rollout is complete", func() error { return e.isCondition("set", "PlacementRolledOut", metav1.ConditionTrue, "") })
		e.awaitIdle(r, "set")
	}
	complete()
	kit.NoError(t, e.isCondition("set", "OverridesRendered", metav1.ConditionTrue, ""))

	// A label changes: one work, and no other, changes.
	e.patchCluster(e.clusters[1], `{"metadata":{"labels":{"value":"other"}}}`)
	e.awaitValues("set", "c01=c01 c02=other c03=c03")
	for i, work := range e.works("set") {
		if want := []int64{1, 2, 1}[i]; work.Generation != want {
			t.Errorf("%s has generation %d", work.Namespace, work.Generation)
		}
	}
	e.reportApplied("set", e.clusters)
	complete()

	e.advance(controller.WriteTimeout + time.Second) // from here on, no set is queued because works were created
	e.awaitIdle(r, "set")

	// So does what is no label, but what changes all the time does not.
	e.patchCluster(e.clusters[0], `{"metadata":{"annotations":{"owner":"shops"}}}`)
	kit.True(t, "the annotation is in the work", func() bool {
		return strings.Contains(string(e.works("set")[0].Spec.Workload.Manifests[0].Raw), `"owner":"shops"`)
	})
	e.reportApplied("set", e.clusters)
	complete()
	e.patchCluster(e.clusters[1], `{"metadata":{"annotations":{"`+clusterv1.LastSeenAnnotationKey+`":"now"}}}`)
	if written := e.awaitIdle(r, "set"); len(written) > 0 {
		t.Errorf("%q", written)
	}

	// A rule fails for one cluster, whose work stays; a new template reaches the others.
	e.patchCluster(e.clusters[2], `{"metadata":{"labels":{"value":null}}}`)
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","data":{"new":"1","value":"2"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`)
	})
	kit.Eventually(t, "the new template reaches two works", func() error {
		with := 0
		for _, work := range e.works("set") {
			if strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), `"new"`) {
				with++
			}
		}
		if with != 2 {
			return fmt.Errorf("%d have it", with)
		}
		return nil
	})
	e.awaitValues("set", "c01=c01 c02=other c03=c03")
	e.reportApplied("set", e.clusters)
	const failed = `c03: WorkOverride values, rule values: patch 1 of ConfigMap a, operation 1 (replace /data/value), expression "cluster.labels.value": no such key: value`
	kit.Eventually(t, "the set says which cluster fails", func() error {
		return e.isCondition("set", "OverridesRendered", metav1.ConditionFalse, failed)
	})
	kit.Eventually(t, "the set does not go on", func() error { return e.isCondition("set", "Stalled", metav1.ConditionTrue, failed) })
	e.awaitIdle(r, "set")
	if got := e.works("set")[2].Generation; got != 1 {
		t.Errorf("the work of the cluster that fails has changed: generation %d", got)
	}

	// Without the overrides, the template reaches all.
	kit.NoError(t, api.Delete(t.Context(), "values", metav1.DeleteOptions{}))
	e.awaitValues("set", "c01=2 c02=2 c03=2")
	kit.NoError(t, api.Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	kit.True(t, "nobody owns them", func() bool {
		return !slices.ContainsFunc(e.works("set"), func(w *workv1.ManifestWork) bool {
			return strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), "owner")
		})
	})
	e.reportApplied("set", e.clusters)
	complete()
	if err := e.isCondition("set", "OverridesRendered", "", ""); err != nil {
		t.Error(err)
	}
}

// isCondition fails unless a set has a condition with this status and text in its message; no status: no condition.
func (e *env) isCondition(name, kind string, status metav1.ConditionStatus, text string) error {
	set, err := e.getSet(name)
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(set.Status.Conditions, kind)
	if c == nil && status == "" {
		return nil
	}
	if c == nil || c.Status != status || !strings.Contains(strings.ReplaceAll(c.Message, e.namespace+"-", ""), text) {
		return fmt.Errorf("%s is %+v", kind, c)
	}
	return nil
}

// TestOverrideByStrategy rolls out an override, and its deletion, one cluster at a time, and stops at a failure.
func TestOverrideByStrategy(t *testing.T) {
	e := newEnv(t, 3)
	e.createClusters()
	e.writePlacement("p", e.clusters)
	e.start()
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
	e.createSet(set)
	for i := range e.clusters {
		kit.True(t, "the next work", func() bool { return len(e.works("set")) == i+1 })
		e.reportApplied("set", e.clusters)
	}
	e.awaitValues("set", "c01=2 c02=2 c03=2")
	api := e.client.WorkwireV1alpha1().WorkOverrides(e.namespace)
	_, err := api.Create(t.Context(), newOverride(t, "set", byValue), metav1.CreateOptions{})
	kit.NoError(t, err)
	e.awaitValues("set", "c01=c01 c02=2 c03=2")
	e.reportApplied("set", e.clusters)
	e.awaitValues("set", "c01=c01 c02=c02 c03=2")
	e.reportApplied("set", e.clusters[1:2], "Degraded=True")
	kit.Eventually(t, "the rollout stops", func() error { return e.isCondition("set", "Stopped", metav1.ConditionTrue, "c02") })
	kit.NoError(t, api.Delete(t.Context(), "values", metav1.DeleteOptions{}))
	e.awaitValues("set", "c01=2 c02=c02 c03=2")
	e.reportApplied("set", e.clusters[:1])
	e.awaitValues("set", "c01=2 c02=2 c03=2")
}

// TestOverrideFromValues has values from a ConfigMap and a Secret, which the hub watches by their names alone: a changed key changes
// the work of its cluster, a missing one stops its cluster.
func TestOverrideFromValues(t *testing.T) {
	e := newEnv(t, 2)
	e.createClusters()
	e.writePlacement("p", e.clusters)
	core := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1()
	first, second := e.clusters[0], e.clusters[1]
	_, err := core.ConfigMaps(e.namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "values"}, Data: map[string]string{first: "a", second: "b"},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	_, err = e.client.WorkwireV1alpha1().WorkOverrides(e.namespace).Create(t.Context(), newOverride(t, "set", `
- patches:
  - target: {kind: ConfigMap}
    json: [{op: replace, path: /data/value, configMap: {name: values}}]
- clusters: {labelSelector: {matchLabels: {value: c01}}}
  patches:
  - target: {kind: ConfigMap}
    json: [{op: add, path: /data/password, secret: {name: passwords, key: "{cluster}.txt"}}]
`), metav1.CreateOptions{})
	kit.NoError(t, err)
	r := e.start()
	e.createSet(newSet("p"))
	e.awaitValues("set", "c02=b")
	kit.Eventually(t, "the Secret is missed", func() error {
		return e.isCondition("set", "OverridesRendered", metav1.ConditionFalse, "c01: WorkOverride values, rule 2: patch 1 of ConfigMap a, operation 1 (add /data/password): Secret passwords does not exist")
	})
	_, err = core.Secrets(e.namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "passwords"}, StringData: map[string]string{first + ".txt": "hidden"},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	e.awaitValues("set", "c01=a c02=b")
	if got := string(e.works("set")[0].Spec.Workload.Manifests[0].Raw); !strings.Contains(got, `"password":"hidden"`) {
		t.Errorf("%s", got)
	}
	patch := fmt.Appendf(nil, `{"data":{%q:"other"}}`, second)
	_, err = core.ConfigMaps(e.namespace).Patch(t.Context(), "values", types.MergePatchType, patch, metav1.PatchOptions{})
	kit.NoError(t, err)
	e.awaitValues("set", "c01=a c02=other")
	if got := e.works("set")[0].Generation; got != 1 {
		t.Errorf("the work of another cluster has generation %d", got)
	}
	reads := r.requests.Take(func(q kit.Request) bool { return q.Resource == "secrets" || q.Resource == "configmaps" })
	for _, q := range reads {
		if !strings.Contains(q.Query, "fieldSelector=metadata.name%3D") || q.Namespace != e.namespace {
			t.Errorf("%s in namespace %q: %s", q, q.Namespace, q.Query)
		}
	}
	if len(reads) < 2 {
		t.Errorf("%v", reads)
	}
}

// TestOverrideWithoutRight says which right is missing, reads the Secret once it has it, and reads it no more without the override.
func TestOverrideWithoutRight(t *testing.T) {
	e := newEnv(t, 1)
	e.createClusters()
	e.writePlacement("p", e.clusters)
	_, err := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().Secrets(e.namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "passwords"}, StringData: map[string]string{e.clusters[0]: "hidden"},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	api := e.client.WorkwireV1alpha1().WorkOverrides(e.namespace)
	_, err = api.Create(t.Context(), newOverride(t, "set",
		`[{patches: [{target: {kind: ConfigMap}, json: [{op: replace, path: /data/value, secret: {name: passwords}}]}]}]`), metav1.CreateOptions{})
	kit.NoError(t, err)
	var granted atomic.Bool
	r := e.startWith(func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		if strings.Contains(request.URL.Path, "/secrets") && !granted.Load() {
			request = request.Clone(request.Context())
			request.Header.Set("Impersonate-User", "nobody")
		}
		return next.RoundTrip(request)
	})
	e.createSet(newSet("p"))
	kit.Eventually(t, "the set says which right is missing", func() error {
		return e.isCondition("set", "OverridesRendered", metav1.ConditionFalse, "the hub may not read Secret passwords: grant it get, list and watch of it")
	})
	granted.Store(true)
	e.awaitValues("set", "c01=hidden")
	kit.NoError(t, api.Delete(t.Context(), "values", metav1.DeleteOptions{}))
	e.awaitValues("set", "c01=2")
	key := watchedvalues.Key{Namespace: e.namespace, Reference: overrides.Reference{Kind: overrides.Secret, Name: "passwords"}}
	if _, _, _, known := r.values.Get(key); known {
		t.Error("the Secret is still watched")
	}
}

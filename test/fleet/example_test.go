package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/examples"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// clock is the time of rollouts.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// gate holds specs back, unanswered, until it is open.
type gate struct {
	mu   sync.Mutex
	open bool
	held []*wire.Spec
}

// holds keeps spec unless the gate is open, and reports whether it does.
func (g *gate) holds(spec *wire.Spec) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		g.held = append(g.held, spec)
	}
	return !g.open
}

// opens opens the gate, and returns the specs that it held.
func (g *gate) opens() []*wire.Spec {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	return g.held
}

// register announces clusters, waits until they are registered and available, and labels them.
func (w *fleet) register(agents *agents, prefix string, n int, labels func(i int) string) []wire.ClusterName {
	w.Helper()
	names := w.come(agents, prefix, n)
	for i, name := range names {
		if _, err := w.client.ClusterV1().ManagedClusters().Patch(w.Context(), string(name), types.MergePatchType,
			[]byte(`{"metadata":{"labels":`+labels(i)+`}}`), metav1.PatchOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	w.Cleanup(func() {
		for _, name := range names {
			if err := w.client.ClusterV1().ManagedClusters().Delete(context.Background(), string(name), metav1.DeleteOptions{}); err != nil {
				w.Error(err)
			}
		}
	})
	return names
}

// example reads one of examples/replicaset.
func example(t *testing.T, name string, into any) {
	t.Helper()
	text, err := examples.Files.ReadFile("replicaset/" + name + ".yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	kit.NoError(t, err)
}

// printed is the status in the documentation of ManifestWorkReplicaSet.
const printed = `PlacementVerified True AsExpected
PlacementRolledOut False Progressing
ManifestworkApplied True AsExpected
placement-rollout-all: 1 (10 / 10 clusters applied): total 10 applied 10 available 10 progressing 0 degraded 0
placement-rollout-progressive: 3 (20 / 30 clusters applied): total 20 applied 20 available 20 progressing 0 degraded 0
placement-rollout-progressive-per-group: 4 (15 / 20 clusters applied): total 15 applied 15 available 15 progressing 0 degraded 0
total 45 applied 45 available 45 progressing 0 degraded 0`

func text(status *workv1alpha1.ManifestWorkReplicaSetStatus) string {
	var lines []string
	for _, kind := range []string{"PlacementVerified", "PlacementRolledOut", "ManifestworkApplied"} {
		if c := meta.FindStatusCondition(status.Conditions, kind); c != nil {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Type, c.Status, c.Reason, c.Message)))
		}
	}
	sum := func(s workv1alpha1.ManifestWorkReplicaSetSummary) string {
		return fmt.Sprintf("total %d applied %d available %d progressing %d degraded %d", s.Total, s.Applied, s.Available, s.Progressing, s.Degraded)
	}
	for _, p := range status.PlacementsSummary {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", p.Name, p.AvailableDecisionGroups, sum(p.Summary)))
	}
	return strings.Join(append(lines, sum(status.Summary)), "\n")
}

// seen collects the statuses that a set has had, as text.
type seen struct {
	mu    sync.Mutex
	texts []string
}

func (s *seen) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.texts, text) {
		s.texts = append(s.texts, text)
	}
}

func (s *seen) check(want string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.texts, want) {
		return nil
	}
	return fmt.Errorf("seen were:\n%s\nwant:\n%s", strings.Join(s.texts, "\n\n"), want)
}

// observe collects the statuses of all sets of a namespace.
func (w *fleet) observe(namespace string) *seen {
	w.Helper()
	s := &seen{}
	watch, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(namespace).Watch(w.Context(), metav1.ListOptions{})
	kit.NoError(w, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watch.ResultChan() {
			if set, ok := event.Object.(*workv1alpha1.ManifestWorkReplicaSet); ok {
				s.add(text(&set.Status))
			}
		}
	}()
	w.Cleanup(func() { watch.Stop(); <-done })
	return s
}

// touch changes a set, so that the hub reconciles it.
func (w *fleet) touch(namespace, name string, at time.Time) {
	w.Helper()
	if _, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(namespace).Patch(w.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"touched":"%d"}}}`, at.Unix()), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// TestReplicaSetExample runs the unchanged example of the documentation on 30 clusters in three
// placements, which the hub's own controller decides: it reaches the documented status, and then
// completes.
func TestReplicaSetExample(t *testing.T) {
	w := newFleet(t, "sets")
	var requests kit.Requests
	clk := &clock{}
	w.hub(&requests, func(c *hub.Config) { c.AutoRegister, c.AutoAccept, c.Now = true, true, clk.now })
	perGroup := &gate{}
	agents := w.agents(func(spec *wire.Spec) *workv1.ManifestWorkStatus {
		if spec.Meta.Labels[workv1.PlacementNameLabelKey] == "placement-rollout-progressive-per-group" && perGroup.holds(spec) {
			return nil
		}
		return well(spec)
	})
	w.register(agents, "set", 30, func(i int) string {
		return fmt.Sprintf(`{"canary":%q}`, []string{"west", "east", "none"}[i/10])
	})
	plane.CreateNamespace(t, "ocm-ns")
	binding := &clusterv1beta2.ManagedClusterSetBinding{}
	example(t, "cluster-set-binding", binding)
	if _, err := w.client.ClusterV1beta2().ManagedClusterSetBindings("ocm-ns").Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	statuses := w.observe("ocm-ns")
	for _, name := range []string{"placement-rollout-all", "placement-rollout-progressive", "placement-rollout-progressive-per-group"} {
		placement := &clusterv1beta1.Placement{}
		example(t, name, placement)
		if _, err := w.client.ClusterV1beta1().Placements("ocm-ns").Create(w.Context(), placement, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	example(t, "mwrset-cronjob", set)
	if _, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets("ocm-ns").Create(w.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.counts(set.Name, 10, 10, 5)
	clk.advance(5*time.Minute + time.Second) // minSuccessTime of the first canaries
	w.touch("ocm-ns", set.Name, clk.now())
	w.counts(set.Name, 10, 20, 5)
	w.available(set.Name, "placement-rollout-progressive", 20)
	for _, spec := range perGroup.opens() {
		agents.answer(w.Context(), spec)
	}
	w.counts(set.Name, 10, 20, 20)
	w.eventually("the printed status was seen", func() error { return statuses.check(printed) })

	clk.advance(5*time.Minute + time.Second)
	w.touch("ocm-ns", set.Name, clk.now())
	w.counts(set.Name, 10, 30, 20)
	end := strings.NewReplacer(
		"RolledOut False Progressing", "RolledOut True Complete",
		"(20 / 30 clusters applied): total 20 applied 20 available 20", "(30 / 30 clusters applied): total 30 applied 30 available 30",
		"(15 / 20 clusters applied): total 15 applied 15 available 15", "(20 / 20 clusters applied): total 20 applied 20 available 20",
		"total 45 applied 45 available 45", "total 60 applied 60 available 60").Replace(printed)
	w.eventually("the rollout ends", func() error { return statuses.check(end) })

	kit.NoError(t, w.client.WorkV1alpha1().ManifestWorkReplicaSets("ocm-ns").Delete(w.Context(), set.Name, metav1.DeleteOptions{}))
	w.counts(set.Name, 0, 0, 0)
}

// counts waits until the placements of the example have these numbers of works.
func (w *fleet) counts(set string, all, progressive, perGroup int) {
	w.Helper()
	want := fmt.Sprint(all, progressive, perGroup)
	w.eventually("the works are "+want, func() error {
		got := map[string]int{}
		for _, work := range w.works("ocm-ns." + set) {
			got[work.Labels[workv1.PlacementNameLabelKey]]++
		}
		have := fmt.Sprint(got["placement-rollout-all"], got["placement-rollout-progressive"], got["placement-rollout-progressive-per-group"])
		if have != want {
			return fmt.Errorf("they are %s", have)
		}
		return nil
	})
}

func (w *fleet) works(set string) []workv1.ManifestWork {
	w.Helper()
	list, err := w.client.WorkV1().ManifestWorks("").List(w.Context(), metav1.ListOptions{LabelSelector: workv1.ReplicaSetLabelKey + "=" + set})
	kit.NoError(w, err)
	return list.Items
}

// available waits until that many works of a placement are available.
func (w *fleet) available(set, placement string, want int) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d works of %s are available", want, placement), func() error {
		have := 0
		for _, work := range w.works("ocm-ns." + set) {
			if work.Labels[workv1.PlacementNameLabelKey] == placement && meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkAvailable) {
				have++
			}
		}
		if have != want {
			return fmt.Errorf("%d are", have)
		}
		return nil
	})
}

// TestFailingClusterStopsARollout: a rollout in steps of two that tolerates one failure stops at
// the second; the status names both.
func TestFailingClusterStopsARollout(t *testing.T) {
	w := newFleet(t, "stops")
	var requests kit.Requests
	w.hub(&requests, func(c *hub.Config) { c.AutoRegister, c.AutoAccept = true, true })
	agents := w.agents(func(spec *wire.Spec) *workv1.ManifestWorkStatus {
		status := well(spec)
		if c := meta.FindStatusCondition(status.Conditions, workv1.WorkApplied); c != nil && (spec.Cluster == "stop-02" || spec.Cluster == "stop-03") {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, workv1.ReasonAppliedManifestWorkFailed, "Failed to apply manifest work"
		}
		return status
	})
	w.register(agents, "stop", 8, func(int) string { return `{"fleet":"stop"}` })
	plane.CreateNamespace(t, "stop-ns")
	w.bindAll("stop-ns")
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "stop-ns", Name: "stop"}}
	placement.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
		LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "stop"}},
	}}}
	if _, err := w.client.ClusterV1beta1().Placements("stop-ns").Create(w.Context(), placement, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "stop-ns", Name: "stops"}}
	set.Spec.ManifestWorkTemplate = work("x", "x").Spec
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "stop", RolloutStrategy: progressive(t, `
rolloutType: Progressive
progressive: {maxConcurrency: 2, maxFailures: 1}`)}}
	if _, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets("stop-ns").Create(w.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the status names the clusters that failed", func() error {
		now, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets("stop-ns").Get(w.Context(), set.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(now.Status.Conditions, "PlacementRolledOut")
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "stop-02") || !strings.Contains(c.Message, "stop-03") {
			return fmt.Errorf("the condition is %+v of %s", c, text(&now.Status))
		}
		return nil
	})
	if n := len(w.works("stop-ns.stops")); n > 4 {
		t.Errorf("%d clusters got the template, 2 of which failed at 1 allowed", n)
	}
	kit.NoError(t, w.client.WorkV1alpha1().ManifestWorkReplicaSets("stop-ns").Delete(w.Context(), set.Name, metav1.DeleteOptions{}))
	w.eventually("its works are gone", func() error {
		if n := len(w.works("stop-ns.stops")); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

func progressive(t *testing.T, text string) (s clusterv1alpha1.RolloutStrategy) {
	t.Helper()
	kit.NoError(t, yaml.UnmarshalStrict([]byte(text), &s))
	return s
}

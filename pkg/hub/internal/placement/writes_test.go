package placement_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned/scheme"
	"github.com/workwire/workwire/test/kit"
)

// Clusters that move between decisions are in both for a while, and always in at least one.
func TestClustersMoveBetweenDecisions(t *testing.T) {
	e := newEnv(t)
	first := e.start(nil)
	for name, group := range map[string]string{"a": "1", "b": "1", "c": "2", "d": "2"} {
		e.createCluster(name, label("group", group))
	}
	e.createPlacement("p", func(p *clusterv1beta1.Placement) {
		p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups = []clusterv1beta1.DecisionGroup{
			{GroupName: "one", ClusterSelector: selecting("group", "1")}, {GroupName: "two", ClusterSelector: selecting("group", "2")},
		}
	})
	e.await("p", "0/one: a b; 1/two: c d")
	first.stop()
	e.updateCluster("b", label("group", "2"))
	e.updateCluster("c", label("group", "1"))

	client := e.client.ClusterV1beta1().PlacementDecisions(e.namespace)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	watch, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	kit.NoError(t, err)
	defer watch.Stop()
	second := e.start(nil)
	e.await("p", "0/one: a c; 1/two: b d")
	if got := second.writes(e.namespace); len(got) != 4 { // the status of the placement stays as it is
		t.Errorf("%d writes: %v", len(got), got)
	}
	held := map[string]clusterv1beta1.PlacementDecision{}
	for _, d := range list.Items {
		held[d.Name] = d
	}
	for range 4 {
		event := <-watch.ResultChan()
		d, ok := event.Object.(*clusterv1beta1.PlacementDecision)
		if !ok {
			t.Fatalf("%+v", event)
		}
		held[d.Name] = *d
		listed := map[string]bool{}
		for _, d := range held {
			for _, decision := range d.Status.Decisions {
				listed[decision.ClusterName] = true
			}
		}
		if len(listed) != 4 {
			t.Errorf("after %s there are only %v", d.Name, listed)
		}
	}
}

// Until its informer shows its own writes, the controller neither repeats them nor chooses
// differently.
func TestWatchOfDecisionsIsBehind(t *testing.T) {
	e := newEnv(t)
	c := e.start(nil)
	e.createCluster("b")
	e.createPlacement("all")
	e.await("all", "0/: b")
	release := c.hold("placementdecisions")
	defer release()
	adds := func() float64 { return c.metric("workwire_queue_adds_total") }
	before := adds()
	e.createPlacement("p", number(1))
	e.await("p", "0/: b")
	e.createCluster("a") // a different choice without the previous one
	kit.True(t, "the placement is reconciled again", func() bool {
		return adds() >= before+3 && c.metric("workwire_queue_depth") == 0
	})
	release()
	e.await("all", "0/: a b")
	e.await("p", "0/: b")
	if got := c.evaluations("failed", "conflict"); got != 0 {
		t.Errorf("%v reconciles failed", got)
	}
}

// Decisions of a Placement that the informer does not show yet are no orphans.
func TestWatchOfPlacementsIsBehind(t *testing.T) {
	e := newEnv(t)
	c := e.start(nil)
	e.createCluster("a")
	release := c.hold("placements")
	defer release()
	p := e.createPlacement("p")
	controller := true
	decisions := e.client.ClusterV1beta1().PlacementDecisions(e.namespace)
	made, err := decisions.Create(t.Context(), &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.namespace, Name: "p-decision-7", Labels: map[string]string{clusterv1beta1.PlacementLabel: "p"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: clusterv1beta1.GroupVersion.String(), Kind: "Placement", Name: "p", UID: p.UID, Controller: &controller,
		}},
	}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	kit.True(t, "the controller reads the placement", func() bool { return c.asked("get placements", e.namespace, "p") })
	release()
	e.await("p", "0/: a")
	if d := e.decisions("p"); len(d) != 1 || d[0].UID != made.UID || c.asked("delete placementdecisions", e.namespace, made.Name) {
		t.Errorf("%+v", d)
	}
}

// Up-to-date objects are not written, also after a restart.
func TestUnchangedCostsNoWrites(t *testing.T) {
	e := newEnv(t)
	first := e.start(nil)
	for i := range 5 {
		e.createCluster(fmt.Sprint(i))
	}
	e.createPlacement("all")
	e.await("all", "0/: 0 1 2 3 4") // the informer has all clusters
	base := len(first.writes(e.namespace))
	const placements = 20
	for i := range placements {
		e.createPlacement(fmt.Sprintf("p%d", i), number(3))
		e.await(fmt.Sprintf("p%d", i), "0/: 0 1 2")
	}
	// Create, its status, and the status of the placement.
	if got := first.writes(e.namespace)[base:]; len(got) != 3*placements {
		t.Errorf("%d writes, want %d: %v", len(got), 3*placements, got)
	}

	awaitIdle := func(c *running) {
		t.Helper()
		last, since := c.evaluations(), time.Now()
		kit.True(t, "no further reconciles", func() bool {
			if now := c.evaluations(); now != last {
				last, since = now, time.Now()
			}
			return last >= placements && time.Since(since) > 500*time.Millisecond
		})
	}
	awaitIdle(first)
	before := first.evaluations()
	for i := range 50 { // an agent sends a message
		e.updateCluster("0", func(c *clusterv1.ManagedCluster) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.LastSeenAnnotationKey, fmt.Sprint(i))
		})
	}
	e.updateCluster("0", label("nobody", "selects-it"))
	awaitIdle(first)
	if got := first.evaluations(); got != before {
		t.Errorf("%v reconciles for changes that affect no placement", got-before)
	}
	first.stop()

	second := e.start(nil)
	awaitIdle(second)
	if got := second.writes(e.namespace); len(got) > 0 {
		t.Errorf("after a restart: %v", got)
	}
	if n := second.metric("workwire_hub_placement_placements"); n < placements || n != second.metric("workwire_hub_placement_satisfied_placements") {
		t.Errorf("%v placements, %v satisfied", n, second.metric("workwire_hub_placement_satisfied_placements"))
	}
}

// Many changes at once cause few reconciles.
func TestChangesCoalesce(t *testing.T) {
	e := newEnv(t)
	c := e.start(nil)
	e.createPlacement("p")
	e.await("p", "0/:")
	since, before := time.Now(), c.evaluations()
	var names string
	for i := range 90 {
		e.createCluster(fmt.Sprintf("c%02d", i))
		names += fmt.Sprintf(" c%02d", i)
	}
	e.await("p", "0/:"+names)
	took := time.Since(since)
	// Ten per second, and those that had started.
	if got, most := c.evaluations()-before, took.Seconds()*10+2; got > most {
		t.Errorf("%v reconciles in %s", got, took)
	}
}

// Changes of decisions by others are reverted.
func TestRepair(t *testing.T) {
	e := newEnv(t)
	e.start(nil)
	e.createCluster("a")
	e.createPlacement("p")
	e.await("p", "0/: a")
	decisions := e.client.ClusterV1beta1().PlacementDecisions(e.namespace)
	kit.NoError(t, decisions.Delete(t.Context(), "p-decision-1", metav1.DeleteOptions{}))
	e.await("p", "0/: a")
	d := e.decisions("p")[0]
	d.Labels = map[string]string{"mine": "kept"}
	if _, err := decisions.Update(t.Context(), &d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.await("p", "0/: a")
	if d := e.decisions("p")[0]; d.Labels["mine"] != "kept" {
		t.Errorf("labels %v", d.Labels)
	}
	d = e.decisions("p")[0]
	d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: "intruder"})
	if _, err := decisions.UpdateStatus(t.Context(), &d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.True(t, "the intruder is gone", func() bool { return e.chosen("p") == "0/: a" })

	// A decision of others with the next name stays unchanged.
	other := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "q-decision-1"}}
	if _, err := decisions.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.createPlacement("q")
	e.await("q", "0/: a")
	if got := e.placement("q").Status.DecisionGroups[0].Decisions; !slices.Equal(got, []string{"q-decision-2"}) {
		t.Errorf("decisions %v", got)
	}
}

// A write that fails is retried.
func TestFailuresAreRetried(t *testing.T) {
	e := newEnv(t)
	c := e.start(nil)
	e.createCluster("b")
	e.createCluster("c")
	e.createPlacement("p", number(2))
	e.await("p", "0/: b c")
	for _, resource := range []string{"placementdecisions/status", "placements/status"} {
		failed := c.evaluations("failed")
		c.fail("update " + resource)
		e.updatePlacement("p", number(1))
		kit.True(t, "a failure", func() bool { return c.evaluations("failed") > failed+1 })
		c.fail("")
		e.await("p", "0/: b")
		e.updatePlacement("p", number(2))
		e.await("p", "0/: b c")
	}
	c.fail("create placementdecisions")
	e.createPlacement("q")
	kit.True(t, "a failure", func() bool { return c.metric("workwire_hub_placement_writes_total", "write=failed") > 4 })
	c.fail("")
	e.await("q", "0/: b c")
}

func TestEvents(t *testing.T) {
	e := newEnv(t)
	core := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1()
	broadcaster := record.NewBroadcaster(record.WithContext(t.Context()))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("")})
	e.start(broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "work-hub"}))
	e.createCluster("a")
	e.createPlacement("p")
	e.await("p", "0/: a")
	e.updatePlacement("p", func(p *clusterv1beta1.Placement) {
		p.Spec.Predicates[0].RequiredClusterSelector = selecting("c d", "e")
	})
	for reason, want := range map[string]struct{ kind, text string }{
		"DecisionUpdate": {"Normal", "1 clusters selected in 1 decision groups; added: " + e.namespace + "-a"},
		"Misconfigured":  {"Warning", "The spec is invalid, decisions are unchanged: spec.predicates[0]"},
	} {
		kit.True(t, "an event "+reason, func() bool {
			events, err := core.Events(e.namespace).List(context.Background(), metav1.ListOptions{})
			kit.NoError(t, err)
			return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return e.Reason == reason && e.Type == want.kind && strings.HasPrefix(e.Message, want.text) &&
					e.InvolvedObject.Kind == "Placement" && e.InvolvedObject.Name == "p"
			})
		})
	}
}

// Reconciles do not fail when the namespace is deleted.
func TestNamespaceDeletion(t *testing.T) {
	e := newEnv(t)
	c := e.start(nil)
	namespaces := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().Namespaces()
	e.createCluster("a")
	e.createPlacement("p")
	e.await("p", "0/: a")
	kit.NoError(t, namespaces.Delete(t.Context(), e.namespace, metav1.DeleteOptions{}))
	kit.True(t, "placement and decisions are deleted", func() bool {
		_, err := e.client.ClusterV1beta1().Placements(e.namespace).Get(t.Context(), "p", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && len(e.decisions("p")) == 0
	})
	if got := c.evaluations("failed"); got != 0 {
		t.Errorf("%v failures", got)
	}
}

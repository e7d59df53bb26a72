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
)

// Clusters that change places are in both for a while, in none never.
func TestClustersChangePlaces(t *testing.T) {
	w := newWorld(t)
	first := w.serve(nil)
	for name, group := range map[string]string{"a": "1", "b": "1", "c": "2", "d": "2"} {
		w.join(name, label("group", group))
	}
	w.place("p", func(p *clusterv1beta1.Placement) {
		p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups = []clusterv1beta1.DecisionGroup{
			{GroupName: "one", ClusterSelector: selecting("group", "1")}, {GroupName: "two", ClusterSelector: selecting("group", "2")},
		}
	})
	w.await("p", "0/one: a b; 1/two: c d")
	first.stop()
	w.cluster("b", label("group", "2"))
	w.cluster("c", label("group", "1"))

	client := w.client.ClusterV1beta1().PlacementDecisions(w.namespace)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	second := w.serve(nil)
	w.await("p", "0/one: a c; 1/two: b d")
	if got := second.writes(w.namespace); len(got) != 4 { // the status of the placement stays as it is
		t.Errorf("%d writes: %q", len(got), got)
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

// While the controller does not see yet what it has written, it neither writes
// nor chooses once more.
func TestWatchOfDecisionsIsBehind(t *testing.T) {
	w := newWorld(t)
	c := w.serve(nil)
	w.join("b")
	w.place("all")
	w.await("all", "0/: b")
	release := c.hold("placementdecisions")
	defer release()
	adds := func() float64 { return c.metric(t, "workwire_queue_adds_total") }
	before := adds()
	w.place("p", number(1))
	w.await("p", "0/: b")
	w.join("a") // another choice, if there was none before
	w.eventually("it is looked at again", func() bool {
		return adds() >= before+3 && c.metric(t, "workwire_queue_depth") == 0
	})
	release()
	w.await("all", "0/: a b")
	w.await("p", "0/: b")
	if got := c.metric(t, "workwire_hub_placement_evaluations_total", "failed", "conflict"); got != 0 {
		t.Errorf("%v looks failed", got)
	}
}

// Decisions of a Placement that the controller has not heard of yet are not those
// of one that is no more.
func TestWatchOfPlacementsIsBehind(t *testing.T) {
	w := newWorld(t)
	c := w.serve(nil)
	w.join("a")
	release := c.hold("placements")
	defer release()
	p := w.place("p")
	controller := true
	decisions := w.client.ClusterV1beta1().PlacementDecisions(w.namespace)
	made, err := decisions.Create(t.Context(), &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: "p-decision-7", Labels: map[string]string{clusterv1beta1.PlacementLabel: "p"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: clusterv1beta1.GroupVersion.String(), Kind: "Placement", Name: "p", UID: p.UID, Controller: &controller,
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("the controller asks for the placement", func() bool { return c.asked("get placements", "p") })
	release()
	w.await("p", "0/: a")
	if d := w.decisions("p"); len(d) != 1 || d[0].UID != made.UID || c.asked("delete placementdecisions", made.Name) {
		t.Errorf("%+v", d)
	}
}

// What is as it should be is not written, not after a restart either.
func TestUnchangedCostsNoWrites(t *testing.T) {
	w := newWorld(t)
	first := w.serve(nil)
	for i := range 5 {
		w.join(fmt.Sprint(i))
	}
	w.place("all")
	w.await("all", "0/: 0 1 2 3 4") // the controller knows all clusters
	base := len(first.writes(w.namespace))
	const placements = 20
	for i := range placements {
		w.place(fmt.Sprintf("p%d", i), number(3))
		w.await(fmt.Sprintf("p%d", i), "0/: 0 1 2")
	}
	// Create, its status, and the status of the placement.
	if got := first.writes(w.namespace)[base:]; len(got) != 3*placements {
		t.Errorf("%d writes, want %d: %q", len(got), 3*placements, got)
	}

	evaluations := func(c *controller) float64 { return c.metric(t, "workwire_hub_placement_evaluations_total") }
	settled := func(c *controller) {
		t.Helper()
		last, since := evaluations(c), time.Now()
		w.eventually("nothing is looked at any more", func() bool {
			if now := evaluations(c); now != last {
				last, since = now, time.Now()
			}
			return last >= placements && time.Since(since) > 500*time.Millisecond
		})
	}
	settled(first)
	before := evaluations(first)
	for i := range 50 { // an agent is heard from
		w.cluster("0", func(c *clusterv1.ManagedCluster) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.LastSeenAnnotationKey, fmt.Sprint(i))
		})
	}
	w.cluster("0", label("nobody", "selects-it"))
	settled(first)
	if got := evaluations(first); got != before {
		t.Errorf("%v looks for what concerns no placement", got-before)
	}
	first.stop()

	second := w.serve(nil)
	settled(second)
	if got := second.writes(w.namespace); len(got) > 0 {
		t.Errorf("after a restart: %q", got)
	}
	if n := second.metric(t, "workwire_hub_placement_placements"); n < placements || n != second.metric(t, "workwire_hub_placement_satisfied_placements") {
		t.Errorf("%v placements, %v satisfied", n, second.metric(t, "workwire_hub_placement_satisfied_placements"))
	}
}

// Many changes at once cost few looks.
func TestChangesCoalesce(t *testing.T) {
	w := newWorld(t)
	c := w.serve(nil)
	w.place("p")
	w.await("p", "0/:")
	since, before := time.Now(), c.metric(t, "workwire_hub_placement_evaluations_total")
	var names string
	for i := range 90 {
		w.join(fmt.Sprintf("c%02d", i))
		names += fmt.Sprintf(" c%02d", i)
	}
	w.await("p", "0/:"+names)
	took := time.Since(since)
	// Ten a second, and what was begun before.
	if got, most := c.metric(t, "workwire_hub_placement_evaluations_total")-before, took.Seconds()*10+2; got > most {
		t.Errorf("%v looks in %s", got, took)
	}
}

// What others do to decisions is put right.
func TestRepair(t *testing.T) {
	w := newWorld(t)
	w.serve(nil)
	w.join("a")
	w.place("p")
	w.await("p", "0/: a")
	decisions := w.client.ClusterV1beta1().PlacementDecisions(w.namespace)
	if err := decisions.Delete(t.Context(), "p-decision-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("p", "0/: a")
	d := w.decisions("p")[0]
	d.Labels = map[string]string{"mine": "kept"}
	if _, err := decisions.Update(t.Context(), &d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("p", "0/: a")
	if d := w.decisions("p")[0]; d.Labels["mine"] != "kept" {
		t.Errorf("labels %v", d.Labels)
	}
	d = w.decisions("p")[0]
	d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: "intruder"})
	if _, err := decisions.UpdateStatus(t.Context(), &d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the intruder is gone", func() bool { return w.chosen("p") == "0/: a" })

	// A name that somebody else uses is let be.
	other := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "q-decision-1"}}
	if _, err := decisions.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.place("q")
	w.await("q", "0/: a")
	if got := w.get("q").Status.DecisionGroups[0].Decisions; !slices.Equal(got, []string{"q-decision-2"}) {
		t.Errorf("decisions %v", got)
	}
}

// A write that fails is made up for.
func TestFailuresAreTriedAgain(t *testing.T) {
	w := newWorld(t)
	c := w.serve(nil)
	w.join("b")
	w.join("c")
	w.place("p", number(2))
	w.await("p", "0/: b c")
	for _, resource := range []string{"placementdecisions/status", "placements/status"} {
		failed := c.metric(t, "workwire_hub_placement_evaluations_total", "failed")
		c.fail("update " + resource)
		w.placement("p", number(1))
		w.eventually("a failure", func() bool { return c.metric(t, "workwire_hub_placement_evaluations_total", "failed") > failed+1 })
		c.fail("")
		w.await("p", "0/: b")
		w.placement("p", number(2))
		w.await("p", "0/: b c")
	}
	c.fail("create placementdecisions")
	w.place("q")
	w.eventually("a failure", func() bool { return c.metric(t, "workwire_hub_placement_writes_total", "failed") > 4 })
	c.fail("")
	w.await("q", "0/: b c")
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	core := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1()
	broadcaster := record.NewBroadcaster(record.WithContext(t.Context()))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("")})
	w.serve(broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "work-hub"}))
	w.join("a")
	w.place("p")
	w.await("p", "0/: a")
	w.placement("p", func(p *clusterv1beta1.Placement) { p.Spec.ClusterSets = []string{"shops"} })
	for reason, want := range map[string]struct{ kind, text string }{
		"DecisionUpdate": {"Normal", "1 clusters chosen, in 1 decision groups; added: " + w.namespace + "-a"},
		"Misconfigured":  {"Warning", "The spec can not be followed, the decisions stay as they were: spec.clusterSets: "},
	} {
		w.eventually("an event "+reason, func() bool {
			events, err := core.Events(w.namespace).List(context.Background(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return e.Reason == reason && e.Type == want.kind && strings.HasPrefix(e.Message, want.text) &&
					e.InvolvedObject.Kind == "Placement" && e.InvolvedObject.Name == "p"
			})
		})
	}
}

// A hub whose namespace goes gives up in peace.
func TestNamespaceThatGoes(t *testing.T) {
	w := newWorld(t)
	c := w.serve(nil)
	namespaces := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().Namespaces()
	w.join("a")
	w.place("p")
	w.await("p", "0/: a")
	if err := namespaces.Delete(t.Context(), w.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("everything in it is gone", func() bool {
		_, err := w.client.ClusterV1beta1().Placements(w.namespace).Get(t.Context(), "p", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && len(w.decisions("p")) == 0
	})
	if got := c.metric(t, "workwire_hub_placement_evaluations_total", "failed"); got != 0 {
		t.Errorf("%v failures", got)
	}
}

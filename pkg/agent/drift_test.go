package agent_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/test/kit"
)

// TestOneWriteForEachForeignChange: a foreign change costs one write, and none if the strategy
// leaves the object to others.
func TestOneWriteForEachForeignChange(t *testing.T) {
	w, works := start(t)
	work := w.work("web", configMap("updated", "1"), configMap("created", "1"), configMap("applied", "1"))
	for name, strategy := range map[string]*workv1.UpdateStrategy{
		"created": {Type: workv1.UpdateStrategyTypeCreateOnly},
		"applied": {Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: &workv1.ServerSideApplyConfig{Force: true}},
	} {
		work.Spec.ManifestConfigs = append(work.Spec.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: w.namespace, Name: name}, UpdateStrategy: strategy,
		})
	}
	w.Create(works, work)
	w.Is(works, "web", "Available=True")
	w.names("web")
	w.requests.Take(kit.NotWatch)
	w.patch("created", `{"data":{"k":"theirs"}}`)
	w.patch("updated", `{"data":{"k":"theirs"}}`)
	w.data("updated", "1")
	w.patch("applied", `{"data":{"k":"theirs"}}`)
	w.data("applied", "1")
	w.data("created", "theirs")
	if got := w.requests.Take(kit.NotWatch, notEvent); len(got) != 2 {
		t.Errorf("%d requests for 2 changes to undo: %v", len(got), got)
	}
}

// notEvent reports whether a request is not about an Event: those come later than what they tell.
func notEvent(r kit.Request) bool { return r.Resource != "events" }

// TestDriftIsTold: a change, or a deletion, that is undone leaves one event and counts once, and costs
// no request but the write and the event.
func TestDriftIsTold(t *testing.T) {
	w := newWorld(t)
	works, registry := w.source("hub1"), prometheus.NewRegistry()
	w.agent(func(c *agent.Config) { c.Registerer = registry })
	w.deploy(works, "web", configMap("changed", "1"), configMap("deleted", "1"))
	w.names("web")
	w.requests.Take()
	w.patch("changed", `{"data":{"k":"theirs"}}`)
	w.data("changed", "1")
	w.told("changed", `Normal DriftRepaired 1 Restored /data/k, which was changed: ManifestWork "web" declares it`)
	w.deleteConfigMap("deleted")
	w.data("deleted", "1")
	w.told("deleted", `Normal DriftRepaired 1 Created the object again, which was deleted: ManifestWork "web" declares it`)
	// Events are sent in order, so that a second one about the first object would be there.
	w.told("changed", `Normal DriftRepaired 1 Restored /data/k, which was changed: ManifestWork "web" declares it`)
	for _, action := range []string{"created", "updated"} {
		if got := kit.Metric(t, registry, "workwire_agent_repairs_total", "action="+action); got != 1 {
			t.Errorf("%v repairs are counted as %s", got, action)
		}
	}
	want := map[string]int{"update configmaps": 1, "create configmaps": 1, "create events": 2}
	if got := w.requests.TakeCounts(kit.NotWatch, kit.On("configmaps", "events")); !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}

// told waits until the events about a ConfigMap are want: type, reason, count and message of each.
func (w *fixture) told(name string, want ...string) {
	w.Helper()
	kit.Eventually(w, "the events about "+name, func() error {
		list, err := w.cluster.CoreV1().Events(w.namespace).List(w.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=ConfigMap,involvedObject.name=" + name})
		if err != nil {
			return err
		}
		var got []string
		for _, e := range list.Items {
			if e.InvolvedObject.UID == "" || e.Source.Component != "work-agent" {
				return fmt.Errorf("an event of %+v about %+v", e.Source, e.InvolvedObject)
			}
			got = append(got, fmt.Sprint(e.Type, " ", e.Reason, " ", e.Count, " ", e.Message))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// TestFlappingNamesBoth: two actors write one field. The agent backs off, and condition, cause, metric
// and events name both; events are few.
func TestFlappingNamesBoth(t *testing.T) {
	const changed = `ManifestWork "web" sets /data/k, which is undone again and again by field manager "rival"`
	const deleted = `ManifestWork "web" creates the object, which is deleted again and again by another actor`
	for name, c := range map[string]struct {
		undo func(context.Context, *fixture) error
		want string
	}{
		"changes": {func(ctx context.Context, w *fixture) error {
			_, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"k":"theirs"}}`), metav1.PatchOptions{FieldManager: "rival"})
			return err
		}, changed},
		"deletes": {func(ctx context.Context, w *fixture) error {
			err := w.cluster.CoreV1().ConfigMaps(w.namespace).Delete(ctx, "a", metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) { // the event of its own deletion
				return nil
			}
			return err
		}, deleted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			works, registry := w.source("hub1"), prometheus.NewRegistry()
			w.agent(func(c *agent.Config) { c.Registerer = registry })
			w.deploy(works, "web", configMap("a", "1"), configMap("b", "1"))
			ctx, stop := context.WithCancel(w.Context())
			defer stop()
			kit.Run(w, "rival", func(context.Context) error {
				return w.fight(ctx, "a", func(ctx context.Context) error { return c.undo(ctx, w) })
			})
			w.manifestSays(works, "web", 0, c.want)
			work := w.Is(works, "web", "Applied=False")
			if applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); applied.Reason != workv1.ReasonFlapping ||
				applied.Message != "Others undo again and again what was applied; see Applied of 1 of 2 manifests" {
				t.Errorf("the work has %s %q", applied.Reason, applied.Message)
			}
			if b := workstate.Of(work, nil).Blocker; b == nil || b.Cause != workstate.Flapping || !strings.Contains(b.Message, c.want) {
				t.Errorf("the blocker is %+v", b)
			}
			kit.True(t, "the metric counts the object", func() bool { return kit.Metric(t, registry, "workwire_agent_objects_flapping") == 1 })
			kit.True(t, "an event names both", func() bool {
				events, err := w.cluster.CoreV1().Events(w.namespace).List(w.Context(), metav1.ListOptions{FieldSelector: "reason=Flapping"})
				return err == nil && len(events.Items) > 0 && events.Items[0].Type == corev1.EventTypeWarning && strings.Contains(events.Items[0].Message, c.want)
			})
			stop()
			w.data("a", "1")
			// The last repair is counted after it was written.
			kit.True(t, "at most one request about events for each repair", func() bool {
				return float64(len(w.requests.All(kit.On("events")))) <= kit.Metric(t, registry, "workwire_agent_repairs_total")
			})
			// A new spec resets the backoff, and ends the fight.
			w.change(works, "web", configMap("a", "2"), configMap("b", "1"))
			w.Is(works, "web", "Applied=True", "Available=True")
			w.data("a", "2")
			kit.True(t, "the metric counts none", func() bool { return kit.Metric(t, registry, "workwire_agent_objects_flapping") == 0 })
		})
	}
}

// fight undoes what the agent writes to a ConfigMap each time that it changes, until ctx ends.
func (w *fixture) fight(ctx context.Context, name string, undo func(context.Context) error) error {
	configMaps := w.cluster.CoreV1().ConfigMaps(w.namespace)
	changes, err := configMaps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for range changes.ResultChan() {
		if err := undo(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// TestReadOnlyObjects: changes of ReadOnly objects are reported, whether they are watched or
// polled.
func TestReadOnlyObjects(t *testing.T) {
	w, works := start(t)
	for _, name := range []string{"watched", "polled"} {
		w.foreign(name)
	}
	work := w.work("web", configMap("watched", ""), configMap("polled", ""), configMap("missing", ""))
	for name, scrape := range map[string]workv1.FeedbackScrapeType{
		"watched": workv1.FeedbackScrapeTypeWatch, "polled": workv1.FeedbackScrapeTypePoll, "missing": workv1.FeedbackScrapeTypeWatch,
	} {
		work.Spec.ManifestConfigs = append(work.Spec.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: w.namespace, Name: name},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}, FeedbackScrapeType: scrape,
			FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "k", Path: ".data.k"}}}},
		})
	}
	w.Create(works, work)
	got := w.Is(works, "web", "Applied=True", "Available=False")
	if c := meta.FindStatusCondition(got.Status.Conditions, workv1.WorkAvailable); c.Message != "1 of 3 resources are not available" {
		t.Errorf("Available says %q", c.Message)
	}
	for i, name := range []string{"watched", "polled"} {
		w.value(works, i, "1")
		w.patch(name, `{"data":{"k":"2"}}`)
		w.value(works, i, "2")
	}
	w.foreign("missing")
	w.Is(works, "web", "Applied=True", "Available=True")
	w.remove(works, "web")
	w.data("watched", "2")
}

// foreign creates a ConfigMap that the agent does not apply.
func (w *fixture) foreign(name string) {
	w.Helper()
	if _, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "1"},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// value waits until the single feedback value of a manifest of work web is want.
func (w *fixture) value(works workclientv1.ManifestWorkInterface, manifest int, want string) {
	w.Helper()
	kit.Await(w, works, "web", fmt.Sprintf("feeds back %q from manifest %d", want, manifest), func(work *workv1.ManifestWork) bool {
		if work == nil || len(work.Status.ResourceStatus.Manifests) <= manifest {
			return false
		}
		values := work.Status.ResourceStatus.Manifests[manifest].StatusFeedbacks.Values
		return len(values) == 1 && values[0].Value.String != nil && *values[0].Value.String == want
	})
}

// TestOneStatusForEachChange: a new spec leads to one status, and no status mixes two generations.
func TestOneStatusForEachChange(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	for generation := wire.Generation(1); generation <= 3; generation++ {
		raw.send(raw.spec("web", "uid-1", generation, configMap("a", fmt.Sprint(generation)), configMap("b", "1")), nil)
		raw.answered(fmt.Sprintf("generation %d", generation), func(s *wire.Status) bool {
			for _, c := range s.Status.Conditions {
				if c.ObservedGeneration != int64(generation) {
					t.Errorf("the status of generation %d has %s of %d", generation, c.Type, c.ObservedGeneration)
				}
			}
			if !meta.IsStatusConditionTrue(s.Status.Conditions, "Applied") || !meta.IsStatusConditionTrue(s.Status.Conditions, "Available") {
				t.Errorf("a status on the way: %+v", s.Status.Conditions)
			}
			return true
		})
	}
	// Another work's status comes after all that is said of this one.
	raw.send(raw.spec("end", "uid-2", 1, configMap("end", "1")), nil)
	raw.answered("the other work", func(s *wire.Status) bool {
		if strings.HasPrefix(string(s.UID), "uid-1") {
			t.Errorf("one more status: %+v", s.Status.Conditions)
		}
		return s.UID == "uid-2"
	})
}

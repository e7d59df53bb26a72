package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/wire"
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
	if got := w.requests.Take(kit.NotWatch); len(got) != 2 {
		t.Errorf("%d requests for 2 changes to undo: %v", len(got), got)
	}
}

// TestConflictNamesTheRival: two actors write one field. The agent backs off, and reports the other
// field manager.
func TestConflictNamesTheRival(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"))
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	kit.Run(w, "rival", func(context.Context) error { return w.fight(ctx, "a") })
	w.manifestSays(works, "web", 0, `conflict with field manager "rival", which changes /data/k again and again`)
	stop()
	w.data("a", "1")
	// A new spec resets the backoff.
	w.change(works, "web", configMap("a", "2"))
	w.Is(works, "web", "Applied=True", "Available=True")
	w.data("a", "2")
}

// fight overwrites a ConfigMap's value each time it changes, until ctx ends.
func (w *fixture) fight(ctx context.Context, name string) error {
	configMaps := w.cluster.CoreV1().ConfigMaps(w.namespace)
	changes, err := configMaps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for range changes.ResultChan() {
		_, err := configMaps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"k":"theirs"}}`), metav1.PatchOptions{FieldManager: "rival"})
		if err != nil && ctx.Err() == nil {
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

package agentbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/procs"
)

// steady watches the agent while nothing happens.
func (w *world) steady(ctx context.Context, run int) error {
	if err := w.source.AwaitQuiet(ctx, 2*time.Second); err != nil {
		return err
	}
	before, err := w.cost(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := procs.Pause(ctx, w.Steady); err != nil {
		return err
	}
	after, err := w.cost(ctx)
	if err != nil {
		return err
	}
	spent, took := after.since(before), time.Since(start)
	detail := spent.detail()
	detail["seconds"] = took.Seconds()
	share := 100 * spent.Program.Seconds() / took.Seconds()
	w.Board.Add(steadyAsked, report.Sample{Measured: float64(spent.Requests.Others), Detail: detail})
	w.Board.Add(steadyCPU, report.Sample{Measured: share, Detail: map[string]any{"agentCPUSeconds": spent.Program.Seconds(), "seconds": took.Seconds()}})
	w.Progress("run %d: %d requests and %.2f %% of a core in %v of nothing", run+1, spent.Requests.Others, share, took.Round(time.Second))
	return nil
}

// patience is how long the samples of one row may take in all: an agent that polls would take hours
// for all of them.
const patience = 2 * time.Minute

// heal deletes and changes objects of the works, one at a time, and measures from the request until
// the watch shows the object as it should be.
func (w *world) heal(ctx context.Context, run int, specs []*wire.Spec) error {
	maps := w.Plane.Client.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	changes, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer changes.Stop()
	apart := max(len(specs)/(2*w.Samples), 1) // each sample is another work
	sample := func(row string, offset int, change func(name string) error, back func(watch.EventType, *corev1.ConfigMap) bool) error {
		var times []float64
		begun := time.Now()
		for i := 0; i < w.Samples && time.Since(begun) < patience; i++ {
			name := fmt.Sprintf("%s-0", specs[((2*i+offset)*apart)%len(specs)].Meta.Name)
			start := time.Now()
			if err := change(name); err != nil {
				return err
			}
			if err := await(ctx, changes, name, back); err != nil {
				return fmt.Errorf("%s: %w", row, err)
			}
			times = append(times, milliseconds(time.Since(start)))
			if err := procs.Pause(ctx, rest); err != nil {
				return err
			}
		}
		w.spread(row, times, 0.95)
		w.Progress("run %d: %s: %.0f ms", run+1, row, report.Quantile(times, 0.95))
		return nil
	}
	err = sample(healDeleted, 0, func(name string) error {
		return maps.Delete(ctx, name, metav1.DeleteOptions{})
	}, func(event watch.EventType, _ *corev1.ConfigMap) bool { return event == watch.Added })
	if err != nil {
		return err
	}
	return sample(healChanged, 1, func(name string) error {
		_, err := maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"value":"foreign"}}`), metav1.PatchOptions{})
		return err
	}, func(event watch.EventType, object *corev1.ConfigMap) bool {
		return event == watch.Modified && object.Data["value"] != "foreign"
	})
}

// await waits for a change of the object of a name that back accepts.
func await(ctx context.Context, changes watch.Interface, name string, back func(watch.EventType, *corev1.ConfigMap) bool) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case event, open := <-changes.ResultChan():
			if !open {
				return errors.New("the watch of ConfigMaps has ended")
			}
			object, ok := event.Object.(*corev1.ConfigMap)
			if ok && object.Name == name && back(event.Type, object) {
				return nil
			}
		case <-limit.C:
			return fmt.Errorf("%s is not back after %v", name, patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// widgetCount is how many works have feedback. Their changes take turns, so that none comes while
// an agent spares its source the next status of a work.
const widgetCount = 20

var widgetResource = schema.GroupVersionResource{Group: "bench.workwire.dev", Version: "v1", Resource: "widgets"}

// widgets defines a kind that no controller touches.
func widgets() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: widgetResource.Group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: widgetResource.Resource, Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: widgetResource.Version, Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: &preserve,
			}},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		}},
	}}
	definition.Name = widgetResource.Resource + "." + widgetResource.Group
	return definition
}

// feedback changes the status of objects and measures from the request until the source has the
// value.
func (w *world) feedback(ctx context.Context, run int) error {
	client, err := dynamic.NewForConfig(w.Plane.REST())
	if err != nil {
		return err
	}
	resource := client.Resource(widgetResource).Namespace(namespace)
	specs := make([]*wire.Spec, widgetCount)
	for i := range specs {
		name := fmt.Sprintf("widget-%d", i)
		specs[i] = w.maker.Work(name, &wire.Bundle{ManifestConfigs: []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Group: widgetResource.Group, Resource: widgetResource.Resource, Namespace: namespace, Name: name},
			FeedbackScrapeType: workv1.FeedbackScrapeTypeWatch,
			FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{
				{Name: "level", Path: ".status.level"},
			}}},
		}}}, fmt.Sprintf(`{"apiVersion":"bench.workwire.dev/v1","kind":"Widget","metadata":{"name":%q,"namespace":%q}}`, name, namespace))
	}
	if _, err := w.publish(ctx, specs, events.Applied(1)); err != nil {
		return err
	}
	var times []float64
	begun := time.Now()
	for i := 0; i < widgetCount+w.Samples && time.Since(begun) < patience; i++ {
		spec, level := specs[i%widgetCount], int64(i+1)
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"level": level}})
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		start := time.Now()
		err = w.source.Follow(bounded, spec.UID, func() error {
			_, err := resource.Patch(ctx, spec.Meta.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		}, reports(level))
		cancel()
		if err != nil {
			return err
		}
		if i >= widgetCount { // the first value of each is no change
			times = append(times, milliseconds(time.Since(start)))
		}
		if err := procs.Pause(ctx, rest); err != nil {
			return err
		}
	}
	w.spread(fedBack, times, 0.95)
	w.Progress("run %d: %s: %.0f ms", run+1, fedBack, report.Quantile(times, 0.95))
	_, err = w.publish(ctx, events.Deleted(specs), events.Gone)
	return err
}

// reports reports whether a status feeds a level back.
func reports(level int64) func(*wire.Status) bool {
	return func(s *wire.Status) bool {
		for _, manifest := range s.Status.ResourceStatus.Manifests {
			for _, value := range manifest.StatusFeedbacks.Values {
				if value.Name == "level" && value.Value.Integer != nil && *value.Value.Integer == level {
					return true
				}
			}
		}
		return false
	}
}

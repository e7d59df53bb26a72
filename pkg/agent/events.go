package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/record"
)

// eventSource is the component in the source of the agent's events.
const eventSource = "work-agent"

// events sends Kubernetes Events about objects of the cluster. Events about one object with one
// text are one Event with a count; client-go's limit for each object applies: 25, then one each 5 minutes.
// An object that was created again is another one for both.
type events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	sink        eventSink
}

func newEvents(client dynamic.Interface) *events {
	broadcaster := record.NewBroadcaster()
	return &events{
		broadcaster: broadcaster, sink: eventSink{client.Resource(corev1.SchemeGroupVersion.WithResource("events"))},
		// Whoever records an event names the kind of its object, which no scheme has to know.
		recorder: broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: eventSource}),
	}
}

// run sends events until ctx ends.
func (e *events) run(ctx context.Context) error {
	watch := e.broadcaster.StartRecordingToSink(e.sink)
	<-ctx.Done()
	watch.Stop()
	e.broadcaster.Shutdown()
	return nil
}

// eventSink writes events with the dynamic client: that of client-go's sink would make the agent
// know every kind of Kubernetes.
type eventSink struct {
	events dynamic.NamespaceableResourceInterface
}

// Create implements [record.EventSink].
func (s eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
	if err != nil {
		return nil, fmt.Errorf("convert an event about %s: %w", event.InvolvedObject.Name, err)
	}
	body := &unstructured.Unstructured{Object: content}
	body.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	return typedEvent(s.events.Namespace(event.Namespace).Create(context.Background(), body, metav1.CreateOptions{}))
}

// Update implements [record.EventSink]; client-go patches.
func (s eventSink) Update(event *corev1.Event) (*corev1.Event, error) { return s.Create(event) }

// Patch implements [record.EventSink].
func (s eventSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return typedEvent(s.events.Namespace(event.Namespace).Patch(context.Background(), event.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}))
}

func typedEvent(written *unstructured.Unstructured, err error) (*corev1.Event, error) {
	if err != nil {
		return nil, err
	}
	event := &corev1.Event{}
	return event, runtime.DefaultUnstructuredConverter.FromUnstructured(written.Object, event)
}

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

	"github.com/workwire/workwire/pkg/runtime/events"
)

// eventSource is the component in the source of the agent's events.
const eventSource = "work-agent"

// newEvents returns what records events about objects of the cluster. Whoever records one names the kind of its object,
// which no scheme has to know.
func newEvents(client dynamic.Interface) *events.Recorder {
	return events.New(eventSource, runtime.NewScheme(), eventSink{client.Resource(corev1.SchemeGroupVersion.WithResource("events"))})
}

// eventSink is a record.EventSink that writes events with the dynamic client: that of client-go's sink would make the agent
// know every kind of Kubernetes.
type eventSink struct {
	events dynamic.NamespaceableResourceInterface
}

// Create writes a new event.
func (s eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
	if err != nil {
		return nil, fmt.Errorf("convert an event about %s: %w", event.InvolvedObject.Name, err)
	}
	body := &unstructured.Unstructured{Object: content}
	body.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	return typedEvent(s.events.Namespace(event.Namespace).Create(context.Background(), body, metav1.CreateOptions{}))
}

// Update is not called: client-go patches.
func (s eventSink) Update(event *corev1.Event) (*corev1.Event, error) { return s.Create(event) }

// Patch changes the count of an event.
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

// Package events sends Kubernetes Events:
//
//	recorder := events.New("work-hub", scheme.Scheme, sink)
//	go recorder.Run(ctx)
//	recorder.Event(object, corev1.EventTypeNormal, "Reason", "message")
package events

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// Recorder records events, which do not wait for the API server. Those about one object with one text are one Event with
// a count; client-go's limit for each object applies: 25, then one each 5 minutes. An object that was created again is
// another one for both. It may be used by several goroutines.
type Recorder struct {
	record.EventRecorder

	broadcaster record.EventBroadcaster
	sink        record.EventSink
}

// New returns the recorder of a component, which is the source of its events. scheme knows the kinds of the objects that
// events are about, unless whoever records one names the kind.
func New(component string, scheme *runtime.Scheme, sink record.EventSink) *Recorder {
	broadcaster := record.NewBroadcaster()
	return &Recorder{
		EventRecorder: broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component}), broadcaster: broadcaster, sink: sink,
	}
}

// Run sends the events that are recorded until ctx ends. Its error is nil.
func (r *Recorder) Run(ctx context.Context) error {
	watch := r.broadcaster.StartRecordingToSink(r.sink)
	<-ctx.Done()
	watch.Stop()
	r.broadcaster.Shutdown()
	return nil
}

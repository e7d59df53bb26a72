package hub

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/client/clientset/versioned/scheme"
	"github.com/workwire/workwire/pkg/hub/clusters"
	"github.com/workwire/workwire/pkg/hub/placement"
	"github.com/workwire/workwire/pkg/hub/replicaset"
	"github.com/workwire/workwire/pkg/hub/ttl"
)

// eventSource is the component in the source of the hub's events.
const eventSource = "work-hub"

// events sends Kubernetes Events about the objects of the hub.
type events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	core        corev1client.CoreV1Interface
}

// run sends events until ctx ends.
func (e *events) run(ctx context.Context) error {
	watch := e.broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: e.core.Events("")})
	<-ctx.Done()
	watch.Stop()
	e.broadcaster.Shutdown()
	return nil
}

// buildRecorder makes what sends events, if a controller has any.
func (h *Hub) buildRecorder() (record.EventRecorder, error) {
	if len(h.cfg.Controllers) == 0 {
		return nil, nil
	}
	core, err := kubernetes.NewForConfig(h.cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	h.events = &events{
		broadcaster: broadcaster, core: core.CoreV1(),
		recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: eventSource}),
	}
	return h.events.recorder, nil
}

// enabled reports whether a controller runs.
func (h *Hub) enabled(name string) bool { return slices.Contains(h.cfg.Controllers, name) }

func (h *Hub) buildClusters(client versioned.Interface, recorder record.EventRecorder, queues workqueue.MetricsProvider) error {
	if !h.enabled(ControllerClusters) {
		return nil
	}
	var err error
	h.clusters, err = clusters.New(clusters.Config{
		Informers: h.informers, Client: client, Namespaces: h.events.core.Namespaces(),
		AutoRegister: h.cfg.AutoRegister, AutoAccept: h.cfg.AutoAccept, KeepAlive: h.cfg.KeepAlive,
		Recorder: recorder, Registerer: h.cfg.Registerer, Queues: queues, Logger: h.cfg.Logger,
	})
	h.fleet = h.clusters
	return err
}

// buildOthers makes the controllers that only read and write the API.
func (h *Hub) buildOthers(client versioned.Interface, recorder record.EventRecorder, queues workqueue.MetricsProvider) error {
	if h.enabled(ControllerPlacement) {
		c, err := placement.New(placement.Config{
			Informers: h.informers, Client: client, Recorder: recorder, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer, Queues: queues,
		})
		if err != nil {
			return err
		}
		h.others = append(h.others, component{name: ControllerPlacement, run: c.Run, ready: c.Ready})
	}
	if h.enabled(ControllerReplicaSet) {
		c, err := replicaset.New(replicaset.Config{
			Works: h.works, Client: client, Recorder: recorder, Now: h.cfg.Now, Logger: h.cfg.Logger,
			Registerer: h.cfg.Registerer, Queues: queues, Workers: h.cfg.Workers,
		})
		if err != nil {
			return err
		}
		h.others = append(h.others, component{name: ControllerReplicaSet, run: c.Run, ready: c.Ready})
	}
	if h.enabled(ControllerTTL) {
		c, err := ttl.New(ttl.Config{
			Works: h.works, Client: client, Recorder: recorder, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer, Queues: queues,
		})
		if err != nil {
			return err
		}
		h.others = append(h.others, component{name: ControllerTTL, run: c.Run})
	}
	return nil
}

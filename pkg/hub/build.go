package hub

import (
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/workqueue"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/client/clientset/versioned/scheme"
	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/leadership"
	"github.com/workwire/workwire/pkg/hub/internal/placement"
	"github.com/workwire/workwire/pkg/hub/internal/replicaset"
	"github.com/workwire/workwire/pkg/hub/internal/tally"
	"github.com/workwire/workwire/pkg/hub/internal/ttl"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/events"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// eventSource is the component in the source of the hub's events.
const eventSource = "work-hub"

// build creates the parts and connects them.
func (h *Hub) build(topics wire.SourceTopics) error {
	client, err := versioned.NewForConfig(h.cfg.REST)
	if err != nil {
		return fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	addressable := func(cluster wire.ClusterName) bool {
		_, err := topics.Specs(cluster)
		return err == nil
	}
	var queues workqueue.MetricsProvider
	if queues, err = kube.NewQueueMetrics(h.cfg.Registerer); err != nil {
		return err
	}
	if err := h.buildCaches(); err != nil {
		return err
	}
	recorder, err := h.buildRecorder()
	if err != nil {
		return err
	}
	if err := h.buildLeadership(recorder); err != nil {
		return err
	}
	if err := h.buildClusters(client, recorder, queues); err != nil {
		return err
	}
	if err := h.buildWorks(client, recorder, queues, addressable); err != nil {
		return err
	}
	annotations := map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	if h.cfg.WithoutReadiness {
		annotations = nil
	}
	h.delivery, err = delivery.New(delivery.Config{
		Source: h.cfg.Source, Topics: h.cfg.Topics, Transport: h.cfg.Transport, Sign: h.cfg.Sign, Seal: h.cfg.Seal,
		TrustedAgents: h.cfg.TrustedAgents, SignatureMaxAge: h.cfg.SignatureMaxAge,
		Works: h.works, Annotations: annotations,
		Identity: h.identity, ClusterIdentity: h.clusterIdentity, StatusWorkers: h.cfg.Workers, Audit: h.cfg.Audit, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer, TracerProvider: h.cfg.TracerProvider,
		Clusters: h.unknownClusters(), Shard: h.leadership.Shard.Name(),
		Observe: h.observe, InstanceInterval: h.cfg.InstanceInterval,
	})
	if err != nil {
		return err
	}
	return h.buildGlobal(client, recorder, queues)
}

// buildCaches creates what holds the objects of the API.
func (h *Hub) buildCaches() (err error) {
	if h.informers, err = newInformers(&h.cfg); err != nil {
		return err
	}
	h.cache, err = works.NewCache(h.informers, h.cfg.Registerer)
	return err
}

// buildWorks creates what has works published and stores their statuses, and what counts them.
func (h *Hub) buildWorks(
	client versioned.Interface, recorder record.EventRecorder, queues workqueue.MetricsProvider, addressable func(wire.ClusterName) bool,
) (err error) {
	cfg := works.Config{
		Cache: h.cache, Client: client, Addressable: addressable, Accepted: h.fleet.Accepted, Served: h.leadership.Shard.Serves, Workers: h.cfg.Workers, Pace: &h.pace,
		PendingDelay: h.cfg.PendingDelay, Recorder: recorder, Queues: queues, Registerer: h.cfg.Registerer, Logger: h.cfg.Logger,
	}
	if h.clusters != nil {
		cfg.ManagedClusters = h.informers.ManagedClusters()
	}
	if h.works, err = works.New(cfg); err != nil {
		return err
	}
	h.tally, err = tally.New(tally.Config{
		Works: h.cache, ManagedClusters: cfg.ManagedClusters, Served: h.leadership.Shard.Serves,
		GroupLabel: h.cfg.ClusterGroupLabel, MaxGroups: h.cfg.MaxClusterGroups, Registerer: h.cfg.Registerer,
	})
	return err
}

// buildLeadership creates what decides whether this hub publishes, and for which clusters.
func (h *Hub) buildLeadership(recorder record.EventRecorder) (err error) {
	shard := leadership.ShardConfig{
		Selector: h.cfg.ClusterSelector, Unregistered: h.cfg.AutoRegister, CatchUpWorks: h.cache.CatchUp,
		Busy: func(cluster wire.ClusterName) bool {
			h.tellCluster(cluster) // the watch event may not have been handled yet
			return h.delivery.Busy(cluster)
		},
		Connected: func() bool { return h.delivery.Connected() },
		Recorder:  recorder, Logger: h.cfg.Logger,
	}
	if shard.Selector != nil {
		shard.ManagedClusters = h.informers.ManagedClusters()
	}
	h.leadership, err = leadership.New(leadership.Config{
		ShardConfig: shard, Election: h.cfg.Election, REST: h.cfg.REST, Source: h.cfg.Source, Identity: h.cfg.identityRef(),
	})
	return err
}

// newInformers creates the informers, which have connections of their own: these can be closed
// without ending other requests.
func newInformers(cfg *Config) (*controller.Informers, error) {
	config := rest.CopyConfig(cfg.REST)
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	dialer := connrotation.NewDialer(dial)
	config.Dial = dialer.DialContext
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	lists, err := metadata.NewForConfig(cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	informers := controller.NewInformers(controller.InformersConfig{
		Client: client, Metadata: lists, Reconnect: dialer.CloseAll, Logger: cfg.Logger,
	})
	return informers, controller.Register(cfg.Registerer, informers.Metrics()...)
}

// buildRecorder creates the recorder of events about objects of the hub's API, if a controller records any.
func (h *Hub) buildRecorder() (record.EventRecorder, error) {
	if len(h.cfg.Controllers) == 0 {
		return nil, nil
	}
	client, err := kubernetes.NewForConfig(h.cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	h.core = client.CoreV1()
	h.events = events.New(eventSource, scheme.Scheme, &corev1client.EventSinkImpl{Interface: h.core.Events("")})
	return h.events, nil
}

// enabled reports whether a controller runs.
func (h *Hub) enabled(name string) bool { return slices.Contains(h.cfg.Controllers, name) }

// registers returns the function that reports whether a cluster may be registered because it was heard
// from; nil: all may. Without a key, anybody who owns the broker could invent clusters.
func (h *Hub) registers() func(wire.ClusterName) bool {
	if h.cfg.TrustedAgents == nil {
		return nil
	}
	return h.cfg.TrustedAgents.Knows
}

func (h *Hub) buildClusters(client versioned.Interface, recorder record.EventRecorder, queues workqueue.MetricsProvider) (err error) {
	if !h.enabled(ControllerClusters) {
		return nil
	}
	h.clusters, err = clusters.New(clusters.Config{
		Informers: h.informers, Works: h.cache, Shard: h.leadership.Shard, Client: client, Namespaces: h.core.Namespaces(),
		AutoRegister: h.cfg.AutoRegister, AutoAccept: h.cfg.AutoAccept, Registers: h.registers(), KeepAlive: h.cfg.KeepAlive,
		UnreachableGrace: h.cfg.UnreachableGrace, HubAbsence: h.cfg.HubAbsence,
		Recorder: recorder, Registerer: h.cfg.Registerer, Queues: queues, Logger: h.cfg.Logger,
	})
	h.fleet = h.clusters
	return err
}

// buildGlobal creates the controllers that are about no single cluster.
func (h *Hub) buildGlobal(client versioned.Interface, recorder record.EventRecorder, queues workqueue.MetricsProvider) error {
	if h.enabled(ControllerClusterSets) {
		if err := h.buildClusterSets(client, queues); err != nil {
			return err
		}
	}
	var bindings *clustersets.Bindings // reads sets and bindings
	if h.enabled(ControllerPlacement) || h.enabled(ControllerReplicaSet) {
		bindings = clustersets.NewBindings(h.informers, !h.cfg.WithoutClusterSets)
	}
	if h.enabled(ControllerPlacement) {
		c, err := placement.New(placement.Config{
			Informers: h.informers, Bindings: bindings, Client: client, Recorder: recorder, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer, Queues: queues,
		})
		if err != nil {
			return err
		}
		h.global = append(h.global, component{name: ControllerPlacement, run: c.Run, ready: c.Ready})
	}
	if h.enabled(ControllerReplicaSet) {
		c, err := replicaset.New(replicaset.Config{
			Audit:     h.cfg.Audit,
			Informers: h.informers, Bindings: bindings, Works: h.cache, Client: client, Core: h.core, Recorder: recorder, Now: h.cfg.Now, Logger: h.cfg.Logger,
			Registerer: h.cfg.Registerer, Queues: queues, Workers: h.cfg.Workers, Pace: &h.pace,
		})
		if err != nil {
			return err
		}
		h.global = append(h.global, component{name: ControllerReplicaSet, run: c.Run, ready: c.Ready})
	}
	if h.enabled(ControllerTTL) {
		c, err := ttl.New(ttl.Config{
			Works: h.cache, Client: client, Recorder: recorder, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer, Queues: queues,
		})
		if err != nil {
			return err
		}
		h.global = append(h.global, component{name: ControllerTTL, run: c.Run})
	}
	if err := h.buildProfiles(queues); err != nil {
		return err
	}
	return h.buildJoins(client)
}

// buildClusterSets creates the controllers of cluster sets.
func (h *Hub) buildClusterSets(client versioned.Interface, queues workqueue.MetricsProvider) error {
	cfg := clustersets.Config{Informers: h.informers, Client: client, Logger: h.cfg.Logger, Queues: queues}
	sets, err := clustersets.NewSets(cfg)
	if err != nil {
		return err
	}
	bindings, err := clustersets.NewBindingStatus(cfg)
	if err != nil {
		return err
	}
	h.global = append(h.global, component{name: ControllerClusterSets, run: sets.Run, ready: sets.Ready},
		component{name: "clustersetbindings", run: bindings.Run, ready: bindings.Ready})
	return nil
}

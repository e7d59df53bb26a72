package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/watchedvalues"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/hub/internal/worktest"
	"github.com/workwire/workwire/pkg/hub/overrides"
	"github.com/workwire/workwire/pkg/runtime/pace"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/runtime/walltime"
	"github.com/workwire/workwire/pkg/security/audit"
)

// interval is the minimum time between two reconciles of a set.
const interval = 200 * time.Millisecond

// Config configures a [Controller].
type Config struct {
	// Informers provide sets, WorkOverrides, RolloutPlans, Placements, PlacementDecisions and ManagedClusters; required.
	Informers *controller.Informers
	// Bindings decide which clusters a set may reach, by its namespace; required.
	Bindings *clustersets.Bindings
	// Works is the cache of works, from the same Informers; required.
	Works *works.Cache
	// Client writes works and sets; required.
	Client versioned.Interface
	// Core reads the ConfigMaps and Secrets that WorkOverrides refer to, each by its name; required.
	Core corev1client.CoreV1Interface
	// Recorder gets events on sets; required.
	Recorder record.EventRecorder
	// Audit gets a record for each approval that a rollout acts on; default none.
	Audit *audit.Log
	// Now returns the time for rollouts; default time.Now.
	Now func() time.Time
	// Logger gets a line about each failure, and about each rollout that is complete or stopped;
	// default slog.Default().
	Logger *slog.Logger
	// Registerer gets the metrics workwire_hub_replicaset_*; default none.
	Registerer prometheus.Registerer
	// Queues creates the metrics of the queue; default none.
	Queues workqueue.MetricsProvider
	// Workers is the number of works that are written at a time, as far as [pace.Limit] allows; required.
	Workers int
	// Pace has these writes give way to what people change by hand, with those of others; default: alone.
	Pace *pace.Gate
}

// Controller serves the ManifestWorkReplicaSets of all namespaces.
type Controller struct {
	*controller.Controller[types.NamespacedName]
	cfg        Config
	metrics    *metrics
	sets       *controller.Cache[*workv1alpha1.ManifestWorkReplicaSet]
	placements *controller.Cache[*clusterv1beta1.Placement]
	decisions  *controller.Cache[*clusterv1beta1.PlacementDecision]
	clusters   *controller.Cache[*clusterv1.ManagedCluster]
	overrides  *controller.Cache[*workwirev1alpha1.WorkOverride]
	compiler   *overrides.Compiler
	plans      *controller.Cache[*workwirev1alpha1.RolloutPlan]
	tester     *worktest.Compiler
	values     *watchedvalues.Watcher
	clock      *walltime.Clock // of the times that are stored
	writers    *pace.Lane      // limits the works that are written at a time

	mu       sync.Mutex
	memories map[types.NamespacedName]*setMemory // guarded by mu; only the reconcile of a set uses its own
}

// New returns a controller. It does no I/O and starts nothing. It reports every fault of cfg, and
// fails if the metrics are registered already.
func New(cfg Config) (*Controller, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("replicaset: %w", err)
	}
	c := &Controller{
		cfg: cfg, clock: walltime.New(), metrics: newMetrics(), writers: cmp.Or(cfg.Pace, &pace.Gate{}).NewLane(cfg.Workers), memories: make(map[types.NamespacedName]*setMemory),
		sets: cfg.Informers.ManifestWorkReplicaSets(), placements: cfg.Informers.Placements(),
		decisions: cfg.Informers.PlacementDecisions(), clusters: cfg.Informers.ManagedClusters(),
	}
	c.overrides = cfg.Informers.WorkOverrides()
	var errCompiler, err error
	c.compiler, errCompiler = overrides.NewCompiler()
	c.plans = cfg.Informers.RolloutPlans()
	var errTester error
	c.tester, errTester = worktest.NewCompiler()
	c.Controller, err = controller.New(controller.Config[types.NamespacedName]{
		Name: "replicasets", Reconcile: c.reconcile, Interval: interval, Queues: cfg.Queues, Logger: cfg.Logger,
		Watches: append([]controller.Watch{
			controller.On(c.sets, c.setChanged), controller.On(c.placements, c.placementChanged),
			controller.On(c.decisions, c.decisionChanged), controller.On(c.clusters, c.clusterChanged),
			controller.On(cfg.Works.Cache, c.workChanged), controller.On(c.overrides, c.overrideChanged),
			controller.On(c.plans, c.planChanged),
		}, cfg.Bindings.Watch(c.reachChanged)...),
	})
	c.values = watchedvalues.New(watchedvalues.Config{Client: cfg.Core, Changed: func(set types.NamespacedName) { c.Add(set) }, Logger: cfg.Logger})
	m := c.metrics
	err = errors.Join(err, errCompiler, errTester, c.addIndexers(), controller.Register(cfg.Registerer, m.reconciles, m.works, m.statuses, m.sets, m.clusters))
	if err != nil {
		return nil, fmt.Errorf("replicaset: %w", err)
	}
	return c, nil
}

// Run reconciles until ctx ends; it returns nil then, when everything that it started has ended.
func (c *Controller) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	wait := c.values.Start(ctx)
	defer wait()
	defer stop()
	return c.Controller.Run(ctx)
}

// validate reports every fault of cfg and sets the defaults.
func (cfg *Config) validate() error {
	err := required.Fields(cfg, "Informers", "Bindings", "Works", "Client", "Core", "Recorder", "Workers")
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return err
}

// setMemory is what the controller remembers of a set between two reconciles. It can be lost at any
// time.
type setMemory struct {
	uid             types.UID                        // of the set
	failures        map[types.NamespacedName]failure // by work, the writes that failed
	createdUntil    time.Time                        // when works that the informer does not show are no longer assumed to exist
	succeededGroups map[string]int                   // by placement
	edits           map[string]edit                  // by placement; of the set under the empty name
	history         history                          // of the set's templates
	overriding      *overriding                      // nil without WorkOverrides
	staging         *staging                         // nil without a RolloutPlan
	acted           []workwirev1alpha1.Approval      // those that the last plan acted on
	counted         gaugeValues                      // the share of the set in the metrics
}

// failure describes the last failed write of a work.
type failure struct {
	attempts int
	retryAt  time.Time
	err      error
}

// memoryOf returns what is remembered of a set.
func (c *Controller) memoryOf(set types.NamespacedName) *setMemory {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.memories[set]
	if s == nil {
		s = &setMemory{failures: make(map[types.NamespacedName]failure)}
		c.memories[set] = s
	}
	return s
}

// forget drops what is remembered of a deleted set.
func (c *Controller) forget(set types.NamespacedName) {
	s := c.memoryOf(set)
	c.metrics.setGauges(&s.counted, gaugeValues{})
	c.values.Use(set, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memories, set)
}

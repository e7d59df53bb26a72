package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Spoke: &plane}) }

// fixture is a source, a broker and an agent on the shared cluster. The name of its broker is unique,
// and so are the names of its AppliedManifestWorks.
type fixture struct {
	*world.World
	namespace  string // for objects
	cluster    *kubernetes.Clientset
	amws       workclientv1.AppliedManifestWorkInterface
	stop       func()        // ends the agent
	stopSource func()        // ends the source started last
	requests   *kit.Requests // of the agent
}

const cluster = "cluster1"

// newWorld returns a world without a source and an agent. The test runs in parallel to others.
func newWorld(t *testing.T) *fixture {
	t.Parallel()
	return newSerialWorld(t)
}

func newSerialWorld(t *testing.T) *fixture {
	t.Helper()
	w := world.New(t, world.Options{Memory: true, Spokes: []*controlplane.Plane{plane}, Source: "hub1", Clusters: []wire.ClusterName{cluster},
		Topics: wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"}})
	return &fixture{
		World: w, namespace: w.Targets[0],
		cluster:  kubernetes.NewForConfigOrDie(plane.REST()),
		amws:     workclient.NewForConfigOrDie(plane.REST()).WorkV1().AppliedManifestWorks(),
		requests: &kit.Requests{},
	}
}

// start returns a newWorld with source hub1 and an agent, and the works of the source.
func start(t *testing.T) (*fixture, workclientv1.ManifestWorkInterface) {
	t.Helper()
	w := newWorld(t)
	works := w.source("hub1")
	w.agent()
	return w, works
}

// source starts a source and returns its works for the cluster.
func (w *fixture) source(id wire.SourceID) workclientv1.ManifestWorkInterface {
	w.Helper()
	client := w.StartSDK(id, func(c *source.Config) {
		c.Topics.SourceBroadcast, c.Topics.AgentBroadcast = w.Topics.SourceBroadcast, w.Topics.AgentBroadcast
	})
	w.stopSource = client.Stop
	return client.ManifestWorks(cluster)
}

// agent starts the agent, which w.stop stops.
func (w *fixture) agent(configure ...func(*agent.Config)) {
	w.Helper()
	w.stop = w.StartAgent(0, append([]func(*agent.Config){func(c *agent.Config) {
		c.AgentID, c.Kube, c.SyncInterval = w.BrokerHost, w.requests.Wrap(plane.REST()), time.Second
		c.RecordDelay = -1 // so that requests can be counted once a status has come
	}}, configure...)...).Stop
}

// work returns a work of manifests in YAML, in which NAMESPACE is replaced by the test's.
func (w *fixture) work(name string, manifests ...string) *workv1.ManifestWork {
	w.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	for _, text := range manifests {
		data, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "NAMESPACE", w.namespace)))
		kit.NoError(w, err)
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: data}})
	}
	return work
}

func configMap(name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: NAMESPACE}, data: {k: %q}}", name, value)
}

// deploy creates a work of manifests and waits until it is applied and available.
func (w *fixture) deploy(works workclientv1.ManifestWorkInterface, name string, manifests ...string) {
	w.Helper()
	w.Create(works, w.work(name, manifests...))
	w.Is(works, name, "Applied=True", "Available=True")
}

// change gives the work other manifests.
func (w *fixture) change(works workclientv1.ManifestWorkInterface, name string, manifests ...string) {
	w.Helper()
	w.Change(works, name, func(work *workv1.ManifestWork) { work.Spec.Workload = w.work("", manifests...).Spec.Workload })
}

// remove deletes a work and waits until it is gone.
func (w *fixture) remove(works workclientv1.ManifestWorkInterface, name string) {
	w.Helper()
	w.Delete(works, name)
	w.Gone(works, name)
}

// data waits until a ConfigMap has the value want; empty: until it is gone or has none.
func (w *fixture) data(name, want string) {
	w.Helper()
	kit.Await(w, w.cluster.CoreV1().ConfigMaps(w.namespace), name, fmt.Sprintf("has %q", want), func(c *corev1.ConfigMap) bool {
		return c == nil && want == "" || c != nil && c.Data["k"] == want
	})
}

// noneApplied waits until the agent has no AppliedManifestWork left.
func (w *fixture) noneApplied() { w.Helper(); w.NoAppliedManifestWorksOf(0, w.BrokerHost) }

// applied waits until check returns nil for the AppliedManifestWork of a work.
func (w *fixture) applied(work, what string, check func(*workv1.AppliedManifestWork) error) *workv1.AppliedManifestWork {
	w.Helper()
	var found *workv1.AppliedManifestWork
	kit.Eventually(w, "the AppliedManifestWork of "+work+" "+what, func() error {
		list, err := w.amws.List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if found = &list.Items[i]; found.Spec.AgentID == w.BrokerHost && found.Spec.ManifestWorkName == work {
				return check(found)
			}
		}
		return errors.New("there is none")
	})
	return found
}

// names waits until the AppliedManifestWork of a work names objects with these names; any, if there
// are none. That is the last request of a reconcile.
func (w *fixture) names(work string, names ...string) *workv1.AppliedManifestWork {
	w.Helper()
	return w.applied(work, fmt.Sprintf("names %v", names), func(amw *workv1.AppliedManifestWork) error {
		var have []string
		for _, resource := range amw.Status.AppliedResources {
			have = append(have, resource.Name)
		}
		if len(have) == 0 || len(names) > 0 && !slices.Equal(have, names) {
			return fmt.Errorf("it names %v", have)
		}
		return nil
	})
}

func (w *fixture) deleteConfigMap(name string) {
	w.Helper()
	kit.NoError(w, w.cluster.CoreV1().ConfigMaps(w.namespace).Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// patch patches a ConfigMap with the field manager of kubectl.
func (w *fixture) patch(name, patch string) {
	w.Helper()
	if _, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Patch(w.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "kubectl-patch"}); err != nil {
		w.Fatal(err)
	}
}

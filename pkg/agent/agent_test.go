package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Spoke: &plane}) }

// world is a source, a broker and an agent on the shared cluster. The name of its broker is unique,
// and so are the names of its AppliedManifestWorks.
type world struct {
	*testing.T
	namespace  string
	host       string
	broker     *memory.Broker
	topics     wire.Topics
	cluster    *kubernetes.Clientset
	amws       workclientv1.AppliedManifestWorkInterface
	stop       func()        // ends the agent
	stopSource func()        // ends the source started last
	requests   *kit.Requests // of the agent
}

const cluster = "cluster1"

// newWorld returns a world without a source and an agent. The test runs in parallel to others.
func newWorld(t *testing.T) *world {
	t.Parallel()
	return newSerialWorld(t)
}

func newSerialWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		T: t, namespace: plane.Namespace(t, "agent"), host: kit.Unique("broker-" + strings.ToLower(t.Name())),
		broker:   memory.NewBroker(),
		topics:   wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"},
		cluster:  kubernetes.NewForConfigOrDie(plane.REST()),
		amws:     workclient.NewForConfigOrDie(plane.REST()).WorkV1().AppliedManifestWorks(),
		requests: &kit.Requests{},
	}
}

// start returns a newWorld with source hub1 and an agent, and the works of the source.
func start(t *testing.T) (*world, workclientv1.ManifestWorkInterface) {
	t.Helper()
	w := newWorld(t)
	works := w.source("hub1")
	w.agent()
	return w, works
}

// source starts a source and returns its works for the cluster.
func (w *world) source(id wire.SourceID) workclientv1.ManifestWorkInterface {
	w.Helper()
	topics := wire.Topics{
		SourceEvents: fmt.Sprintf("sources/%s/clusters/+/sourceevents", id), AgentEvents: fmt.Sprintf("sources/%s/clusters/+/agentevents", id),
		SourceBroadcast: w.topics.SourceBroadcast, AgentBroadcast: w.topics.AgentBroadcast,
	}
	client, err := source.New(source.Config{SourceID: id, Topics: topics, Transport: w.broker.Client(string(id)),
		StateFile: w.TempDir() + "/state.db"})
	if err != nil {
		w.Fatal(err)
	}
	w.stopSource = kit.Run(w, "source", client.Run)
	return client.ManifestWorks(cluster)
}

// agent starts the agent, which w.stop stops.
func (w *world) agent(configure ...func(*agent.Config)) {
	w.Helper()
	config := agent.Config{
		Cluster: cluster, ClientID: cluster + "-agent", AgentID: w.host, BrokerHost: w.host, Topics: w.topics,
		Transport: w.broker.Client(cluster + "-agent"), Kube: w.requests.Wrap(plane.REST()), SyncInterval: time.Second,
		RecordDelay: -1, // so that requests can be counted once a status has come
	}
	for _, c := range configure {
		c(&config)
	}
	a, err := agent.New(config)
	if err != nil {
		w.Fatal(err)
	}
	w.stop = kit.Run(w, "agent", a.Run)
}

// work returns a work of manifests in YAML, in which NAMESPACE is replaced by the test's.
func (w *world) work(name string, manifests ...string) *workv1.ManifestWork {
	w.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	for _, text := range manifests {
		data, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "NAMESPACE", w.namespace)))
		if err != nil {
			w.Fatal(err)
		}
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: data}})
	}
	return work
}

func configMap(name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: NAMESPACE}, data: {k: %q}}", name, value)
}

func (w *world) create(works workclientv1.ManifestWorkInterface, work *workv1.ManifestWork) *workv1.ManifestWork {
	w.Helper()
	created, err := works.Create(w.Context(), work, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return created
}

// deploy creates a work of manifests and waits until it is applied and available.
func (w *world) deploy(works workclientv1.ManifestWorkInterface, name string, manifests ...string) {
	w.Helper()
	w.create(works, w.work(name, manifests...))
	w.is(works, name, "Applied=True", "Available=True")
}

func (w *world) update(works workclientv1.ManifestWorkInterface, name string, change func(*workv1.ManifestWork)) {
	w.Helper()
	kit.Eventually(w, "update "+name, func() error {
		work, err := works.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(work)
		_, err = works.Update(w.Context(), work, metav1.UpdateOptions{})
		return err
	})
}

// change gives the work other manifests.
func (w *world) change(works workclientv1.ManifestWorkInterface, name string, manifests ...string) {
	w.Helper()
	w.update(works, name, func(work *workv1.ManifestWork) { work.Spec.Workload = w.work("", manifests...).Spec.Workload })
}

func (w *world) delete(works workclientv1.ManifestWorkInterface, name string) {
	w.Helper()
	if err := works.Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// remove deletes a work and waits until it is gone.
func (w *world) remove(works workclientv1.ManifestWorkInterface, name string) {
	w.Helper()
	w.delete(works, name)
	w.gone(works, name)
}

// is waits until the work has the conditions given as type=status, at its generation.
func (w *world) is(works workclientv1.ManifestWorkInterface, name string, conditions ...string) *workv1.ManifestWork {
	w.Helper()
	return kit.Await(w, works, name, fmt.Sprintf("is %v", conditions), func(work *workv1.ManifestWork) bool {
		return work != nil && !slices.ContainsFunc(conditions, func(want string) bool {
			kind, status, _ := strings.Cut(want, "=")
			c := meta.FindStatusCondition(work.Status.Conditions, kind)
			return c == nil || string(c.Status) != status || c.ObservedGeneration != work.Generation
		})
	})
}

func (w *world) gone(works workclientv1.ManifestWorkInterface, name string) {
	w.Helper()
	kit.Await(w, works, name, "is gone", func(work *workv1.ManifestWork) bool { return work == nil })
}

// data waits until a ConfigMap has the value want; empty: until it is gone or has none.
func (w *world) data(name, want string) {
	w.Helper()
	kit.Await(w, w.cluster.CoreV1().ConfigMaps(w.namespace), name, fmt.Sprintf("has %q", want), func(c *corev1.ConfigMap) bool {
		return c == nil && want == "" || c != nil && c.Data["k"] == want
	})
}

// noneApplied waits until the agent has no AppliedManifestWork left.
func (w *world) noneApplied() {
	w.Helper()
	kit.Eventually(w, "no AppliedManifestWork is left", func() error {
		list, err := w.amws.List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, amw := range list.Items {
			if amw.Spec.AgentID == w.host {
				return fmt.Errorf("%s is", amw.Name)
			}
		}
		return nil
	})
}

// applied waits until check returns nil for the AppliedManifestWork of a work.
func (w *world) applied(work, what string, check func(*workv1.AppliedManifestWork) error) *workv1.AppliedManifestWork {
	w.Helper()
	var found *workv1.AppliedManifestWork
	kit.Eventually(w, "the AppliedManifestWork of "+work+" "+what, func() error {
		list, err := w.amws.List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if found = &list.Items[i]; found.Spec.AgentID == w.host && found.Spec.ManifestWorkName == work {
				return check(found)
			}
		}
		return errors.New("there is none")
	})
	return found
}

// names waits until the AppliedManifestWork of a work names objects with these names; any, if there
// are none. That is the last request of a reconcile.
func (w *world) names(work string, names ...string) *workv1.AppliedManifestWork {
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

func (w *world) deleteConfigMap(name string) {
	w.Helper()
	if err := w.cluster.CoreV1().ConfigMaps(w.namespace).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// patch patches a ConfigMap with the field manager of kubectl.
func (w *world) patch(name, patch string) {
	w.Helper()
	if _, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Patch(w.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "kubectl-patch"}); err != nil {
		w.Fatal(err)
	}
}

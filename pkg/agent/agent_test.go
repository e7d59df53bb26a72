package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/kube"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Spoke, func(p *controlplane.Plane) error {
		plane = p
		return install.CRDs(context.Background(), p.REST(), crds.Spoke()...)
	})
}

// world is a source, a broker and an agent, on the package's cluster. Its broker
// has a name of its own, so that its AppliedManifestWorks are its own as well.
type world struct {
	*testing.T
	ctx        context.Context
	namespace  string
	host       string
	broker     *memory.Broker
	topics     wire.Topics
	cluster    *kubernetes.Clientset
	records    workclientv1.AppliedManifestWorkInterface
	stop       func() // ends the agent
	stopSource func() // ends the source started last
	requests   *requests
}

const (
	cluster = "cluster1"
	wait    = 30 * time.Second
)

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	w := &world{
		T: t, ctx: ctx, namespace: plane.Namespace(t, "agent"), host: "broker-" + strings.ToLower(t.Name()),
		broker:   memory.NewBroker(),
		topics:   wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"},
		cluster:  kubernetes.NewForConfigOrDie(plane.REST()),
		records:  workclient.NewForConfigOrDie(plane.REST()).WorkV1().AppliedManifestWorks(),
		requests: &requests{},
	}
	return w
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
	w.stopSource = w.run(client.Run)
	return client.ManifestWorks(cluster)
}

// agent starts the agent, which can be ended by w.stop.
func (w *world) agent(configure ...func(*agent.Config)) {
	w.Helper()
	config := agent.Config{
		Cluster: cluster, ClientID: cluster + "-agent", AgentID: w.host, BrokerHost: w.host, Topics: w.topics,
		Transport: w.broker.Client(cluster + "-agent"), Kube: w.requests.count(plane.REST()), SyncInterval: time.Second,
	}
	for _, c := range configure {
		c(&config)
	}
	a, err := agent.New(config)
	if err != nil {
		w.Fatal(err)
	}
	w.stop = w.run(a.Run)
}

// run runs something until the test ends or the function returned is called.
func (w *world) run(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.Errorf("ended with %v", err)
			}
		case <-time.After(wait):
			w.Error("does not end")
		}
	})
	w.Cleanup(stop)
	return stop
}

// eventually waits until check returns nothing that is wrong.
func (w *world) eventually(what string, check func() error) {
	w.Helper()
	deadline := time.Now().Add(wait)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: not within %v: %v", what, wait, err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-w.ctx.Done():
			w.Fatal(w.ctx.Err())
		}
	}
}

// work makes a work of manifests in YAML, NAMESPACE standing for the test's.
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
	created, err := works.Create(w.ctx, work, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return created
}

func (w *world) update(works workclientv1.ManifestWorkInterface, name string, change func(*workv1.ManifestWork)) {
	w.Helper()
	w.eventually("update "+name, func() error {
		work, err := works.Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(work)
		_, err = works.Update(w.ctx, work, metav1.UpdateOptions{})
		return err
	})
}

// is waits until the work has the conditions given as type=status, at its
// generation.
func (w *world) is(works workclientv1.ManifestWorkInterface, name string, conditions ...string) *workv1.ManifestWork {
	w.Helper()
	var work *workv1.ManifestWork
	w.eventually(fmt.Sprintf("%s is %v", name, conditions), func() (err error) {
		if work, err = works.Get(w.ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, want := range conditions {
			kind, status, _ := strings.Cut(want, "=")
			c := meta.FindStatusCondition(work.Status.Conditions, kind)
			if c == nil || string(c.Status) != status || c.ObservedGeneration != work.Generation {
				return fmt.Errorf("generation %d has %+v", work.Generation, work.Status.Conditions)
			}
		}
		return nil
	})
	return work
}

func (w *world) gone(works workclientv1.ManifestWorkInterface, name string) {
	w.Helper()
	w.eventually(name+" is gone", func() error {
		work, err := works.Get(w.ctx, name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it has %+v", work.Status.Conditions)
		}
		return ignoreNotFound(err)
	})
}

func (w *world) data(name, want string) {
	w.Helper()
	w.eventually(fmt.Sprintf("ConfigMap %s has %q", name, want), func() error {
		got, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(w.ctx, name, metav1.GetOptions{})
		if want == "" && err != nil {
			return ignoreNotFound(err)
		}
		if err != nil {
			return err
		}
		if got.Data["k"] != want {
			return fmt.Errorf("it has %v", got.Data)
		}
		return nil
	})
}

// recordsLeft waits until none of the world's records is left.
func (w *world) noRecords() {
	w.Helper()
	w.eventually("no AppliedManifestWork is left", func() error {
		list, err := w.records.List(w.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, record := range list.Items {
			if record.Spec.AgentID == w.host {
				return fmt.Errorf("%s is", record.Name)
			}
		}
		return nil
	})
}

// requests counts what the agent asks of its cluster, watches aside.
type requests struct {
	mu    sync.Mutex
	lines []string
}

func (r *requests) count(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if verb, _ := kube.Describe(request); verb != "watch" {
				r.mu.Lock()
				r.lines = append(r.lines, request.Method+" "+request.URL.Path)
				r.mu.Unlock()
			}
			return next.RoundTrip(request)
		})
	})
	return config
}

func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patch changes a ConfigMap as kubectl does.
func (w *world) patch(name, patch string) {
	w.Helper()
	if _, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "kubectl-patch"}); err != nil {
		w.Fatal(err)
	}
}

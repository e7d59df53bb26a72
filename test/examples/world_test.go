package examples

import (
	"cmp"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/examples"
	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

var (
	worksResource        = workv1.SchemeGroupVersion.WithResource("manifestworks")
	appliedWorksResource = workv1.SchemeGroupVersion.WithResource("appliedmanifestworks")
	deploymentsResource  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	jobsResource         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	configMapsResource   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	servicesResource     = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// site is a cluster at the hub with its agent, and a namespace on the cluster that the agents of
// all tests share.
type site struct {
	*world.World
	cluster string // at the hub: the agent's, and the namespace of its works
	target  string // on the cluster: what "default" stands for in examples
	hub     dynamic.Interface
	spoke   dynamic.Interface
}

// sites is the number of sites so far. The broker's users have their numbers.
var sites atomic.Int64

// newWorld starts the agent, which ends with the test.
func newWorld(t *testing.T, configure ...func(*agent.Config)) *site {
	t.Helper()
	w := &site{
		World: world.New(t, world.Options{Hub: hubPlane, Spokes: []*controlplane.Plane{spokePlane}, Source: source,
			Clusters: []wire.ClusterName{wire.ClusterName(fmt.Sprintf("cluster-%d", sites.Add(1)))}}),
		hub: dynamic.NewForConfigOrDie(hubPlane.REST()), spoke: dynamic.NewForConfigOrDie(spokePlane.REST()),
	}
	w.cluster, w.target = string(w.Clusters[0]), w.Targets[0]
	// The agents share a cluster: their AppliedManifestWorks need names of their own.
	w.BrokerHost, w.Broker = w.cluster+"."+brokerAddr, &brokertest.Running{Addr: brokerAddr}
	w.StartAgent(0, append(configure[:len(configure):len(configure)], func(c *agent.Config) {
		c.SyncInterval = cmp.Or(c.SyncInterval, time.Hour) // nothing may depend on polling
	})...)
	return w
}

// read returns a file of examples/ as the object that kubectl sends.
func read(t testing.TB, file string) *unstructured.Unstructured {
	t.Helper()
	text, err := examples.Files.ReadFile(file)
	kit.NoError(t, err)
	return parse(t, string(text))
}

func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	kit.NoError(t, err)
	obj := &unstructured.Unstructured{}
	kit.NoError(t, obj.UnmarshalJSON(data))
	return obj
}

// place moves an example to the test's cluster, and replaces the namespace "default" by the test's.
// It changes nothing else; TestEveryExampleIsAccepted takes the files as they are.
func (w *site) place(obj *unstructured.Unstructured) *unstructured.Unstructured {
	var rename func(value any)
	rename = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if value["namespace"] == "default" {
				value["namespace"] = w.target
			}
			for _, field := range value {
				rename(field)
			}
		case []any:
			for _, item := range value {
				rename(item)
			}
		}
	}
	rename(obj.Object)
	obj.SetNamespace(w.cluster)
	return obj
}

// apply creates the work of a file at the hub, and returns its name.
func (w *site) apply(file string, change ...func(spec map[string]any)) string {
	w.Helper()
	return w.create(w.place(read(w, file)), change...)
}

// applyText creates a work of this text at the hub, and returns its name.
func (w *site) applyText(text string) string {
	w.Helper()
	return w.create(w.place(parse(w, text)))
}

func (w *site) create(work *unstructured.Unstructured, change ...func(spec map[string]any)) string {
	w.Helper()
	for _, f := range change {
		f(work.Object["spec"].(map[string]any))
	}
	if _, err := w.works().Create(w.Context(), work, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		w.Fatal(err)
	}
	return work.GetName()
}

// edit changes the spec of a work at the hub.
func (w *site) edit(name string, change func(spec map[string]any)) {
	w.Helper()
	for {
		work, err := w.works().Get(w.Context(), name, metav1.GetOptions{})
		kit.NoError(w, err)
		change(work.Object["spec"].(map[string]any))
		_, err = w.works().Update(w.Context(), work, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
	}
}

func (w *site) delete(name string) {
	w.Helper()
	kit.NoError(w, w.works().Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// deleted deletes the work and waits until it is gone.
func (w *site) deleted(name string) {
	w.Helper()
	w.delete(name)
	w.gone(w.hub, worksResource, w.cluster, name)
}

func (w *site) works() dynamic.ResourceInterface {
	return w.hub.Resource(worksResource).Namespace(w.cluster)
}

// objects returns the client for a resource in the test's namespace on the cluster.
func (w *site) objects(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	return w.spoke.Resource(resource).Namespace(w.target)
}

// get returns an object of the test's namespace on the cluster, nil if there is none.
func (w *site) get(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.Helper()
	obj, err := w.objects(resource).Get(w.Context(), name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		w.Fatal(err)
	}
	return obj
}

// patch applies a merge patch to an object on the cluster, as another field manager.
func (w *site) patch(resource schema.GroupVersionResource, name, patch string, subresources ...string) {
	w.Helper()
	_, err := w.objects(resource).Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"}, subresources...)
	kit.NoError(w, err)
}

// remove deletes an object on the cluster.
func (w *site) remove(resource schema.GroupVersionResource, name string) {
	w.Helper()
	background := metav1.DeletePropagationBackground
	kit.NoError(w, w.objects(resource).Delete(w.Context(), name, metav1.DeleteOptions{PropagationPolicy: &background}))
}

// appliedName returns the name of a work's AppliedManifestWork.
func (w *site) appliedName(work string) string {
	return hash(w.BrokerHost) + "-" + work
}

// serviceAccount creates a ServiceAccount in the test's namespace.
func (w *site) serviceAccount(name string) {
	w.Helper()
	client := kubernetes.NewForConfigOrDie(spokePlane.REST())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(w.target).Create(w.Context(), account, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// field returns the value at a path in nested objects and lists: strings are fields, numbers are
// indices.
func field(value any, path ...any) any {
	for _, step := range path {
		switch at := value.(type) {
		case map[string]any:
			value = at[step.(string)]
		case []any:
			if step.(int) >= len(at) {
				return nil
			}
			value = at[step.(int)]
		default:
			return nil
		}
	}
	return value
}

// manifest returns a manifest of a work's spec.
func manifest(spec map[string]any, i int) map[string]any {
	return field(spec, "workload", "manifests", i).(map[string]any)
}

// set sets a value in nested objects. All fields of the path but the last exist.
func set(object map[string]any, value any, path ...any) {
	last := len(path) - 1
	field(object, path[:last]...).(map[string]any)[path[last].(string)] = value
}

// addManifest adds a manifest, in YAML, to a work's spec.
func (w *site) addManifest(spec map[string]any, text string) {
	w.Helper()
	added := parse(w, strings.ReplaceAll(text, "NAMESPACE", w.target)).Object
	set(spec, append(field(spec, "workload", "manifests").([]any), added), "workload", "manifests")
}

func text(format string, args ...any) string { return fmt.Sprintf(format, args...) }

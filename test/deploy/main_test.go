// Package deploy applies everything in deploy/ to real API servers with kubectl and Helm, as its
// users do, and runs agent and hub with exactly the rights that they have there.
//
// Each test has a control plane of its own: the tests change cluster-scoped objects.
package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/workwire/workwire/deploy/install"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// cluster is a control plane of the test's own, and a copy of deploy/.
type cluster struct {
	*testing.T
	*controlplane.Plane
	client *kubernetes.Clientset
	root   string // holds deploy/
	path   string // of the commands, for PATH
}

// newCluster starts a control plane that ends with the test. Its nodes are simulated: pods become
// ready with any image, and volumes are not mounted.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCopy(t)
	plane := controlplane.StartFor(t, controlplane.Spoke)
	c.Plane, c.client = plane, kubernetes.NewForConfigOrDie(plane.REST())
	return c
}

// newCopy copies deploy/ without starting a control plane, to render only.
func newCopy(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, root: t.TempDir(), path: repository(t) + "/bin:" + os.Getenv("PATH")}
	// As it is in the repository: without secrets that a user has put into the examples, and
	// without the files for Docker, which make e2e tests.
	copied := exec.Command("tar", "-C", "../..", "--exclude=deploy/compose", "--exclude=deploy/images",
		"--exclude=secrets", "--exclude=authority", "--exclude=testdata", "--exclude=*.go", "-cf", "-", "deploy")
	unpack := exec.Command("tar", "-C", c.root, "-xf", "-")
	var err error
	if unpack.Stdin, err = copied.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	kit.NoError(t, errors.Join(unpack.Start(), copied.Run(), unpack.Wait()))
	return c
}

// repository returns the root of this repository.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	kit.NoError(t, err)
	return dir
}

// run runs a shell script in the root of the copy and returns its output. What it defines is served then.
func (c *cluster) run(script string) (stdout string) {
	c.Helper()
	stdout, stderr, err := c.try(script)
	if err != nil {
		c.Fatalf("%s: %v\n%s%s", script, err, stdout, stderr)
	}
	if defines.MatchString(script) {
		c.served()
	}
	if strings.Contains(stderr, "Warning") {
		c.Errorf("%s warns:\n%s", script, stderr)
	}
	return stdout
}

// defines matches scripts that can create definitions.
var defines = regexp.MustCompile(`helm (install|upgrade)|kubectl (apply|create) .*(-k|-f)`)

// served waits until the API server serves all custom resources that are defined, and creates works with the
// policy of finalizers if there is one: it does seconds after it has accepted definitions and policy.
func (c *cluster) served() {
	c.Helper()
	if c.Plane == nil {
		return
	}
	definitions, err := metadata.NewForConfigOrDie(c.REST()).
		Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
		List(c.Context(), metav1.ListOptions{})
	kit.NoError(c, err)
	var names []string
	for _, definition := range definitions.Items {
		names = append(names, definition.Name)
	}
	ctx, cancel := context.WithTimeout(c.Context(), kit.Patience)
	defer cancel()
	kit.NoError(c, install.CRDsServed(ctx, c.REST(), names...))
	if _, err := c.client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(c.Context(), "workwire-finalizers", metav1.GetOptions{}); err != nil {
		return
	}
	works := workclient.NewForConfigOrDie(c.REST()).WorkV1().ManifestWorks(metav1.NamespaceDefault)
	probe := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	probe.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe"}}`)}}}
	kit.Eventually(c, "the policy gives works their finalizer", func() error {
		work, err := works.Create(c.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(work.Finalizers) == 0 {
			return errors.New("it has none")
		}
		return err
	})
}

func (c *cluster) try(script string) (stdout, stderr string, err error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 2*kit.Patience)
	defer cancel()
	cmd := c.command(ctx, "-c", script)
	if c.Plane != nil {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+c.Kubeconfig)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// command returns a bash in the root of the copy that ends at the first error.
func (c *cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", append([]string{"-euo", "pipefail"}, args...)...)
	cmd.Dir = c.root
	home := filepath.Join(c.root, "home") // for what kubectl and Helm keep
	cmd.Env = append(os.Environ(), "PATH="+c.path, "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	return cmd
}

// write writes a file below the root.
func (c *cluster) write(name, text string) {
	c.Helper()
	file := filepath.Join(c.root, name)
	kit.NoError(c, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)))
}

func (c *cluster) eventually(what string, check func(ctx context.Context) error) {
	c.Helper()
	kit.Eventually(c, what, func() error { return check(c.Context()) })
}

// helm puts helm into the PATH of the commands. It skips the test where it has not been built.
func (c *cluster) helm() {
	c.Helper()
	c.path = filepath.Dir(kit.Helm.Require(c)) + ":" + c.path
}

// volume creates a volume for a broker's claim: simulated nodes have none.
func (c *cluster) volume(name string) {
	c.Helper()
	_, err := c.client.CoreV1().PersistentVolumes().Create(c.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		},
	}, metav1.CreateOptions{})
	kit.NoError(c, err)
}

// secrets creates the files that the example overlays make Secrets of.
func (c *cluster) secrets() {
	c.Helper()
	c.run("workctl certs ensure --config=deploy/kustomize/example/certificates.yaml")
	for _, part := range []string{"agent", "hub", "broker"} {
		c.write("deploy/kustomize/example/"+part+"/secrets/token", "secret")
	}
}

// operator is the Go module with the definition of ServiceMonitors.
const operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

var downloadOperator = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", operator)
	cmd.Dir = os.TempDir() // it is no dependency
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &module); jsonErr != nil || module.Dir == "" {
		return "", fmt.Errorf("download %s: %w: %s %w", operator, err, module.Error, jsonErr)
	}
	return module.Dir, nil
})

// serviceMonitors installs the definition of ServiceMonitors.
func (c *cluster) serviceMonitors() {
	c.Helper()
	dir, err := downloadOperator()
	kit.NoError(c, err)
	c.run("kubectl create -f " + dir + "/example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml")
}

// workloadsAreReady waits for every Deployment and StatefulSet of a namespace.
func (c *cluster) workloadsAreReady(namespace string) {
	c.Helper()
	found := c.run("kubectl get deployments,statefulsets -o name -n " + namespace)
	if found == "" {
		c.Fatalf("no workload in %s", namespace)
	}
	for _, name := range strings.Fields(found) {
		if _, stderr, err := c.try("kubectl rollout status --timeout=180s -n " + namespace + " " + name); err != nil {
			described, _, _ := c.try("kubectl get events -n " + namespace + " --sort-by=.lastTimestamp | tail -20")
			c.Errorf("%s in %s: %s\n%s", name, namespace, stderr, described)
		}
	}
}

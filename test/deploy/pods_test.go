package deploy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
)

// process is the program of a pod of deploy/, run on this machine.
type process struct {
	*cluster
	name string
	dir  string // the pod's file system

	log kit.Log
}

// pod runs the binary of a workload that kustomize has rendered, with its arguments, its
// environment and its files. Paths are moved below a folder of its own, and replaced gives other
// addresses to listen and to connect to.
func (c *cluster) pod(objects map[string]*unstructured.Unstructured, key string, replaced *strings.Replacer, more ...string) *process {
	c.Helper()
	p := &process{cluster: c, name: objects[key].GetName(), dir: c.TempDir()}
	moved := strings.NewReplacer("/etc/workwire", p.dir+"/etc/workwire", "/var/lib/workwire", p.dir+"/var/lib/workwire")
	args := p.mount(objects, c.podSpec(objects[key]), func(text string) string { return moved.Replace(replaced.Replace(text)) })
	cmd := exec.Command(filepath.Join(repository(c.T), "bin", p.name), append(args, more...)...)
	cmd.Env, cmd.SysProcAttr = []string{"PATH=/nowhere"}, &syscall.SysProcAttr{}
	p.start(cmd)
	return p
}

// podSpec returns the pod that a workload makes.
func (c *cluster) podSpec(workload *unstructured.Unstructured) *corev1.PodSpec {
	c.Helper()
	template := &appsv1.Deployment{} // a StatefulSet has its template in the same place
	kit.NoError(c, runtime.DefaultUnstructuredConverter.FromUnstructured(workload.Object, template))
	return &template.Spec.Template.Spec
}

// mount writes the files of the pod's volumes below its folder, and returns its arguments, each as changed says.
func (p *process) mount(objects map[string]*unstructured.Unstructured, spec *corev1.PodSpec, changed func(string) string) (args []string) {
	p.Helper()
	for _, mount := range spec.Containers[0].VolumeMounts {
		folder := filepath.Join(p.dir, mount.MountPath)
		kit.NoError(p, os.MkdirAll(folder, 0o700))
		for file, content := range p.files(objects, spec.Volumes, mount.Name) {
			kit.NoError(p, os.WriteFile(filepath.Join(folder, file), []byte(changed(content)), 0o600))
		}
	}
	for _, arg := range spec.Containers[0].Args {
		for _, env := range spec.Containers[0].Env {
			from := env.ValueFrom.ConfigMapKeyRef
			value, _, _ := unstructured.NestedString(objects["ConfigMap "+from.Name].Object, "data", from.Key)
			arg = strings.ReplaceAll(arg, "$("+env.Name+")", value)
		}
		args = append(args, changed(arg))
	}
	return args
}

// start starts the program of the pod, which must end well with the test.
func (p *process) start(cmd *exec.Cmd) {
	p.Helper()
	cmd.Stderr = &p.log
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	kit.NoError(p, cmd.Start())
	p.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			p.Errorf("%s: %v\n%s", cmd, err, p.log.String())
		}
	})
}

// files gives what a volume holds.
func (c *cluster) files(objects map[string]*unstructured.Unstructured, volumes []corev1.Volume, name string) map[string]string {
	c.Helper()
	found := map[string]string{}
	secret := func(name string) {
		if objects["Secret "+name] == nil {
			c.Fatalf("there is no Secret %s", name)
		}
		data, _, _ := unstructured.NestedStringMap(objects["Secret "+name].Object, "data")
		for file, encoded := range data {
			text, err := base64.StdEncoding.DecodeString(encoded)
			kit.NoError(c, err)
			found[file] = string(text)
		}
	}
	for _, volume := range volumes {
		switch {
		case volume.Name != name:
		case volume.ConfigMap != nil:
			found, _, _ = unstructured.NestedStringMap(objects["ConfigMap "+volume.ConfigMap.Name].Object, "data")
		case volume.Secret != nil:
			secret(volume.Secret.SecretName)
		case volume.Projected != nil:
			for _, source := range volume.Projected.Sources {
				secret(source.Secret.Name)
			}
		}
	}
	return found
}

// kubeconfig is a file with the token of a ServiceAccount.
func (c *cluster) kubeconfig(namespace, name string) string {
	c.Helper()
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(c.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	kit.NoError(c, err)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.REST().Host, CertificateAuthorityData: c.REST().CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(c.root, name+".kubeconfig")
	kit.NoError(c, clientcmd.WriteToFile(*config, file))
	return file
}

// keys makes the keys of docs/signing.md and docs/sealing.md, and a policy for docs/owner-policy.md, and runs
// the commands for Kubernetes there. It adds what they make to the rendered objects.
func (c *cluster) keys(rendered map[string]map[string]*unstructured.Unstructured) {
	c.Helper()
	c.run("workctl keys new --key=signing.key; workctl keys public --key=signing.key --source=hub1 > trusted-keys.yaml")
	c.run("workctl keys new --key=agent.key; workctl keys public --key=agent.key --cluster=cluster1 > trusted-agents.yaml")
	c.run("workctl keys new --type=seal --key=unseal.key; mkdir seal-keys; workctl keys public --key=unseal.key > seal-keys/cluster1.pub")
	c.write("policy.yaml", "{requireSealed: true, deniedResources: [nodes]}")
	var commands []string
	for _, page := range []string{"signing.md", "sealing.md", "owner-policy.md"} {
		text, err := os.ReadFile(filepath.Join(repository(c.T), "docs", page))
		kit.NoError(c, err)
		for _, m := range regexp.MustCompile(`(?m)^ +\$ (kubectl create .*)$`).FindAllStringSubmatch(string(text), -1) {
			commands = append(commands, m[1])
		}
	}
	if len(commands) != 7 {
		c.Errorf("the pages have the commands %q", commands)
	}
	for _, command := range commands {
		c.run(command)
	}
	for part, object := range map[string][]string{
		"hub":   {"secret/work-hub-signing", "configmap/work-hub-seal-keys", "configmap/work-hub-trusted-agents"},
		"agent": {"secret/work-agent-unseal", "configmap/work-agent-trusted-keys", "secret/work-agent-signing", "configmap/work-agent-policy"},
	} {
		namespace := map[string]string{"hub": hubNamespace, "agent": agentNamespace}[part]
		for _, name := range object {
			maps.Copy(rendered[part], objectsOf(c.T, []byte(c.run("kubectl get -o yaml -n "+namespace+" "+name))))
		}
	}
}

// TestWhatPodsRun runs the three binaries as the pods of the example overlays would: with those
// arguments, configurations, certificates and rights. A work goes all the way, signed and sealed, probes are answered
// without a token, and metrics to who does what the ServiceMonitor says.
func TestWhatPodsRun(t *testing.T) {
	c := newCluster(t)
	c.serviceMonitors()
	c.volume("data")
	// The names that everybody is called by on this machine.
	c.run("sed -i 's/hosts: \\[broker.example.com, /&127.0.0.1, /' deploy/kustomize/example/certificates.yaml")
	c.secrets()
	rendered := map[string]map[string]*unstructured.Unstructured{}
	for part, overlay := range map[string]string{
		"broker": "deploy/kustomize/example/broker", "hub": c.overlay("hub", "signing", "trusted-agents", "sealing"),
		"agent": c.overlay("agent", "trusted-keys", "signing", "unseal", "owner-policy"),
	} {
		rendered[part] = objectsOf(t, []byte(c.run("kubectl kustomize "+overlay)))
		c.run("kubectl apply -k " + overlay)
	}
	c.keys(rendered)

	local := []string{":8883", "127.0.0.1:0", ":9641", "127.0.0.1:0", ":8443", "127.0.0.1:0"}
	broker := c.pod(rendered["broker"], "StatefulSet work-broker", strings.NewReplacer(local...))
	address := broker.log.Await(c, `"broker ready","addresses":\["([^"]+)"\]`)
	local = append([]string{"broker.example.com:8883", address, "work-broker.workwire-broker.svc:8883", address}, local...)
	hub := c.pod(rendered["hub"], "Deployment work-hub", strings.NewReplacer(local...),
		"--kubeconfig="+c.kubeconfig(hubNamespace, "work-hub"), "--leader-election-namespace="+hubNamespace)
	agent := c.pod(rendered["agent"], "Deployment work-agent", strings.NewReplacer(local...),
		"--kubeconfig="+c.kubeconfig(agentNamespace, agentSA), "--leader-election-namespace="+agentNamespace)

	// The hub's example registers clusters, which somebody accepts.
	client := versioned.NewForConfigOrDie(c.REST())
	c.eventually("the cluster registers", func(ctx context.Context) error {
		_, err := client.ClusterV1().ManagedClusters().Get(ctx, served, metav1.GetOptions{})
		return err
	})
	c.run(`kubectl patch managedcluster cluster1 --type=merge -p '{"spec":{"hubAcceptsClient":true}}'`)
	c.run(`kubectl create --validate=strict -f - <<'END'
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: hello, namespace: cluster1}
spec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: hello, namespace: default}}]}}
END`)
	c.eventually("the work is applied", func(ctx context.Context) error {
		work, err := client.WorkV1().ManifestWorks(served).Get(ctx, "hello", metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) {
			err = fmt.Errorf("status %+v", work.Status)
		}
		return err
	})

	hub.log.Await(c, `"key of a cluster read","file":"[^"]*/seal-keys/cluster1.pub"`)
	broker.scraped(rendered["broker"], "StatefulSet", broker.log.Await(c, `"broker ready".*"http":"([^"]+)"`))
	for part, p := range map[string]*process{"hub": hub, "agent": agent} {
		p.scraped(rendered[part], "Deployment", p.log.Await(p, `serving metrics and health","address":"([^"]+)","tls":true`))
		if strings.Contains(p.log.String(), "forbidden") {
			t.Errorf("%s is refused something:\n%s", p.name, p.log.String())
		}
	}
}

// scraped probes the listener as a kubelet does, and reads metrics as Prometheus does by the
// ServiceMonitor.
func (p *process) scraped(objects map[string]*unstructured.Unstructured, kind, address string) {
	p.Helper()
	container := p.podSpec(objects[kind+" "+p.name]).Containers[0]
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		kubelet := &tls.Config{InsecureSkipVerify: true} // as kubelets do
		url := strings.ToLower(string(probe.HTTPGet.Scheme)) + "://" + address + probe.HTTPGet.Path
		p.eventually(p.name+" answers "+url, func(ctx context.Context) error {
			status, body, err := get(ctx, url, kubelet, "")
			if err == nil && (status != http.StatusOK || strings.TrimSpace(body) != "ok") {
				err = fmt.Errorf("%d %s", status, body)
			}
			return err
		})
	}

	endpoints, _, _ := unstructured.NestedSlice(objects["ServiceMonitor "+p.name].Object, "spec", "endpoints")
	endpoint := endpoints[0].(map[string]any)
	from := func(path ...string) string { // what a reference to a Secret's key means
		reference, found, err := unstructured.NestedStringMap(endpoint, path...)
		if !found || err != nil {
			p.Fatalf("the ServiceMonitor has no %v: %v", path, err)
		}
		encoded, _, _ := unstructured.NestedString(objects["Secret "+reference["name"]].Object, "data", reference["key"])
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(text) == 0 {
			p.Fatalf("%v refers to nothing: %v", reference, err)
		}
		return string(text)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM([]byte(from("tlsConfig", "ca", "secret")))
	serverName, _, _ := unstructured.NestedString(endpoint, "tlsConfig", "serverName")
	prometheus := &tls.Config{RootCAs: authorities, ServerName: serverName}
	url := endpoint["scheme"].(string) + "://" + address + "/metrics"
	for token, want := range map[string]int{from("authorization", "credentials"): http.StatusOK, "": http.StatusUnauthorized} {
		status, body, err := get(p.Context(), url, prometheus, token)
		if err != nil || status != want || (want == http.StatusOK) != strings.Contains(body, "go_goroutines") {
			p.Errorf("%s with token %q: %d %v, want %d", url, token, status, err, want)
		}
	}
}

func get(ctx context.Context, url string, config *tls.Config, token string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), errors.Join(err, response.Body.Close())
}

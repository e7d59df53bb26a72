package deploy

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// TestRelease installs what a release has published by the commands of docs/install.md: the chart, which names the
// images by digest, workctl and the example of its certificates. It says how long the first work takes. The nodes of the
// cluster are simulated, so the programs of the images run here, each as the user and below the root of its image, in
// place of containers: there are no Services, network policies, cgroups or read-only roots.
func TestRelease(t *testing.T) {
	published := os.Getenv("WORKWIRE_RELEASE")
	if published == "" {
		t.Skip("left out: hack/release.sh --dry-run runs it")
	}
	c := &cluster{T: t, root: t.TempDir(), Plane: controlplane.StartFor(t, controlplane.Spoke)}
	c.path, c.client = c.root+":"+os.Getenv("PATH")+":"+repository(t)+"/bin", kubernetes.NewForConfigOrDie(c.REST())
	c.volume("data")
	charts, err := filepath.Glob(published + "/workwire-[0-9]*.tgz")
	if err != nil || len(charts) != 1 {
		t.Fatalf("the charts %q, %v", charts, err)
	}
	start := time.Now()
	c.run("for archive in " + published + "/workwire{_*_linux_" + runtime.GOARCH + ",-kustomize_*}.tar.gz; do tar -xzf $archive; done")
	c.run("sed -i 's/hosts: \\[broker.example.com, /&127.0.0.1, /' deploy/kustomize/example/certificates.yaml")
	guide := installationGuide(t)
	c.run(guide["Certificates"][0])
	chart := strings.NewReplacer("deploy/helm/workwire", charts[0], " \\\n  --set image.registry=registry.example.com/workwire", "")
	local := []string{":8883", "127.0.0.1:0", ":9641", "127.0.0.1:0", ":8443", "127.0.0.1:0"}
	for i, part := range []struct{ namespace, key, ready string }{
		{brokerNamespace, "StatefulSet work-broker", `"broker ready","addresses":\["([^"]+)"\]`},
		{hubNamespace, "Deployment work-hub", `"connected to the broker"`}, {agentNamespace, "Deployment work-agent", `"connected to the broker"`},
	} {
		c.run(chart.Replace(guide["With Helm"][i]))
		p := c.container(part.namespace, part.key, strings.NewReplacer(local...))
		if at := p.log.Await(c, part.ready); i == 0 {
			local = append([]string{"broker.example.com:8883", at, "work-broker.workwire-broker.svc:8883", at}, local...)
		}
	}
	c.run("until kubectl get managedcluster cluster1; do sleep 0.1; done 2>/dev/null")
	c.run(`kubectl patch managedcluster cluster1 --type=merge -p '{"spec":{"hubAcceptsClient":true}}'`)
	c.run(`kubectl create --validate=strict -f - <<'END'
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: hello, namespace: cluster1}
spec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: hello, namespace: default}}]}}
END
kubectl wait --for=condition=Applied --timeout=2m manifestwork/hello -n cluster1`)
	t.Logf("release: from nothing to the first applied work: %.1f s", time.Since(start).Seconds())
	c.run("kubectl get configmap hello -n default; workctl explain work/hello -n cluster1")
}

// container runs the program of a workload in the root of its image, which it pulls, with what the pod would have.
func (c *cluster) container(namespace, key string, replaced *strings.Replacer) *process {
	c.Helper()
	objects := c.objectsIn(namespace)
	spec := c.podSpec(objects[key])
	p := &process{cluster: c, name: objects[key].GetName(), dir: c.TempDir()}
	crane := "crane --platform=linux/" + runtime.GOARCH + " "
	image := spec.Containers[0].Image
	if !strings.Contains(image, "@sha256:") {
		c.Errorf("the image %s has no digest", image)
	}
	c.run(crane + "export " + image + " - | tar -xC " + p.dir)
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		}
	}
	kit.NoError(c, json.Unmarshal([]byte(c.run(crane+"config "+image)), &config))
	user, err := strconv.Atoi(strings.Split(config.Config.User, ":")[0])
	kit.NoError(c, err)
	args := slices.Concat(config.Config.Entrypoint, p.mount(objects, spec, replaced.Replace))
	server, err := url.Parse(c.REST().Host)
	kit.NoError(c, err)
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		p.account(namespace, spec.ServiceAccountName)
	}
	c.run("chown -R " + config.Config.User + " " + p.dir + "/etc " + p.dir + "/var")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.dir, Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
	p.start(cmd)
	return p
}

// account writes what a kubelet mounts of a ServiceAccount.
func (p *process) account(namespace, name string) {
	p.Helper()
	token, err := p.client.CoreV1().ServiceAccounts(namespace).CreateToken(p.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	kit.NoError(p, err)
	folder := filepath.Join(p.dir, "var/run/secrets/kubernetes.io/serviceaccount")
	kit.NoError(p, os.MkdirAll(folder, 0o755))
	for file, text := range map[string]string{"token": token.Status.Token, "ca.crt": string(p.REST().CAData), "namespace": namespace} {
		kit.NoError(p, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
	}
}

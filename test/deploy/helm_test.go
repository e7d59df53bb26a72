package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit"
)

// parts are releases of the chart, each with all that it offers.
var parts = map[string]string{
	"agent": "-n " + agentNamespace + " --set agent.enabled=true,agent.clusterName=cluster1,agent.rbac.profile=ocm,agent.rbac.impersonate=true" +
		",brokerHost=broker.example.com:8883",
	"hub": "-n " + hubNamespace + " --set hub.enabled=true,hub.dashboard.enabled=true,hub.dashboard.namespace=ingress,hub.extraArgs={--auto-register}" +
		",brokerHost=work-broker.workwire-broker.svc:8883",
	"broker": "-n " + brokerNamespace + " --set broker.enabled=true,broker.service.type=LoadBalancer",
}

const around = " --set monitoring.enabled=true,networkPolicy.restrictEgress=true,image.registry=registry.example.com/workwire"

// components are those that the chart offers as values and the examples do not have.
var components = map[string][]string{
	"agent": {"ocm-rights", "impersonation", "restrict-egress", "trusted-keys", "owner-policy", "signing", "unseal"}, "hub": {"restrict-egress", "signing", "trusted-agents", "sealing", "join", "cluster-profiles", "dashboard", "dashboard-service"},
}

// keyed are the flags for signed specs and statuses, and sealed data.
var keyed = map[string]string{
	"agent": " --set agent.trustedKeys=work-agent-trusted-keys,agent.policy=work-agent-policy,agent.signing.secret=work-agent-signing,agent.unseal.secret=work-agent-unseal",
	"hub": " --set hub.signing.secret=work-hub-signing,hub.trustedAgents=work-hub-trusted-agents,hub.sealing.keys=work-hub-seal-keys" +
		",hub.join.enabled=true,hub.join.authoritySecret=work-hub-join-authority,hub.clusterProfiles.namespace=cluster-inventory",
}

// TestChartIsKustomize compares what the chart and the example overlays say, with everything that
// both offer: it is the same, but for what each of the two does its own way.
func TestChartIsKustomize(t *testing.T) {
	c := newCopy(t)
	c.helm()
	c.secrets()
	for part, flags := range parts {
		chart := objectsOf(t, []byte(c.run("helm template workwire deploy/helm/workwire "+flags+around+keyed[part])))
		overlay := objectsOf(t, []byte(c.run("kubectl kustomize "+c.overlay(part, components[part]...))))
		for _, objects := range []map[string]*unstructured.Unstructured{chart, overlay} {
			for key, obj := range objects {
				// Helm does not make namespaces. It makes Secrets of its own, and names
				// configurations otherwise.
				if kind := obj.GetKind(); kind == "Namespace" || kind == "Secret" || kind == "ConfigMap" {
					delete(objects, key)
				}
				level(t, obj)
			}
		}
		if len(overlay) < 6 {
			t.Errorf("only %d objects of the %s to compare", len(overlay), part)
		}
		if diff := cmp.Diff(overlay, chart); diff != "" {
			t.Errorf("%s: kustomize (-) and Helm (+) differ:\n%s", part, diff)
		}
	}
}

// TestJoinOfTheChart: an agent that joins with a token is the same by the chart and by kustomize, and has no certificate of the broker; the
// chart makes the Secret with the token once.
func TestJoinOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	c.secrets()
	template := "helm template workwire deploy/helm/workwire " + parts["agent"] + around
	chart := objectsOf(t, []byte(c.run(template+" --set agent.join.secret=work-agent-join")))
	overlay := objectsOf(t, []byte(c.run("kubectl kustomize "+c.overlay("agent", "join", "ocm-rights", "impersonation", "restrict-egress"))))
	for _, objects := range []map[string]*unstructured.Unstructured{chart, overlay} {
		for key, obj := range objects {
			if level(t, obj); !strings.HasPrefix(key, "Deployment ") && !strings.Contains(key, "work-agent-join") {
				delete(objects, key)
			}
		}
	}
	if diff := cmp.Diff(overlay, chart); diff != "" || len(chart) != 3 {
		t.Errorf("of %d objects, kustomize (-) and Helm (+) differ:\n%s", len(chart), diff)
	}
	const alone = "helm template workwire deploy/helm/workwire --set agent.enabled=true,agent.clusterName=berlin"
	if out := c.run(alone + ",agent.join.token=workwire-join-abc"); !strings.Contains(out, "token: \"workwire-join-abc\"") || strings.Contains(out, "secretName: work-agent-broker") {
		t.Errorf("with a token:\n%s", out)
	}
	if out := c.run("helm template workwire deploy/helm/workwire --set broker.enabled=true,broker.joinerPasswordHash='$2a$10$abc'"); strings.Contains(out, "requireClientCert") || !strings.Contains(out, "role: joiner") {
		t.Errorf("a broker with joiners:\n%s", out)
	}
	const configured = "helm template workwire deploy/helm/workwire --set broker.enabled=true,broker.joinerPasswordHash='$2a$10$abc',broker.webSocketPath=/mqtt" +
		",broker.config.users[0].username=ops,broker.config.users[0].role=observer,broker.config.listeners[0].address=:8883"
	for _, flags := range []string{
		"", ",broker.config.users[1].username=joiner,broker.config.users[1].role=joiner",
		",broker.config.listeners[1].address=:8443,broker.config.listeners[1].webSocketPath=/own",
	} {
		out := c.run(configured + flags)
		if strings.Count(out, "role: joiner") != 1 || !strings.Contains(out, "role: observer") || strings.Count(out, "address: :8883") != 1 || strings.Count(out, "webSocketPath: ") != 1 {
			t.Errorf("a broker with joiners and %q:\n%s", configured+flags, out)
		}
	}
	if _, stderr, err := c.try(alone + ",agent.join.secret=s,networkPolicy.restrictEgress=true"); err == nil || !strings.Contains(stderr, "needs brokerHost") {
		t.Errorf("egress to a broker that nobody names: %v %s", err, stderr)
	}
	if _, stderr, err := c.try(alone + ",agent.join.token=hunter2"); err == nil || !strings.Contains(stderr, "token") {
		t.Errorf("with no token: %v %s", err, stderr)
	}
}

// TestTokenOfTheChart: an upgrade leaves what a cluster has made of its token, in whatever namespace.
func TestTokenOfTheChart(t *testing.T) {
	c := newCluster(t)
	c.helm()
	const token = " -n edge -o jsonpath={.data.token} secret work-agent-join"
	c.run("helm install edge deploy/helm/workwire -n edge --create-namespace --set agent.enabled=true,agent.clusterName=berlin,agent.join.token=workwire-join-abc")
	before := c.run("kubectl get" + token)
	c.run(`kubectl patch secret -n edge work-agent-join -p '{"data":{"token":"'$(echo joined | base64)'"}}'`)
	c.run("helm upgrade edge deploy/helm/workwire -n edge --reset-then-reuse-values")
	if after := c.run("kubectl get" + token); before == "" || after != "am9pbmVkCg==" {
		t.Errorf("the token is %q, and after the upgrade %q", before, after)
	}
}

// TestAccountOfOthersAndTheChart: the chart leaves the definition and the account that Open Cluster Management has made to it, from the install to the end.
func TestAccountOfOthersAndTheChart(t *testing.T) {
	c := newCluster(t)
	c.helm()
	c.run("kubectl create namespace " + agentNamespace + " && kubectl create serviceaccount klusterlet-work-sa -n " + agentNamespace + " && kubectl apply -k deploy/kustomize/agent/crds")
	const account = "kubectl get serviceaccount klusterlet-work-sa -o jsonpath={.metadata.uid} -n " + agentNamespace
	before := c.run(account)
	c.run("helm install agent deploy/helm/workwire " + parts["agent"] + " --set crds.install=false,agent.serviceAccount.create=false")
	c.run("helm uninstall agent -n " + agentNamespace)
	if after := c.run(account); before == "" || after != before {
		t.Errorf("the account had the UID %q, and after the release %q", before, after)
	}
}

// TestStateOfTheChart: a volume of another kind takes the place of the emptyDir, also by an upgrade, and the pod that has it ends before the next one begins.
func TestStateOfTheChart(t *testing.T) {
	c := newCluster(t)
	c.helm()
	const volume = ",agent.stateVolume.persistentVolumeClaim.claimName=state,agent.replicas="
	if _, stderr, err := c.try("helm template agent deploy/helm/workwire " + parts["agent"] + volume + "2"); err == nil || !strings.Contains(stderr, "needs agent.replicas=1") {
		t.Errorf("two replicas with one volume: %v %s", err, stderr)
	}
	c.run("helm install agent deploy/helm/workwire --create-namespace " + parts["agent"])
	c.run("helm upgrade agent deploy/helm/workwire " + parts["agent"] + volume + "1")
	const want = `Recreate {"name":"state","persistentVolumeClaim":{"claimName":"state"}}`
	if got := c.run(`kubectl get deployment work-agent -n ` + agentNamespace + ` -o jsonpath='{.spec.strategy.type} {.spec.template.spec.volumes[?(@.name=="state")]}'`); got != want {
		t.Errorf("the Deployment has %s, want %s", got, want)
	}
}

// TestClaimsOfTheChart: agent.clusterClaims adds what kustomize has for ClusterClaims, and nothing else.
func TestClaimsOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	template := "helm template workwire deploy/helm/workwire " + parts["agent"]
	with, without := objectsOf(t, []byte(c.run(template+" --set agent.clusterClaims=true"))), objectsOf(t, []byte(c.run(template)))
	claims := objectsOf(t, []byte(c.run("kubectl kustomize deploy/kustomize/agent/cluster-claims")))
	for key := range claims {
		level(t, claims[key])
		if with[key] == nil || without[key] != nil {
			t.Errorf("%s: with agent.clusterClaims %v, without %v", key, with[key] != nil, without[key] != nil)
			continue
		}
		level(t, with[key])
		if diff := cmp.Diff(claims[key], with[key]); diff != "" {
			t.Errorf("%s: kustomize (-) and Helm (+) differ:\n%s", key, diff)
		}
	}
	if len(claims) != 1 || len(with) != len(without)+1 {
		t.Errorf("%d definitions; %d objects, %d without", len(claims), len(with), len(without))
	}
}

// TestProfilesOfTheChart compares the agent's rights of each profile, of the chart and of kustomize.
func TestProfilesOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	for profile, component := range map[string]string{"": "", "own": "own-rights", "workloads": "", "admin": "admin-rights", "ocm": "ocm-rights"} {
		flags := ""
		if profile != "" {
			flags = ",agent.rbac.profile=" + profile
		}
		chart := objectsOf(t, []byte(c.run("helm template x deploy/helm/workwire -n "+agentNamespace+" --set agent.enabled=true,agent.clusterName=c1,brokerHost=b:1"+flags)))
		overlay := objectsOf(t, []byte(c.run("kubectl kustomize "+c.rights(component))))
		for _, objects := range []map[string]*unstructured.Unstructured{chart, overlay} {
			for key, obj := range objects {
				if obj.GroupVersionKind().Group != "rbac.authorization.k8s.io" {
					delete(objects, key)
				}
			}
		}
		if diff := cmp.Diff(overlay, chart); diff != "" || len(chart) < 6 {
			t.Errorf("profile %q: %d objects; kustomize (-) and Helm (+) differ:\n%s", profile, len(chart), diff)
		}
	}
}

// level takes out of an object what kustomize and Helm do their own ways.
func level(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	// Numbers become of one type.
	text, err := json.Marshal(obj.Object)
	kit.NoError(t, err)
	// Kustomize writes a blank line more than there is where it folds the text of an expression.
	text = bytes.ReplaceAll(text, []byte(`\n\n`), []byte(`\n`))
	obj.Object = nil
	kit.NoError(t, json.Unmarshal(text, &obj.Object))
	annotations := obj.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	obj.SetAnnotations(annotations)
	pod, found, err := unstructured.NestedMap(obj.Object, "spec", "template")
	if !found || err != nil {
		if obj.GetKind() == "Service" {
			unstructured.RemoveNestedField(obj.Object, "spec", "externalTrafficPolicy") // the example's
		}
		return
	}
	unstructured.RemoveNestedField(pod, "metadata", "annotations")
	containers, _, _ := unstructured.NestedSlice(pod, "spec", "containers")
	container := containers[0].(map[string]any)
	delete(container, "env")
	delete(container, "imagePullPolicy")
	args := container["args"].([]any)
	for i := range args {
		args[i] = strings.NewReplacer("$(CLUSTER_NAME)", "cluster1", "$(SOURCE_ID)", "hub1").Replace(args[i].(string))
	}
	volumes, _, _ := unstructured.NestedSlice(pod, "spec", "volumes")
	for _, volume := range volumes {
		if configMap, ok := volume.(map[string]any)["configMap"].(map[string]any); ok {
			configMap["name"] = obj.GetName() // kustomize adds a hash
		}
	}
	for field, value := range map[string][]any{"containers": containers, "volumes": volumes} {
		kit.NoError(t, unstructured.SetNestedSlice(pod, value, "spec", field))
	}
	kit.NoError(t, unstructured.SetNestedMap(obj.Object, pod, "spec", "template"))
}

// TestHelm installs, changes and removes releases of the packaged chart.
func TestHelm(t *testing.T) {
	c := newCluster(t)
	c.helm()
	c.serviceMonitors()
	c.volume("data")
	for _, flags := range parts {
		_, flags, _ = strings.Cut(flags, "--set")
		c.run("helm lint --strict deploy/helm/workwire --set" + flags + around)
	}
	c.run("helm package deploy/helm/workwire -d .")
	for part, flags := range parts {
		c.run("helm install " + part + " workwire-*.tgz --create-namespace " + flags)
	}
	namespaces := map[string]string{"agent": agentNamespace, "hub": hubNamespace, "broker": brokerNamespace}
	for _, namespace := range namespaces {
		c.workloadsAreReady(namespace)
	}
	c.run("kubectl create namespace cluster1")
	c.run(`kubectl create --validate=strict -f - <<'END'
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: kept, namespace: cluster1}
spec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default}}]}}
END`)
	listeners := func() string {
		return c.run("kubectl get secrets -A -l app.kubernetes.io/part-of=workwire -o jsonpath='{range .items[*]}{.metadata.name} {.data}{end}'")
	}
	before := listeners()
	if strings.Count(before, "tls.key") != 2 || strings.Count(before, `"token"`) != 3 {
		t.Errorf("Secrets %q", before)
	}

	for part, flags := range parts {
		if part != "broker" {
			flags += "," + part + ".replicas=1"
		}
		c.run("helm upgrade " + part + " workwire-*.tgz " + flags + around)
		c.workloadsAreReady(namespaces[part])
		want := 2 // and one for each of these
		for _, component := range components[part] {
			if component == "restrict-egress" || component == "dashboard-service" {
				want++
			}
		}
		c.run(fmt.Sprintf("kubectl get servicemonitor,networkpolicy -n %s -o name | grep -c work- | grep -qx %d", namespaces[part], want))
	}
	if replicas := c.run("kubectl get deployment -n " + agentNamespace + " work-agent -o jsonpath={.spec.replicas}"); replicas != "1" {
		t.Errorf("%s replicas after the upgrade", replicas)
	}
	if after := listeners(); after != before {
		t.Error("the upgrade has replaced the listeners' Secrets")
	}

	for part := range parts {
		// Not with --wait: Kubernetes' controller of aggregated ClusterRoles applies the one that
		// it has just seen, and so may bring it back (docs/install.md, What stays).
		c.run("helm uninstall " + part + " -n " + namespaces[part])
		c.run("kubectl delete clusterrole workwire-agent-aggregate --ignore-not-found")
		// Definitions stay, and the works; the queue's volume as well.
		c.run("! kubectl get deployment,statefulset,clusterrole,clusterrolebinding -A -l app.kubernetes.io/part-of=workwire -o name | grep -E 'work(wire)?-'" + part)
	}
	c.run("kubectl get manifestwork -n cluster1 kept; kubectl get appliedmanifestworks; kubectl get pvc -n " + brokerNamespace + " data-work-broker-0")
	for part, flags := range parts {
		c.run("helm install " + part + " workwire-*.tgz " + flags)
		c.workloadsAreReady(namespaces[part])
	}
}

// TestChartRefuses says what is wrong before anything is installed.
func TestChartRefuses(t *testing.T) {
	c := newCopy(t)
	c.helm()
	for flags, want := range map[string]string{
		"":                                     "nothing is enabled",
		"agent.enabled=true,brokerHost=b:8883": "agent.clusterName is required",
		"agent.enabled=true,agent.clusterName=c1":                                          "brokerHost is required",
		"agent.enabled=true,agent.clusterName=c1,brokerHost=mqtts://b:1":                   "brokerHost",
		"agent.enabled=true,agent.clusterName=C_1,brokerHost=b:1":                          "clusterName",
		"hub.enabled=true,brokerHost=b:1,hub.replica=2":                                    "replica",
		"hub.enabled=true,brokerHost=b:1,hub.extraArgs={auto-register}":                    "extraArgs",
		"broker.enabled=true,broker.service.type=ExternalName":                             "type",
		"broker.enabled=true,image.digests.work-broker=sha256:0":                           "digests",
		"agent.enabled=true,agent.clusterName=c1,brokerHost=b:1,agent.unseal.require={*}":  "needs agent.unseal.secret",
		"agent.enabled=true,agent.clusterName=c1,brokerHost=b:1,agent.rbac.profile=all":    "profile",
		"hub.enabled=true,brokerHost=b:1,hub.sealing.keys=k":                               "needs hub.signing.secret",
		"hub.enabled=true,brokerHost=b:1,hub.sealing.require={*}":                          "needs hub.sealing.keys",
		"hub.enabled=true,brokerHost=b:1,hub.sealing.require={Cluster1}":                   "require",
		"agent.enabled=true,agent.clusterName=c1,brokerHost=b:1,agent.image=mine":          "image",
		"hub.enabled=true,brokerHost=b:1,hub.dashboard.namespace=ingress":                  "needs hub.dashboard.enabled",
		"hub.enabled=true,brokerHost=b:1,tracing.headersSecret=s":                          "need tracing.endpoint",
		"hub.enabled=true,brokerHost=b:1,tracing.endpoint=http://collector:4318":           "endpoint",
		"hub.enabled=true,brokerHost=b:1,tracing.endpoint=https://u:p@collector":           "endpoint",
		"hub.enabled=true,brokerHost=b:1,tracing.samplingRatio=2":                          "samplingRatio",
		"hub.enabled=true,brokerHost=ws://b/mqtt":                                          "brokerHost",
		"hub.enabled=true,brokerHost=b:1,proxy.url=http://u:p@proxy:3128":                  "url",
		"hub.enabled=true,brokerHost=b:1,proxy.secret=s,networkPolicy.restrictEgress=true": "needs proxy.url",
	} {
		_, stderr, err := c.try(fmt.Sprintf("helm template x deploy/helm/workwire --set '%s'", flags))
		if err == nil || !strings.Contains(stderr, want) {
			t.Errorf("%q: %v, %q does not name %q", flags, err, stderr, want)
		}
	}
}

// TestFinalizerPolicyOfTheChart: where the API server serves such policies, unless it is switched off.
func TestFinalizerPolicyOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	const served = " --api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
	for flags, want := range map[string]int{
		"": 0, served: 2, served + " --set hub.finalizerPolicy=false": 0, served + " --set hub.policies=false": 0,
	} {
		out := c.run("helm template x deploy/helm/workwire --set brokerHost=b:1,hub.enabled=true" + flags)
		if got := strings.Count(out, "\n  name: workwire-finalizers"); got != want {
			t.Errorf("%q: %d objects of the policy, want %d", flags, got, want)
		}
	}
}

// TestKeysOfTheChart: nothing is signed or sealed by default; while a key is replaced, the agent has two.
func TestKeysOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	args := func(flags string) string {
		out := c.run("helm template x deploy/helm/workwire --set brokerHost=b:1," + flags)
		for name, obj := range objectsOf(t, []byte(out)) {
			if strings.HasPrefix(name, "Deployment ") {
				containers, _, _ := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
				return fmt.Sprint(containers[0].(map[string]any)["args"])
			}
		}
		return ""
	}
	hub, agent := "hub.enabled=true", "agent.enabled=true,agent.clusterName=c1"
	for flags, want := range map[string]string{
		hub + ",hub.signing.secret=s": "--signing-key=/etc/workwire/signing/signing.key",
		hub + ",hub.signing.secret=s,hub.sealing.keys=k,hub.sealing.require={c1,c2}": "--seal-keys=/etc/workwire/seal-keys --require-sealing=c1,c2",
		hub + ",hub.signing.secret=s,hub.sealing.keys=k,hub.sealing.require={*}":     "--require-sealing=*",
		agent + ",agent.unseal.secret=s,agent.unseal.keys={next.key,unseal.key}":     "--unseal-key=/etc/workwire/unseal/next.key,/etc/workwire/unseal/unseal.key",
		agent + ",agent.unseal.secret=s,agent.unseal.require={hub1,hub2}":            "--unseal-key=/etc/workwire/unseal/unseal.key --require-sealed=hub1,hub2",
		hub + ",hub.trustedAgents=k":      "--trusted-agents=/etc/workwire/trusted-agents/trusted-agents.yaml",
		agent + ",agent.signing.secret=s": "--signing-key=/etc/workwire/signing/signing.key",
		agent + ",agent.policy=k":         "--policy=/etc/workwire/policy/policy.yaml",
		agent + ",agent.trustedKeys=k":    "--trusted-keys=/etc/workwire/trusted-keys/trusted-keys.yaml",
	} {
		if got := args("'" + flags + "'"); !strings.Contains(got, want) {
			t.Errorf("%s: flags %s, want %s", flags, got, want)
		}
	}
	for _, flags := range []string{hub, agent} {
		if got := args(flags); got == "" || strings.Contains(got, "sign") || strings.Contains(got, "seal") || strings.Contains(got, "trusted") {
			t.Errorf("%s: flags %s", flags, got)
		}
	}
}

// TestTracingOfTheChart: agent and hub send traces to a collector that the network policies let them reach.
func TestTracingOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	for part, flags := range map[string]string{"agent": parts["agent"], "hub": parts["hub"]} {
		release := "helm template workwire deploy/helm/workwire " + flags + ",networkPolicy.restrictEgress=true,tracing.samplingRatio=0.25,tracing.endpoint=https://collector.tracing"
		out := c.run(release + ":4318/v1/traces,tracing.headersSecret=h,tracing.ca=authorities" + keyed[part])
		for _, want := range []string{
			"--otlp-endpoint=https://collector.tracing:4318/v1/traces", "--otlp-sampling-ratio=0.25", "--otlp-headers-file=/etc/workwire/tracing/headers",
			"--otlp-ca-file=/etc/workwire/tracing/ca.crt", "mountPath: /etc/workwire/tracing", "mountPath: /etc/workwire/signing", "{port: 4318, protocol: TCP}",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %s", part, want)
			}
		}
		objects := objectsOf(t, []byte(out))
		volumes, _, _ := unstructured.NestedSlice(objects["Deployment work-"+part].Object, "spec", "template", "spec", "volumes")
		if got := fmt.Sprint(volumes[len(volumes)-1]); !strings.Contains(got, "map[configMap:map[name:authorities]]") || !strings.Contains(got, "map[secret:map[name:h]]") {
			t.Errorf("%s: %s", part, got)
		}
		out = c.run(release)
		if strings.Contains(out, "/etc/workwire/tracing") || !strings.Contains(out, "{port: 443, protocol: TCP}") || !strings.Contains(out, "--otlp-endpoint=https://collector.tracing\"") {
			t.Errorf("%s: without headers and authorities:\n%s", part, out)
		}
		if out = c.run("helm template workwire deploy/helm/workwire " + flags); strings.Contains(out, "otlp") {
			t.Errorf("%s: traces are sent by default", part)
		}
	}
}

// TestTransportOfTheChart takes a key away, and adds others.
func TestTransportOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	out := c.run("helm template x deploy/helm/workwire --set agent.enabled=true,agent.clusterName=c1,brokerHost=b:1883,sourceID=hub2,networkPolicy.restrictEgress=true" +
		",transport.clientCertFile=null,transport.clientKeyFile=null,transport.username=c1,transport.topics.sourceBroadcast=origins/+/sourcebroadcast")
	config, _, _ := unstructured.NestedString(objectsOf(t, []byte(out))["ConfigMap work-agent"].Object, "data", "transport.yaml")
	want := `brokerHost: b:1883
caFile: /etc/workwire/broker/ca.crt
tls: required
topics:
  agentBroadcast: clusters/+/agentbroadcast
  agentEvents: sources/hub2/clusters/+/agentevents
  sourceBroadcast: origins/+/sourcebroadcast
  sourceEvents: sources/hub2/clusters/+/sourceevents
username: c1`
	if strings.TrimSpace(config) != want {
		t.Errorf("the transport configuration is\n%s\nwant\n%s", config, want)
	}
	if !strings.Contains(out, "{port: 1883, protocol: TCP}") || strings.Contains(out, "8883") {
		t.Error("the network policy does not name the broker's port")
	}
}

// TestProxyOfTheChart: what may be connected to, and what is reached without the proxy.
func TestProxyOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	const hub = "helm template x deploy/helm/workwire --set hub.enabled=true,networkPolicy.restrictEgress=true,brokerHost="
	for flags, port := range map[string]string{
		"wss://b/mqtt": "443", "wss://b:8443/mqtt": "8443", "b:1883": "1883", `a:1883\\,b:1883`: "1883",
		"wss://b/mqtt,proxy.url=http://proxy:3128": "3128", "b:1883,proxy.url=http://proxy/": "80", "b:1883,proxy.url=https://proxy": "443",
	} {
		out := c.run(hub + flags)
		policy := fmt.Sprint(objectsOf(t, []byte(out))["NetworkPolicy work-hub-egress"].Object["spec"])
		if !strings.Contains(policy, fmt.Sprintf("port:%s protocol:TCP] ", port)) && !strings.Contains(policy, fmt.Sprintf("port:%s protocol:TCP]]", port)) {
			t.Errorf("%s: connections to port %s are not allowed: %s", flags, port, policy)
		}
		if strings.Contains(policy, "8883") || strings.Contains(out, "HTTPS_PROXY") != strings.Contains(flags, "proxy") {
			t.Errorf("%s: the broker's usual port, or the proxy: %s", flags, out)
		}
	}
	out := c.run("helm template x deploy/helm/workwire --set agent.enabled=true,agent.clusterName=c1,brokerHost=b:443,proxy.secret=way-out,proxy.except=10.0.0.0/8")
	containers, _, _ := unstructured.NestedSlice(objectsOf(t, []byte(out))["Deployment work-agent"].Object, "spec", "template", "spec", "containers")
	env := fmt.Sprint(containers[0].(map[string]any)["env"])
	if want := "[map[name:HTTPS_PROXY valueFrom:map[secretKeyRef:map[key:url name:way-out]]] map[name:NO_PROXY value:$(KUBERNETES_SERVICE_HOST),.svc,.cluster.local,10.0.0.0/8]]"; env != want {
		t.Errorf("the environment is %s, want %s", env, want)
	}
}

// TestSignerOfTheChart: another signer's name is in the hub's flags and rights.
func TestSignerOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	const name = "clusterissuers.cert-manager.io/fleet"
	out := c.run("helm template x deploy/helm/workwire --set hub.enabled=true,brokerHost=b:8883,hub.join.enabled=true,hub.join.signerName=" + name)
	rules := fmt.Sprint(objectsOf(t, []byte(out))["ClusterRole workwire-hub-join"].Object["rules"])
	if !strings.Contains(out, "--join-signer-name="+name) || !strings.Contains(rules, "resourceNames:["+name+"]") {
		t.Errorf("the signer %s is not in the flags, or not in the rules: %s", name, rules)
	}
}

// TestWebSocketOfTheChart: the broker accepts its configuration, and the way to the port is open.
func TestWebSocketOfTheChart(t *testing.T) {
	c := newCopy(t)
	c.helm()
	out := c.run("helm template x deploy/helm/workwire --set broker.enabled=true,broker.webSocketPath=/mqtt")
	objects := objectsOf(t, []byte(out))
	text, _, _ := unstructured.NestedString(objects["ConfigMap work-broker"].Object, "data", "work-broker.yaml")
	cfg, err := broker.ParseConfig([]byte(text))
	kit.NoError(t, err)
	if l := cfg.Listeners; len(l) != 2 || l[1].WebSocketPath != "/mqtt" || l[1].TLS == nil || *l[1].TLS != *l[0].TLS || l[0].WebSocketPath != "" {
		t.Errorf("listeners are %+v", l)
	}
	for object, want := range map[string]string{
		"Service work-broker": "name:wss port:443 targetPort:wss", "StatefulSet work-broker": "containerPort:8443 name:wss", "NetworkPolicy work-broker": "map[port:mqtts] map[port:wss]",
	} {
		if got := fmt.Sprint(objects[object].Object["spec"]); !strings.Contains(got, want) {
			t.Errorf("%s: no %s in %s", object, want, got)
		}
	}
	if out := c.run("helm template x deploy/helm/workwire --set broker.enabled=true"); strings.Contains(out, "wss") || strings.Contains(out, "webSocketPath") {
		t.Error("WebSockets are served by default")
	}
}

// TestWhatNeedsHelm: where make test has passed without Helm, hack/test.sh runs each test that needs it.
func TestWhatNeedsHelm(t *testing.T) {
	script, err := os.ReadFile("../../hack/test.sh")
	kit.NoError(t, err)
	pattern := regexp.MustCompile(`\$deploy -run '([^']+)'`).FindSubmatch(script)
	if pattern == nil {
		t.Fatal("hack/test.sh does not run tests of this package by name")
	}
	names := regexp.MustCompile(string(pattern[1]))
	files, err := filepath.Glob("*_test.go")
	kit.NoError(t, err)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.NoError(t, err)
		for _, function := range strings.Split(string(text), "\nfunc ") {
			name, body, _ := strings.Cut(function, "(")
			if !strings.HasPrefix(name, "Test") || !regexp.MustCompile(`\b(c|spoke)\.helm\(\)`).MatchString(body) {
				continue
			}
			if found++; !names.MatchString(name) {
				t.Errorf("%s in %s needs Helm, and hack/test.sh does not name it", name, file)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d tests need Helm: are the patterns right?", found)
	}
}

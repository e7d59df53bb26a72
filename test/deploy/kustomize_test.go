package deploy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/test/kit"
)

const (
	agentNamespace  = "open-cluster-management-agent"
	hubNamespace    = "workwire-hub"
	brokerNamespace = "workwire-broker"
)

// kustomization is what the tests want to know of one.
type kustomization struct {
	Kind       string
	Resources  []string
	Components []string
}

func readKustomization(t *testing.T, file string) kustomization {
	t.Helper()
	text, err := os.ReadFile(file)
	kit.NoError(t, err)
	k := kustomization{}
	if err := yaml.Unmarshal(text, &k); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return k
}

// configurations are the YAML files that are no Kubernetes objects, with who reads them.
var configurations = map[string]func(text []byte) error{
	"deploy/kustomize/broker/work-broker.yaml":      func(text []byte) error { _, err := broker.ParseConfig(text); return err },
	"deploy/kustomize/example/certificates.yaml":    func(text []byte) error { _, err := certificates.Parse(text); return err },
	"deploy/kustomize/agent/transport.yaml":         parseTransport,
	"deploy/kustomize/hub/transport.yaml":           parseTransport,
	"deploy/kustomize/example/agent/transport.yaml": parseTransport,
	"deploy/kustomize/example/hub/transport.yaml":   parseTransport,
}

// TestEveryFileIsApplied walks deploy/, so that no file can be forgotten: every folder of
// kustomize's is applied, strictly and without a warning, and what every other file holds is on the
// cluster afterwards. Charts are TestHelm's; what Docker uses is left out.
func TestEveryFileIsApplied(t *testing.T) {
	c := newCluster(t)
	c.serviceMonitors()
	c.secrets()
	c.volume("data")

	var objects []string
	var folders, components []string
	// Components. These are applied below, and by TestBesideOCM.
	used := sets.New("deploy/kustomize/agent/ocm-rights", "deploy/kustomize/agent/impersonation", "deploy/kustomize/agent/restrict-egress",
		// TestWhatTheAgentMay has this.
		"deploy/kustomize/agent/own-rights",
		"deploy/kustomize/hub/restrict-egress", "deploy/kustomize/hub/beside-ocm", "deploy/kustomize/hub/dashboard", "deploy/kustomize/hub/dashboard-service",
		// TestWhatPodsRun has these.
		"deploy/kustomize/agent/trusted-keys", "deploy/kustomize/agent/signing", "deploy/kustomize/agent/unseal", "deploy/kustomize/agent/owner-policy",
		// TestChartIsKustomize and TestJoinOfTheChart have these.
		"deploy/kustomize/agent/join", "deploy/kustomize/hub/join",
		"deploy/kustomize/hub/cluster-profiles", "deploy/kustomize/hub/signing", "deploy/kustomize/hub/trusted-agents", "deploy/kustomize/hub/sealing")
	err := filepath.WalkDir(filepath.Join(c.root, "deploy"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			// test/monitoring has the files of Prometheus.
			if entry.Name() == "helm" || path == filepath.Join(c.root, "deploy", "monitoring") {
				return filepath.SkipDir
			}
			return nil
		}
		name, _ := filepath.Rel(c.root, path)
		extension := filepath.Ext(name)
		base := filepath.Base(name)
		switch {
		case base == "Kustomization" || base == "kustomization.yaml":
			k := readKustomization(t, path)
			for _, component := range k.Components {
				used.Insert(filepath.Join(filepath.Dir(name), component))
			}
			if k.Kind == "Component" {
				components = append(components, filepath.Dir(name))
			} else {
				folders = append(folders, filepath.Dir(name))
			}
		case configurations[name] != nil:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := configurations[name](text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case extension == ".yaml" || extension == ".yml" || extension == ".json":
			objects = append(objects, name)
		}
		return nil
	})
	kit.NoError(t, err)
	for _, component := range components {
		if !used.Has(component) {
			t.Errorf("no overlay has the component %s", component)
		}
	}
	if len(folders) < 10 || len(objects) < 20 {
		t.Errorf("only %d folders and %d files: is the walk right? %v %v", len(folders), len(objects), folders, objects)
	}

	// The examples come last: they are what is there afterwards.
	slices.SortStableFunc(folders, func(a, b string) int {
		return strings.Count(a, "example") - strings.Count(b, "example")
	})
	for _, folder := range folders {
		c.run("kubectl apply --validate=strict -k " + folder)
	}
	for _, optional := range []string{"policies/nil-executor.yaml",
		"kustomize/agent/ocm-rights/cluster-role.yaml", "kustomize/agent/admin-rights/rights.yaml", "kustomize/agent/impersonation/rights.yaml", "kustomize/agent/restrict-egress/network-policy.yaml",
		"kustomize/agent/join/rights.yaml", "kustomize/hub/join/rights.yaml",
		"crds/optional/multicluster.x-k8s.io_clusterprofiles.yaml", "kustomize/hub/cluster-profiles/namespace.yaml", "kustomize/hub/cluster-profiles/rights.yaml",
		"kustomize/hub/restrict-egress/network-policy.yaml", "kustomize/hub/dashboard/rights.yaml",
		"kustomize/hub/dashboard-service/service.yaml", "kustomize/hub/dashboard-service/network-policy.yaml"} {
		c.run("kubectl apply --validate=strict -f deploy/" + optional)
	}
	for _, name := range objects {
		if _, stderr, err := c.try("kubectl get -f " + name); err != nil {
			t.Errorf("%s is applied by nothing: %s", name, stderr)
		}
	}
	for _, namespace := range []string{agentNamespace, hubNamespace, brokerNamespace} {
		c.workloadsAreReady(namespace)
	}
	// Applying again neither takes away the rules that Kubernetes has aggregated nor rolls
	// anything.
	state := func() string {
		return c.run("kubectl get clusterrole workwire-agent-aggregate -o jsonpath='{.metadata.resourceVersion} {.rules}'") +
			c.run("kubectl get deployments,statefulsets -A -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.generation} {end}'")
	}
	before := state()
	if !strings.Contains(before, "escalate") {
		t.Errorf("the rules are not aggregated: %s", before)
	}
	for _, part := range []string{"agent", "hub", "broker"} {
		c.run("kubectl apply --validate=strict -k deploy/kustomize/example/" + part)
	}
	if after := state(); after != before {
		t.Errorf("applying again changed something:\n%s\n%s", before, after)
	}
	c.agentsPodsAreRestricted()
}

// agentsPodsAreRestricted applies the agent where "restricted" is enforced; in its own namespace
// there are warnings only, which the test above has not seen. The namespaces of hub and broker
// enforce it.
func (c *cluster) agentsPodsAreRestricted() {
	c.Helper()
	c.run(`kubectl create namespace strict
kubectl label namespace strict pod-security.kubernetes.io/enforce=restricted
kubectl create serviceaccount klusterlet-work-sa -n strict
sed 's/namespace: open-cluster-management-agent/namespace: strict/' deploy/kustomize/agent/deployment.yaml | kubectl apply --validate=strict -f -`)
	c.workloadsAreReady("strict")
}

// overlay writes an overlay of a part's example with components of the part, and returns its folder.
func (c *cluster) overlay(part string, components ...string) string {
	c.Helper()
	text := "resources: [../../deploy/kustomize/example/" + part + "]\ncomponents:\n"
	for _, component := range components {
		text += "- ../../deploy/kustomize/" + part + "/" + component + "\n"
	}
	c.write("overlays/"+part+"/kustomization.yaml", text)
	return "overlays/" + part
}

// TestBesideOCM has a hub leave alone what Open Cluster Management has.
func TestBesideOCM(t *testing.T) {
	c := newCopy(t)
	c.write("overlay/kustomization.yaml", "resources: [../deploy/kustomize/hub]\ncomponents: [../deploy/kustomize/hub/beside-ocm]\n")
	objects := objectsOf(t, []byte(c.run("kubectl kustomize overlay")))
	for key := range objects {
		if strings.HasPrefix(key, "CustomResourceDefinition ") || strings.HasPrefix(key, "ValidatingAdmissionPolicy") {
			t.Errorf("it has %s", key)
		}
	}
	containers, _, _ := unstructured.NestedSlice(objects["Deployment work-hub"].Object, "spec", "template", "spec", "containers")
	args := fmt.Sprint(containers[0].(map[string]any)["args"])
	_, controllers, _ := strings.Cut(args, "--controllers=")
	controllers = strings.TrimSuffix(controllers, "]")
	chosen, err := hub.ChooseControllers(strings.Split(controllers, ","))
	if err != nil || !slices.Equal(chosen, []string{hub.ControllerTTL}) {
		t.Errorf("%s: controllers %v, %v", args, chosen, err)
	}
}

// TestDefinitions compares what kustomize takes of deploy/crds with what Go programs install.
func TestDefinitions(t *testing.T) {
	k := readKustomization(t, "../../deploy/crds/Kustomization")
	files, err := filepath.Glob("../../deploy/crds/*.yaml")
	kit.NoError(t, err)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	slices.Sort(files)
	if !slices.Equal(files, k.Resources) {
		t.Errorf("deploy/crds/Kustomization has\n%v, the folder\n%v", k.Resources, files)
	}
	hub, agent, optional := sets.New[string](), sets.New[string](), sets.New[string]()
	for _, d := range crds.Hub() {
		hub.Insert("CustomResourceDefinition " + d.Name)
	}
	for _, d := range crds.Spoke() {
		agent.Insert("CustomResourceDefinition " + d.Name)
	}
	for _, d := range crds.SpokeOptional() {
		optional.Insert("CustomResourceDefinition " + d.Name)
	}
	for folder, want := range map[string]sets.Set[string]{"agent/crds": agent, "agent/cluster-claims": optional, "hub/crds": hub} {
		got := sets.KeySet(objectsOf(t, build(t, "../../deploy/kustomize/"+folder)))
		if !got.Equal(want) {
			t.Errorf("%s has %v, want %v", folder, sets.List(got), sets.List(want))
		}
	}
}

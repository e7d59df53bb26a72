package deploy

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/workwire/workwire/test/kit"
)

// TestNetworkPolicies decides, as a network plugin does, who may connect to the pods of an
// installation and whom they may connect to: by default, and with the egress restricted.
func TestNetworkPolicies(t *testing.T) {
	c := newCopy(t)
	c.helm()
	c.secrets()
	for _, test := range []struct {
		part, flags string
		components  []string
		want        string // who may connect, and where to
	}{
		{"agent", "", nil, "from anywhere https; to anywhere"},
		{"hub", "", []string{"dashboard", "dashboard-service"}, "from anywhere https; from ingress dashboard; to anywhere"},
		{"broker", "", nil, "from anywhere mqtts; from monitoring metrics; to nobody"},
		{"agent", ",networkPolicy.restrictEgress=true", []string{"restrict-egress"}, "from anywhere https; to 53 443 6443 8883"},
		{"hub", ",networkPolicy.restrictEgress=true", []string{"restrict-egress", "dashboard", "dashboard-service"},
			"from anywhere https; from ingress dashboard; to 53 443 6443 8883"},
	} {
		for tool, out := range map[string]string{
			"Helm":      c.run("helm template workwire deploy/helm/workwire " + parts[test.part] + test.flags),
			"kustomize": c.run("kubectl kustomize " + c.overlay(test.part, test.components...)),
		} {
			n := networkOf(t, objectsOf(t, []byte(out)))
			if got := n.describe(); got != test.want {
				t.Errorf("%s %s%s: %s, want %s", tool, test.part, test.flags, got, test.want)
			}
		}
	}
	out := c.run("helm template workwire deploy/helm/workwire " + parts["broker"] + ",networkPolicy.monitoringNamespace=watchers")
	if n := networkOf(t, objectsOf(t, []byte(out))); !n.admits("watchers", "metrics") || n.admits("monitoring", "metrics") {
		t.Errorf("with another namespace of Prometheus: %s", n.describe())
	}
	out = c.run("helm template workwire deploy/helm/workwire " + parts["broker"] + ",networkPolicy.enabled=false")
	if n := networkOf(t, objectsOf(t, []byte(out))); len(n.policies) > 0 {
		t.Errorf("without network policies: %s", n.describe())
	}
}

// network is the pods of one workload and the policies that select them.
type network struct {
	ports    []string // of the containers
	policies []networkingv1.NetworkPolicySpec
}

// networkOf reads the one workload among objects, and the policies for its pods.
func networkOf(t *testing.T, objects map[string]*unstructured.Unstructured) network {
	t.Helper()
	n := network{}
	var pod corev1.PodTemplateSpec
	var namespace string
	for _, obj := range objects {
		if kind := obj.GetKind(); kind == "Deployment" || kind == "StatefulSet" {
			template, _, err := unstructured.NestedMap(obj.Object, "spec", "template")
			kit.NoError(t, err)
			kit.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod))
			namespace = obj.GetNamespace()
		}
	}
	for _, port := range pod.Spec.Containers[0].Ports {
		n.ports = append(n.ports, port.Name)
	}
	for _, obj := range objects {
		if obj.GetKind() != "NetworkPolicy" {
			continue
		}
		policy := &networkingv1.NetworkPolicy{}
		kit.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, policy))
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		kit.NoError(t, err)
		if policy.Namespace != namespace || !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("the policy %s does not select the pods", policy.Name)
		}
		n.policies = append(n.policies, policy.Spec)
	}
	return n
}

// describe returns what the policies permit, in one line.
func (n network) describe() string {
	var said []string
	for _, port := range n.ports {
		switch {
		case n.admits("stranger", port):
			said = append(said, "from anywhere "+port)
		case n.admits("monitoring", port):
			said = append(said, "from monitoring "+port)
		case n.admits("ingress", port):
			said = append(said, "from ingress "+port)
		}
	}
	var reached []string
	for _, port := range []string{"53", "443", "1234", "6443", "8883"} {
		if n.reaches(port) {
			reached = append(reached, port)
		}
	}
	switch len(reached) {
	case 0:
		reached = []string{"nobody"}
	case 5:
		reached = []string{"anywhere"}
	}
	return strings.Join(append(said, "to "+strings.Join(reached, " ")), "; ")
}

// admits reports whether pods of a namespace may connect to a port.
func (n network) admits(namespace, port string) bool {
	isolated := false
	for _, p := range n.policies {
		if !slices.Contains(p.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		isolated = true
		for _, rule := range p.Ingress {
			if hasPort(rule.Ports, port) && hasPeer(rule.From, namespace) {
				return true
			}
		}
	}
	return !isolated
}

// reaches reports whether the pods may connect to a port of an address outside of the cluster.
func (n network) reaches(port string) bool {
	isolated := false
	for _, p := range n.policies {
		if !slices.Contains(p.PolicyTypes, networkingv1.PolicyTypeEgress) {
			continue
		}
		isolated = true
		for _, rule := range p.Egress {
			if hasPort(rule.Ports, port) && len(rule.To) == 0 {
				return true
			}
		}
	}
	return !isolated
}

func hasPort(ports []networkingv1.NetworkPolicyPort, port string) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return *p.Port == intstr.Parse(port)
	})
}

func hasPeer(peers []networkingv1.NetworkPolicyPeer, namespace string) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		selector, err := metav1.LabelSelectorAsSelector(p.NamespaceSelector)
		return err == nil && selector.Matches(labels.Set{corev1.LabelMetadataName: namespace})
	})
}

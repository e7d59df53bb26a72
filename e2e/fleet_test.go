package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// fleet has Mosquitto in the place of work-broker, and four clusters, each with an agent of its
// own: the one called kind is added when the others are there.
func fleet(t *testing.T) {
	base := []string{"docker-compose.yaml", "deploy/compose/mosquitto.yaml"}
	spokes := append(slices.Clone(base), "deploy/compose/spokes.yaml")
	s := up(t, "-fleet", spokes...)
	for service, cluster := range map[string]string{"spoke": "cluster1", "spoke2": "cluster2", "spoke3": "cluster3"} {
		s.serves(cluster, s.id(service))
	}
	node, override := s.kind()
	// The files of certificates do not go together, says docs/compose.md: what spokes adds stays as
	// it is.
	kind := []string{"deploy/compose/kind.yaml", override}
	s.with(append(base, kind...)...)
	t.Cleanup(func() {
		s.with(append(spokes, kind...)...) // for docker-compose down
		s.compose("rm", "--force", "--stop", "agent-kind")
	})
	s.compose("up", "-d")
	s.serves("kind", node)
}

// serves sends a cluster a work of its own and looks whether it, and no other, arrives at the
// control plane in that container.
func (s *stack) serves(cluster, container string) {
	s.Helper()
	s.eventually(cluster+" has a namespace at the hub", soon, func() error {
		_, err := s.tryHub("", "get", "namespace", cluster)
		return err
	})
	s.must(s.tryHub(workYAML(cluster, "of-"+cluster, cluster), "apply", "-f", "-"))
	s.hub("-n", cluster, "wait", "manifestwork/of-"+cluster, "--for=condition=Applied", "--timeout=2m")
	if out := s.docker("exec", container, "kubectl", "get", "configmaps", "-l", "e2e", "-o", "jsonpath={..data.value}"); out != cluster {
		s.Errorf("%s holds %q, want its own work alone", cluster, out)
	}
}

// kind starts what stands in for a node of kind, whose image can not be had without a network: a
// control plane that docker-compose knows nothing of, in a network of kind's. It returns the
// container, and a file for docker-compose with the access to it that hack/kind-spoke.sh would put
// into .kind/agent.
func (s *stack) kind() (node, override string) {
	s.Helper()
	network, access := s.project+"-kind", s.path("access")
	s.env = append(s.env, "KIND_EXPERIMENTAL_DOCKER_NETWORK="+network)
	label := "--label=com.docker.compose.project=" + network // for hack/e2e.sh, should this test be killed
	s.docker("network", "create", label, network)
	s.Cleanup(func() { s.docker("network", "rm", network) })
	deploy, err := filepath.Abs("../deploy")
	kit.NoError(s, err)
	node = s.docker("run", "--detach", label, "--network="+network, "--network-alias=kind-control-plane", "--volume="+deploy+":/deploy:ro",
		"workwire/controlplane:"+name, "up", "--role=spoke", "--dir=/data", "--bind-address=0.0.0.0", "--port=6443", "--hostname=kind-control-plane",
		"--apply=/deploy/compose/spoke", "--kubeconfig-for=system:serviceaccount:open-cluster-management-agent:klusterlet-work-sa=/access/kubeconfig")
	s.Cleanup(func() { s.docker("rm", "--force", "--volumes", node) })
	s.eventually("the node of kind is ready", soon, func() error {
		_, err := s.run("", "docker", "exec", node, "controlplane", "health", "--dir=/data")
		return err
	})
	s.docker("cp", node+":/access", access)
	// It is the agent's user who is to read it.
	kit.NoError(s, errors.Join(os.Chmod(access, 0o755), os.Chmod(filepath.Join(access, "kubeconfig"), 0o644)))
	override = s.path("docker-compose.access.yaml")
	s.keep("docker-compose.access.yaml", fmt.Sprintf("services:\n  agent-kind:\n    volumes: [\"%s:/access:ro\"]\n", access))
	return node, override
}

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// nodeWork is the example whose pods run on the node, with what they do (ready, unready or crash) and
// their image.
func nodeWork(t *testing.T, mode, image string) string {
	t.Helper()
	example, err := os.ReadFile("../examples/node/web.yaml")
	kit.NoError(t, err)
	return strings.NewReplacer("mode: ready", "mode: "+mode, nodeImage, image).Replace(string(example))
}

// nodeImage is in the image of the node.
const nodeImage = "workwire/workload:dev"

// TestNode: the pods of works run on a real node, fail their readiness probe, crash, cannot be pulled
// and recover, and the hub is told; a rollout waits for them.
func TestNode(t *testing.T) {
	if why := noNode(&stack{T: t}); why != "" {
		if os.Getenv("E2E_REQUIRED") == "1" || os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	t.Parallel()
	s := up(t, "-node", "docker-compose.yaml", "deploy/compose/node.yaml")
	s.eventually("the node is ready, and the only one", soon, func() error {
		nodes, err := decoded[corev1.NodeList](s.trySpoke("spoke", "get", "nodes", "-o", "json"))
		if err != nil {
			return err
		}
		if n := len(nodes.Items); n != 1 || !strings.HasPrefix(nodes.Items[0].Status.NodeInfo.ContainerRuntimeVersion, "containerd://") {
			return fmt.Errorf("%d nodes: %+v", n, nodes.Items)
		}
		for _, c := range nodes.Items[0].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("it has %+v", nodes.Items[0].Status.Conditions)
	})
	for _, step := range []struct{ what, mode, image, ready, progressing, degraded, says string }{
		{"pods run", "ready", nodeImage, "2", "False", "False", ""},
		{"the readiness probe fails", "unready", nodeImage, "0", "True", "", "ContainersNotReady"},
		{"they recover", "ready", nodeImage, "2", "False", "False", ""},
		{"they crash", "crash", nodeImage, "0", "True", "", "CrashLoopBackOff"},
		{"they recover from a crash", "ready", nodeImage, "2", "False", "False", ""},
		{"an image is not there", "ready", "workwire/none:dev", "2", "True", "", "ImagePullBackOff"},
		{"the image is the former one", "ready", nodeImage, "2", "False", "False", ""},
	} {
		s.must(s.tryHub(nodeWork(t, step.mode, step.image), "apply", "-f", "-"))
		s.eventually(step.what, soon, func() error {
			work, err := decoded[workv1.ManifestWork](s.tryHub("", "-n", "cluster1", "get", "manifestwork", "web", "-o", "json"))
			if err != nil {
				return err
			}
			return s.nodeShows(&work, step.ready, step.progressing, step.degraded, step.says)
		})
	}
	s.hub("-n", "cluster1", "delete", "manifestwork", "web")
	t.Run("Rollout", func(t *testing.T) { nodeRollout(s.on(t)) })
	t.Run("Pull", func(t *testing.T) { nodePull(s.on(t)) })
	t.Run("Restart", func(t *testing.T) { nodeRestart(s.on(t)) })
}

// noNode returns why there can be no node here, empty if there can.
func noNode(s *stack) string {
	image := "workwire/node:" + name
	if s.docker("image", "ls", "-q", image) == "" {
		return "there is no image of the node: make images says why"
	}
	// What the least of its containers needs.
	_, err := s.run("", "docker", "run", "--rm", "--network=none", "--cap-add=SYS_ADMIN", "--security-opt=apparmor=unconfined", "--security-opt=seccomp=unconfined",
		"--entrypoint=/bin/sh", image, "-c", "mount -t tmpfs tmpfs /run && mount -o remount,rw /sys/fs/cgroup")
	if err != nil {
		return "this machine does not let a container be a node: " + err.Error()
	}
	return ""
}

// nodeShows reports what the status of work does not show: the ready replicas, the conditions of
// readiness, of which an empty one does not matter, and the reason why it is not.
func (s *stack) nodeShows(work *workv1.ManifestWork, ready, progressing, degraded, says string) error {
	for kind, want := range map[string]string{workv1.WorkProgressing: progressing, workv1.WorkDegraded: degraded} {
		c := meta.FindStatusCondition(work.Status.Conditions, kind)
		if c == nil || c.ObservedGeneration != work.Generation || want != "" && string(c.Status) != want {
			return fmt.Errorf("%s is %+v, want %q", kind, c, want)
		}
		if kind == workv1.WorkProgressing && !strings.Contains(c.Message, says) {
			return fmt.Errorf("%s says %q, want %q", kind, c.Message, says)
		}
	}
	for _, m := range work.Status.ResourceStatus.Manifests {
		for _, v := range m.StatusFeedbacks.Values {
			if v.Name == "ReadyReplicas" && v.Value.Integer != nil && fmt.Sprint(*v.Value.Integer) == ready {
				return nil
			}
		}
	}
	if ready == "0" { // the field is not there then
		return nil
	}
	return fmt.Errorf("ReadyReplicas is not %s: %+v", ready, work.Status.ResourceStatus.Manifests)
}

// nodeRollout rolls a set out whose pods do not become ready, and then one whose pods do.
func nodeRollout(s *stack) {
	set := func(mode string) string {
		_, spec, _ := strings.Cut(nodeWork(s.T, mode, nodeImage), "\nspec:\n")
		return `apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {namespace: default, name: global}
spec: {clusterSet: global}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {namespace: default, name: one}
spec: {tolerations: [{operator: Exists}]}
---
apiVersion: work.open-cluster-management.io/v1alpha1
kind: ManifestWorkReplicaSet
metadata: {namespace: default, name: web}
spec:
  placementRefs:
  - name: one
    rolloutStrategy: {rolloutType: Progressive, progressive: {maxConcurrency: 1, progressDeadline: 10s, minSuccessTime: 1s}}
  manifestWorkTemplate:
` + indent(spec)
	}
	reason := func() (string, error) {
		replicas, err := decoded[struct {
			Status struct{ Conditions []metav1.Condition }
		}](s.tryHub("", "-n", "default", "get", "manifestworkreplicaset", "web", "-o", "json"))
		if c := meta.FindStatusCondition(replicas.Status.Conditions, "PlacementRolledOut"); c != nil {
			return string(c.Status) + " " + c.Reason + " " + c.Message, err
		}
		return "", err
	}
	for _, step := range []struct{ what, mode, want string }{
		{"a set whose pods do not become ready is not rolled out, and says why", "unready", "ContainersNotReady"},
		{"a set whose pods are ready is", "ready", "True Complete"},
	} {
		s.must(s.tryHub(set(step.mode), "apply", "-f", "-"))
		s.eventually(step.what, soon, func() error {
			got, err := reason()
			if err == nil && !strings.Contains(got, step.want) {
				err = fmt.Errorf("PlacementRolledOut is %q", got)
			}
			return err
		})
	}
	s.hub("-n", "default", "delete", "manifestworkreplicaset", "web")
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
}

// nodePull pulls the image of a staged work ahead, as docs/order.md says: the pods start when its time has come, though the registry is gone.
func nodePull(s *stack) {
	const image = "localhost:5000/shop:1"
	apply := func(file string, change ...string) {
		example, err := os.ReadFile("../examples/" + file)
		kit.NoError(s, err)
		s.must(s.tryHub(strings.NewReplacer(append(change, "busybox:1.37", image)...).Replace(string(example)), "apply", "-f", "-"))
	}
	until := func(what, want string, args ...string) {
		s.eventually(what, soon, func() error {
			got, err := s.trySpoke("spoke", args...)
			if err == nil && got != want {
				err = fmt.Errorf("kubectl %s: %q", strings.Join(args, " "), got)
			}
			return err
		})
	}
	staged := func(at string) {
		apply("order/staged.yaml", "2026-11-28T22:00:00Z/2026-11-29T02:00:00Z", at)
	}
	staged("2126-11-28T22:00:00Z/2126-11-29T02:00:00Z")
	s.must(s.tryHub(registry, "apply", "-f", "-"))
	until("a registry runs on the node", "1", "get", "deployment", "registry", "-o", "jsonpath={.status.readyReplicas}")
	apply("order/pull-image.yaml", "completions: 3", "completions: 1", "parallelism: 3", "parallelism: 1")
	until("the node has pulled the image", "1", "get", "job", "pull-shop", "-o", "jsonpath={.status.succeeded}")
	if shop := s.spoke("get", "deployment", "shop", "--ignore-not-found", "-o", "name"); shop != "" {
		s.Error("the staged work is applied before its time")
	}
	s.hub("-n", "cluster1", "delete", "manifestwork", "registry", "pull-image")
	until("neither the registry nor the Job is there", "", "get", "pods", "-l", "app!=hello", "-o", "name")
	staged("2026-11-28T22:00:00Z/2126-11-29T02:00:00Z")
	until("the staged pods run", "1", "get", "deployment", "shop", "-o", "jsonpath={.status.readyReplicas}")
	s.hub("-n", "cluster1", "delete", "manifestwork", "staged")
}

// registry is a work of a registry for the container runtime of the node, which serves one image.
const registry = `apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {namespace: cluster1, name: registry}
spec:
  workload:
    manifests:
    - apiVersion: apps/v1
      kind: Deployment
      metadata: {namespace: default, name: registry}
      spec:
        selector: {matchLabels: {app: registry}}
        template:
          metadata: {labels: {app: registry}}
          spec:
            hostNetwork: true
            containers:
            - name: registry
              image: ` + nodeImage + `
              args: [registry, "--listen=127.0.0.1:5000"]
              readinessProbe: {periodSeconds: 1, httpGet: {host: 127.0.0.1, path: /v2/, port: 5000}}
`

// nodeRestart kills the node while pods run: they run again when it is back.
func nodeRestart(s *stack) {
	s.must(s.tryHub(nodeWork(s.T, "ready", nodeImage), "apply", "-f", "-"))
	shows := func(what string) {
		s.eventually(what, soon, func() error {
			work, err := decoded[workv1.ManifestWork](s.tryHub("", "-n", "cluster1", "get", "manifestwork", "web", "-o", "json"))
			if err != nil {
				return err
			}
			return s.nodeShows(&work, "2", "False", "False", "")
		})
	}
	shows("pods run")
	before := s.spoke("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}")
	s.docker("kill", "--signal=KILL", s.id("node"))
	s.compose("up", "-d")
	s.eventually("the containers of the pods are new ones", soon, func() error {
		after, err := s.trySpoke("spoke", "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}")
		for _, id := range strings.Fields(after) {
			if err == nil && strings.Contains(before, id) {
				err = fmt.Errorf("%s is still there", id)
			}
		}
		return err
	})
	shows("pods run after the death of the node")
}

package plane

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	nodestages "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podstages "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

// nodeLabel marks the nodes that setNodes manages.
const nodeLabel = "workwire.dev/simulated"

// kwokNode and fake are the annotation of the nodes that KWOK runs.
const kwokNode, fake = "kwok.x-k8s.io/node", "fake"

// stages returns KWOK's default stages: nodes become ready, pods run at once, pods of Jobs succeed
// at once, deleted pods are removed.
func stages() string {
	return strings.Join([]string{
		nodestages.DefaultNodeInit, heartbeat.DefaultNodeHeartbeatWithLease,
		podstages.DefaultPodReady, podstages.DefaultPodComplete, podstages.DefaultPodDelete,
	}, "\n---\n")
}

// setNodes creates the nodes node-1 to node-n, and deletes all other nodes with nodeLabel.
func setNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	nodes := client.CoreV1().Nodes()
	present, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: nodeLabel})
	if err != nil {
		return fmt.Errorf("listing the simulated nodes: %w", err)
	}
	missing, surplus := planNodes(present.Items, n)
	for _, name := range surplus {
		if err := nodes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the simulated node %s: %w", name, err)
		}
	}
	for _, name := range missing {
		if _, err := nodes.Create(ctx, node(name), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the simulated node %s: %w", name, err)
		}
	}
	return nil
}

// planNodes compares the existing nodes with node-1 to node-n.
func planNodes(present []corev1.Node, n int) (missing, surplus []string) {
	have := make(map[string]bool, len(present))
	for _, node := range present {
		have[node.Name] = true
	}
	for i := range n {
		name := "node-" + strconv.Itoa(i+1)
		if !have[name] {
			missing = append(missing, name)
		}
		delete(have, name)
	}
	for _, node := range present {
		if have[node.Name] {
			surplus = append(surplus, node.Name)
		}
	}
	return missing, surplus
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Annotations: map[string]string{kwokNode: fake},
		Labels: map[string]string{
			nodeLabel:            "true",
			corev1.LabelHostname: name,
			corev1.LabelOSStable: "linux",
			// Pods can read it, although nothing runs.
			corev1.LabelArchStable: runtime.GOARCH,
		},
	}}
}

// serving returns an error while the API server is not ready for requests.
func serving(ctx context.Context, client kubernetes.Interface) error {
	return client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// controlled returns an error while the controllers of a hub do not run: a ClusterRole has nothing of those that it aggregates.
func controlled(ctx context.Context, client kubernetes.Interface) error {
	view, err := client.RbacV1().ClusterRoles().Get(ctx, "view", metav1.GetOptions{})
	if err == nil && len(view.Rules) == 0 {
		err = errors.New("it has no rules")
	}
	if err != nil {
		return fmt.Errorf("the ClusterRole view: %w", err)
	}
	return nil
}

// usable returns an error while the cluster cannot run pods: they need the default ServiceAccount
// of their namespace, and a node.
func usable(ctx context.Context, client kubernetes.Interface, wantNodes int) error {
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("the default ServiceAccount: %w", err)
	}
	if wantNodes == 0 {
		return nil
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: nodeLabel})
	if err != nil {
		return fmt.Errorf("the nodes: %w", err)
	}
	ready := 0
	for _, node := range list.Items {
		if schedulable(node) {
			ready++
		}
	}
	if ready < wantNodes {
		return fmt.Errorf("%d of %d nodes are ready", ready, wantNodes)
	}
	return nil
}

func schedulable(node corev1.Node) bool {
	if node.Spec.Unschedulable {
		return true // cordoned by a user: waiting does not change that
	}
	for _, taint := range node.Spec.Taints {
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

package agent_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// progressing waits until Progressing of the work is True with a message that matches.
func (w *fixture) progressing(works workclientv1.ManifestWorkInterface, name, pattern string) {
	w.Helper()
	matches := regexp.MustCompile("^" + pattern + "$")
	kit.AwaitCheck(w, works, name, "says "+pattern, func(work *workv1.ManifestWork) error {
		if work == nil {
			return fmt.Errorf("there is none")
		}
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkProgressing)
		if c == nil || c.Status != metav1.ConditionTrue || !matches.MatchString(c.Message) {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// TestPodsSayWhy has a Deployment whose pod no node can run, and then gives the pod statuses of a
// kubelet. The condition has the reason of each.
func TestPodsSayWhy(t *testing.T) {
	w, works := start(t)
	work := w.work("web", unschedulable)
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	w.Create(works, work)
	w.progressing(works, "web", `Available: 0/1: Pod app-\S+: Unschedulable: 0/\d+ nodes are available: .*`)

	pods := w.cluster.CoreV1().Pods(w.namespace)
	set := func(state corev1.ContainerState, last corev1.ContainerState) {
		t.Helper()
		kit.Eventually(t, "the pod has a status", func() error {
			list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=a"})
			if err != nil || len(list.Items) != 1 {
				return fmt.Errorf("%d pods, %w", len(list.Items), err)
			}
			pod := &list.Items[0]
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: state, LastTerminationState: last}}
			_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
			return err
		})
		// The agent does not watch pods. It looks again soon because of this.
		_, err := w.cluster.AppsV1().Deployments(w.namespace).Patch(t.Context(), "app", types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":%q}}}`, state.Waiting.Reason), metav1.PatchOptions{})
		kit.NoError(t, err)
	}
	set(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}, corev1.ContainerState{})
	w.progressing(works, "web", `Available: 0/1: Pod app-\S+: ErrImagePull: not found`)
	set(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
		corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: "a secret"}})
	w.progressing(works, "web", `Available: 0/1: Pod app-\S+: CrashLoopBackOff: container c used more memory than its limit: OOMKilled, exit code 137`)

	w.Change(works, "web", func(work *workv1.ManifestWork) {
		work.Spec.Workload.Manifests = w.work("web", schedulable).Spec.Workload.Manifests
	})
	w.Is(works, "web", "Applied=True", "Progressing=False")
}

// TestPodsNeedARight has an agent without the right to list pods.
func TestPodsNeedARight(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	user := w.restrictedAgent("get")
	w.grant(user, "deployments", []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"},
		Verbs: []string{"get", "list", "watch", "create", "update", "delete"}}})
	work := w.work("web", unschedulable)
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	w.Create(works, work)
	w.progressing(works, "web", "Available: 0/1: the agent may not list pods in namespace "+w.namespace+", which would tell why")
	w.requests.Take()
	w.change(works, "web", strings.Replace(unschedulable, "{name: app", "{labels: {a: b}, name: app", 1))
	w.Is(works, "web", "Applied=True", "Progressing=True")
	if got := w.requests.All(kit.On("pods")); len(got) > 0 {
		t.Errorf("pods are asked for again: %v", got)
	}
}

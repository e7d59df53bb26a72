package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/agent"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// TestExplainUndelivered checks that explain tells why a hub cannot deliver, and that it is away. It
// is not parallel: the hubs of other tests would deliver its works.
func TestExplainUndelivered(t *testing.T) {
	t.Run("access refused", func(t *testing.T) {
		w := newWorld(t)
		reader := kit.Unique("observer") // may subscribe to everything, and publish nothing
		w.Users = append(w.Users, broker.User{Username: reader, Password: world.Password, Role: acl.Observer})
		w.StartBroker(broker.Config{})
		accept(w)
		w.StartHub(func(c *hub.Config) { c.Transport = w.Transport(reader, reader+"-hub", c.Topics) })
		w.Create(w.Works(0), w.Work(0, "web", "1", "a"))
		blocked(w, "web", workstate.AccessRefused, "access rules of the broker")
	})
	t.Run("the agent's subscription refused", func(t *testing.T) {
		w := withBroker(t)
		accept(w)
		w.StartHub()
		// Without a topic for its will, the broker lets it connect as another cluster.
		topics := wire.Topics{SourceEvents: "sources/+/clusters/+/sourceevents", AgentEvents: "sources/+/clusters/+/agentevents"}
		w.StartAgent(0, func(c *agent.Config) {
			c.Topics, c.Transport = topics, w.Transport(string(w.Clusters[1]), c.ClientID, topics)
		})
		w.Create(w.Works(0), w.Work(0, "web", "1", "a"))
		blocked(w, "web", workstate.AgentOff, "the broker refuses its subscription")
	})
	t.Run("too large, and no hub", func(t *testing.T) {
		w := newWorld(t)
		w.StartBroker(broker.Config{MaxPacketSize: 8 << 10})
		accept(w)
		namespace := hubPlane.Namespace(t, "hub")
		stop := w.StartHub(func(c *hub.Config) {
			c.Election = leader.NewOptions("work-hub-" + string(w.Source))
			c.Election.Namespace = namespace
		}).Stop
		w.Create(w.Works(0), w.Work(0, "large", strings.Repeat("x", 16<<10), "a"))
		blocked(w, "large", workstate.TooLarge, "split the work")
		hubIs(w, 0, "connected")
		stop()
		w.Create(w.Works(0), w.Work(0, "late", "1", "b"))
		blockedLater(w, 2*time.Minute, "late", workstate.HubOff, "start the hub")
		hubIs(w, 2*time.Minute, "away")
		// Other tests would be told that their hub is away.
		kit.NoError(t, kubernetes.NewForConfigOrDie(hubPlane.REST()).CoordinationV1().Leases(namespace).Delete(t.Context(), clusterv1.HubPresenceLeaseName,
			metav1.DeleteOptions{}))
	})
}

// hubIs waits until workctl status, looked at later, says this about the hub.
func hubIs(w *world.World, later time.Duration, state string) {
	w.Helper()
	reader, err := fleet.NewReader(hubPlane.REST())
	kit.NoError(w, err)
	kit.Eventually(w, "the hub is "+state, func() error {
		snapshot, _, err := reader.Snapshot(w.Context(), string(w.Clusters[0]))
		if err != nil {
			return err
		}
		snapshot.Time = snapshot.Time.Add(later)
		if got := fleet.Summarize(snapshot, 0).Hub; got.State != state {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
}

// refusedWorks checks that explain tells what the API server of the first cluster refuses, who undoes what
// the agent writes, and why a pod does not run.
func refusedWorks(w *world.World) {
	w.Helper()
	works, core := w.Works(0), kubernetes.NewForConfigOrDie(w.Spokes[0].REST()).CoreV1()

	w.Spokes[0].Webhook(w, w.Targets[0], "", func(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: r.Name != "guarded" && r.Name != "probe", Result: &metav1.Status{Message: "no Mondays"}}
	})
	w.Create(works, w.Work(0, "webhook", "1", "guarded"))
	blocked(w, "webhook", workstate.Webhook, "no Mondays")

	w.Create(works, w.Work(0, "fight", "ours", "fought"))
	w.Applied(works, "fight")
	kit.Eventually(w, "the agent notices the fight", func() error {
		if _, err := core.ConfigMaps(w.Targets[0]).Patch(w.Context(), "fought", types.MergePatchType, []byte(`{"data":{"k":"theirs"}}`),
			metav1.PatchOptions{FieldManager: "their-operator"}); err != nil {
			return err
		}
		work, err := works.Get(w.Context(), "fight", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(work.Status.ResourceStatus.Manifests, func(m workv1.ManifestCondition) bool {
			return meta.IsStatusConditionFalse(m.Conditions, workv1.ManifestApplied)
		}) {
			return errors.New("no conflict yet")
		}
		return nil
	})
	blocked(w, "fight", workstate.Flapping, "their-operator")

	// Without a scheduler, no kubelet of the control plane writes the pods' statuses.
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME","namespace":%q},"spec":{"schedulerName":"none","containers":[{"name":"app","image":"app"}]}}`
	createManifest(w, "crash", strings.ReplaceAll(pod, "NAME", "crash"))
	waits(w, "crash", corev1.PodRunning, corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container"})
	blocked(w, "crash", workstate.CrashLoop, "Pod "+w.Targets[0]+"/crash")
	createManifest(w, "image", strings.ReplaceAll(pod, "NAME", "image"))
	waits(w, "image", corev1.PodPending, corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image app"})
	blocked(w, "image", workstate.ImagePull, "pull secret")
}

// waits has a Pod of the first cluster wait, in the status that a kubelet writes.
func waits(w *world.World, name string, phase corev1.PodPhase, why corev1.ContainerStateWaiting) {
	w.Helper()
	pods := kubernetes.NewForConfigOrDie(w.Spokes[0].REST()).CoreV1().Pods(w.Targets[0])
	kit.Eventually(w, "the Pod "+name, func() error {
		pod, err := pods.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.Status = corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [app]"},
		}, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Image: "app", State: corev1.ContainerState{
			Waiting: &why}}}}
		_, err = pods.UpdateStatus(w.Context(), pod, metav1.UpdateOptions{})
		return err
	})
}

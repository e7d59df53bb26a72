package integration

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// scriptedSource publishes events itself, as often and in whatever order a test needs.
type scriptedSource struct {
	*world
	peer *wirekit.Peer
}

// scriptedSource connects one, starts the agent, and waits until the agent is subscribed.
func (w *world) scriptedSource() *scriptedSource {
	w.Helper()
	topics := topicsOf(string(w.sdk))
	ours, err := topics.ForSource(w.sdk)
	kit.NoError(w, err)
	s := &scriptedSource{w, wirekit.Connect(w, w.transport(string(w.sdk), string(w.sdk), topics), ours.Subscriptions()...)}
	w.agent(0, topics)
	wirekit.Next(w, s.peer, "the agent requests specs", func(*wire.SpecResync) bool { return true })
	return s
}

// publish publishes the spec times over.
func (s *scriptedSource) publish(spec *wire.Spec, times int) {
	s.Helper()
	for range times {
		s.peer.Publish(s, fmt.Sprintf("sources/%s/clusters/%s/sourceevents", s.sdk, s.clusters[0]), spec, nil)
	}
}

// spec returns a work of one ConfigMap at a generation.
func (s *scriptedSource) spec(generation wire.Generation, value string) *wire.Spec {
	work := s.work(0, "web", value, "a")
	return &wire.Spec{UID: "uid-1", Source: s.sdk, Cluster: s.clusters[0], Generation: generation, Action: wire.Update,
		Meta: metav1.ObjectMeta{Name: "web", Namespace: string(s.clusters[0]), UID: "uid-1"}, Bundle: wire.NewBundle(&work.Spec)}
}

// has returns a condition for statuses of a generation that have a condition.
func has(generation wire.Generation, condition string) func(*wire.Status) bool {
	return func(status *wire.Status) bool {
		return status.Generation == generation && meta.IsStatusConditionTrue(status.Status.Conditions, condition)
	}
}

// awaits waits for a status of a generation with the condition.
func (s *scriptedSource) awaits(generation wire.Generation, condition string) {
	s.Helper()
	wirekit.Next(s, s.peer, fmt.Sprintf("%s at generation %d", condition, generation), has(generation, condition))
}

// finalizers sets the finalizers of a ConfigMap on the cluster.
func (s *scriptedSource) finalizers(name, value string) {
	s.Helper()
	client := kubernetes.NewForConfigOrDie(s.plane(0).REST())
	_, err := client.CoreV1().ConfigMaps(s.targets[0]).Patch(s.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, value), metav1.PatchOptions{})
	kit.NoError(s, err)
}

// count returns the number of statuses received for which want returns true.
func (s *scriptedSource) count(want func(*wire.Status) bool) (n int) {
	for _, message := range s.peer.Received() {
		if status, ok := message.(*wire.Status); ok && want(status) {
			n++
		}
	}
	return n
}

func TestDuplicateAndReorderedEvents(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		s := w.scriptedSource()
		s.publish(s.spec(3, "3"), 3)
		s.publish(s.spec(1, "1"), 2)
		s.publish(s.spec(2, "2"), 2)
		s.awaits(3, workv1.WorkApplied)
		w.holds(0, map[string]string{"a": "3"})

		// A finalizer keeps the deletion from being done before all is said.
		s.finalizers("a", `["test.workwire.dev/hold"]`)
		now := metav1.Now()
		deletion := s.spec(4, "")
		deletion.Action, deletion.Bundle, deletion.DeletionTimestamp = wire.Delete, nil, &now
		s.publish(deletion, 2)
		s.publish(s.spec(3, "3"), 2) // too late: nothing takes a deletion back
		s.awaits(4, workv1.WorkDeleting)
		s.finalizers("a", "null")
		s.awaits(4, workv1.WorkDeleted)
		w.holds(0, nil)
		w.noAppliedManifestWorks(0)
		// A deletion of a work that is gone is answered again, once the broker has acknowledged the
		// agent's last status; until then that status is the answer. So publish it again until it
		// is answered.
		answered := func() int { return s.count(has(deletion.Generation, workv1.WorkDeleted)) }
		before := answered()
		kit.Eventually(t, "the deletion of a work that is gone is answered", func() error {
			if answered() == before {
				s.publish(deletion, 1)
				return errors.New("it is not")
			}
			return nil
		})
	})
}

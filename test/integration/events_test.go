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
	"github.com/workwire/workwire/test/kit/world"
)

// scriptedSource publishes events itself, as often and in whatever order a test needs.
type scriptedSource struct {
	*world.World
	peer *wirekit.Peer
}

// startScriptedSource connects one, starts the agent, and waits until the agent is subscribed.
func startScriptedSource(w *world.World) *scriptedSource {
	w.Helper()
	topics := world.Topics(w.Other)
	ours, err := topics.ForSource(w.Other)
	kit.NoError(w, err)
	s := &scriptedSource{w, wirekit.Connect(w, w.Transport(string(w.Other), string(w.Other), topics), ours.Subscriptions()...)}
	w.StartAgent(0, world.Serve(w.Other))
	wirekit.Next(w, s.peer, "the agent requests specs", func(*wire.SpecResync) bool { return true })
	return s
}

// publish publishes the spec times over.
func (s *scriptedSource) publish(spec *wire.Spec, times int) {
	s.Helper()
	for range times {
		s.peer.Publish(s, fmt.Sprintf("sources/%s/clusters/%s/sourceevents", s.Other, s.Clusters[0]), spec, nil)
	}
}

// spec returns a work of one ConfigMap at a generation.
func (s *scriptedSource) spec(generation wire.Generation, value string) *wire.Spec {
	work := s.Work(0, "web", value, "a")
	return &wire.Spec{UID: "uid-1", Source: s.Other, Cluster: s.Clusters[0], Generation: generation, Action: wire.Update,
		Meta: metav1.ObjectMeta{Name: "web", Namespace: string(s.Clusters[0]), UID: "uid-1"}, Bundle: wire.NewBundle(&work.Spec)}
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
	client := kubernetes.NewForConfigOrDie(s.Spokes[0].REST())
	_, err := client.CoreV1().ConfigMaps(s.Targets[0]).Patch(s.Context(), name, types.MergePatchType,
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
	onBothBrokers(t, func(w *world.World) {
		s := startScriptedSource(w)
		s.publish(s.spec(3, "3"), 3)
		s.publish(s.spec(1, "1"), 2)
		s.publish(s.spec(2, "2"), 2)
		s.awaits(3, workv1.WorkApplied)
		w.Holds(0, map[string]string{"a": "3"})

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
		w.Holds(0, nil)
		w.NoAppliedManifestWorks(0)
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

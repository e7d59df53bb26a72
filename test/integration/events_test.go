package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// speaker is a source that sends events itself, as often and in whatever order a
// test wants.
type speaker struct {
	*world
	link     transport.Transport
	statuses chan *wire.Status
}

// speaker starts one, and the agent, and waits until the agent listens.
func (w *world) speaker() *speaker {
	w.Helper()
	topics := topicsOf(string(w.sdk))
	s := &speaker{world: w, link: w.link(string(w.sdk), string(w.sdk), topics), statuses: make(chan *wire.Status, 1000)}
	connected, asked := make(chan struct{}), make(chan struct{})
	connect, ask := sync.OnceFunc(func() { close(connected) }), sync.OnceFunc(func() { close(asked) })
	ours, err := topics.ForSource(w.sdk)
	if err != nil {
		w.Fatal(err)
	}
	w.run("source", func(ctx context.Context) error {
		return s.link.Run(ctx, transport.Handler{
			Subscriptions: ours.Subscriptions(),
			Connected:     func(context.Context, transport.Connection) { connect() },
			Received: func(_ context.Context, m transport.Message) {
				m.Ack()
				message, err := wire.Decode(m.Event)
				if err != nil {
					w.Errorf("the agent sent what can not be decoded: %v", err)
				}
				switch message := message.(type) {
				case *wire.Status:
					s.statuses <- message
				case *wire.SpecResync:
					ask()
				}
			},
		})
	})
	s.within(connected, "the source connects")
	w.agent(0, topics)
	s.within(asked, "the agent asks for specs")
	return s
}

func (s *speaker) within(c <-chan struct{}, what string) {
	s.Helper()
	select {
	case <-c:
	case <-time.After(wait):
		s.Fatalf("%s: not within %v", what, wait)
	}
}

// say publishes the spec times over.
func (s *speaker) say(spec *wire.Spec, times int) {
	s.Helper()
	event, err := wire.Encode(spec, time.Now())
	if err != nil {
		s.Fatal(err)
	}
	topic := fmt.Sprintf("sources/%s/clusters/%s/sourceevents", s.sdk, s.clusters[0])
	for range times {
		if err := s.link.Publish(s.ctx, topic, event); err != nil {
			s.Fatal(err)
		}
	}
}

// spec is a work of one ConfigMap at a generation.
func (s *speaker) spec(generation wire.Generation, value string) *wire.Spec {
	work := s.work(0, "web", value, "a")
	return &wire.Spec{UID: "uid-1", Source: s.sdk, Cluster: s.clusters[0], Generation: generation, Action: wire.Update,
		Meta: metav1.ObjectMeta{Name: "web", Namespace: string(s.clusters[0]), UID: "uid-1"}, Bundle: wire.NewBundle(&work.Spec)}
}

// hears waits for a status with the condition, of a generation.
func (s *speaker) hears(generation wire.Generation, condition string) {
	s.Helper()
	for deadline := time.After(wait); ; {
		select {
		case status := <-s.statuses:
			if status.Generation == generation && meta.IsStatusConditionTrue(status.Status.Conditions, condition) {
				return
			}
		case <-deadline:
			s.Fatalf("no status of generation %d with %s within %v", generation, condition, wait)
		}
	}
}

// answers says a deletion, and reports whether Deleted is heard within a while.
func (s *speaker) answers(deletion *wire.Spec, within time.Duration) bool {
	s.Helper()
	s.say(deletion, 1)
	for deadline := time.After(within); ; {
		select {
		case status := <-s.statuses:
			if status.Generation == deletion.Generation && meta.IsStatusConditionTrue(status.Status.Conditions, workv1.WorkDeleted) {
				return true
			}
		case <-deadline:
			return false
		}
	}
}

// finalizers sets those of a ConfigMap on the cluster.
func (s *speaker) finalizers(name, value string) {
	s.Helper()
	client := kubernetes.NewForConfigOrDie(s.plane(0).REST())
	_, err := client.CoreV1().ConfigMaps(s.targets[0]).Patch(s.ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, value), metav1.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

func TestDuplicateAndReorderedEvents(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		s := w.speaker()
		s.say(s.spec(3, "3"), 3)
		s.say(s.spec(1, "1"), 2)
		s.say(s.spec(2, "2"), 2)
		s.hears(3, workv1.WorkApplied)
		w.holds(0, map[string]string{"a": "3"})

		// A finalizer keeps the deletion from being done before all is said.
		s.finalizers("a", `["test.workwire.dev/hold"]`)
		now := metav1.Now()
		deletion := s.spec(4, "")
		deletion.Action, deletion.Bundle, deletion.DeletionTimestamp = wire.Delete, nil, &now
		s.say(deletion, 2)
		s.say(s.spec(3, "3"), 2) // too late: nothing takes a deletion back
		s.hears(4, workv1.WorkDeleting)
		s.finalizers("a", "null")
		s.hears(4, workv1.WorkDeleted)
		w.holds(0, nil)
		w.noRecords(0)
		// A deletion of what is gone already is answered again, once the agent knows
		// that its last word was taken; until then that word is the answer.
		for deadline := time.Now().Add(wait); !s.answers(deletion, time.Second); {
			if time.Now().After(deadline) {
				t.Fatal("the deletion of a work that is gone is not answered")
			}
		}
	})
}

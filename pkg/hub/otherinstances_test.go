package hub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

const otherProgram = "another program publishes under this source id"

// TestTwoHubsUnderOneSourceID: replicas of one hub hand over without a word about two programs. Two
// hubs with the source id of one, which do not know each other, both say so, in log and events.
func TestTwoHubsUnderOneSourceID(t *testing.T) {
	for name, start := range world.Brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldOn(t, start)
			run := func(id, namespace string) *replica {
				return w.startHub(w.electing(id), func(c *hub.Config) {
					c.Election.Namespace = namespace
					c.Transport, c.InstanceInterval = w.Transport("hub1", id, topics), time.Second
					c.Controllers = []string{hub.ControllerTTL}
				})
			}
			watched := func(r *replica) {
				t.Helper()
				kit.True(t, "the hub hears itself", func() bool {
					return kit.Gather(t, r.Metrics).Sum("workwire_source_instances_watched") == 1
				})
			}
			leader := run("a", w.namespace)
			watched(leader)
			standby := run("b", w.namespace)
			leader.Stop()
			watched(standby)
			elsewhere := plane.Namespace(t, "elsewhere")
			other := run("c", elsewhere)
			standby.Log.Await(t, `level=ERROR msg="`+otherProgram+`" source=hub1 other="host [^"]+, process `)
			last := other.Log.Await(t, `level=ERROR msg="`+otherProgram+`" source=hub1 other="host [^"]+, process .* thisInstance=(\S+) `)
			if lines := standby.Log.Lines(otherProgram); len(lines) != len(standby.Log.Lines(otherProgram, "otherInstance="+last)) {
				t.Errorf("a hand-over counts as another program: %q", lines)
			}
			if lines := leader.Log.Lines(otherProgram); len(lines) > 0 {
				t.Errorf("a former leader counts the next one as another program: %q", lines)
			}
			for _, namespace := range []string{w.namespace, elsewhere} {
				w.awaitEvent(namespace, "TwoProgramsOneSource", "Another program publishes under the source id hub1 since ")
			}
		})
	}
}

// awaitEvent waits for an event about the hub's identity.
func (w *hubWorld) awaitEvent(namespace, reason, text string) {
	w.Helper()
	core, err := kubernetes.NewForConfig(plane.REST())
	kit.NoError(w, err)
	kit.Eventually(w, "event "+reason+" in "+namespace, func() error {
		list, err := core.CoreV1().Events(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && e.InvolvedObject.Name == hub.IdentityConfigMap && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("there are %d others", len(list.Items))
	})
}

package hub_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/brokertest"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
)

const otherProgram = "another program publishes under this source id"

// TestTwoHubsUnderOneSourceID: replicas of one hub hand over without a word about two programs. Two
// hubs with the source id of one, which do not know each other, both say so, in log and events.
func TestTwoHubsUnderOneSourceID(t *testing.T) {
	for name, start := range map[string]func(testing.TB, []broker.User) *brokertest.Running{
		"work-broker": func(t testing.TB, users []broker.User) *brokertest.Running {
			return brokertest.Start(t, broker.Config{Users: users})
		},
		"mosquitto": brokertest.StartMosquitto,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b := start(t, []broker.User{{Username: "hub1", Password: "secret", Role: acl.Source}})
			run := func(id, namespace string, log *kit.Log) *replica {
				r := w.startHubWith(func(c *hub.Config) {
					c.Election = w.electing(id)
					c.Election.Namespace = namespace
					c.Transport, c.InstanceInterval = client(t, b.Addr, "hub1", id), time.Second
					c.Controllers, c.Logger = []string{hub.ControllerTTL}, slog.New(slog.NewTextHandler(log, nil))
				})
				return r
			}
			watched := func(r *replica) {
				t.Helper()
				kit.True(t, "the hub hears itself", func() bool {
					return kit.Gather(t, r.registry).Sum("workwire_source_instances_watched") == 1
				})
			}
			var logs [3]kit.Log
			leader := run("a", w.namespace, &logs[0])
			watched(leader)
			standby := run("b", w.namespace, &logs[1])
			leader.stop()
			watched(standby)
			elsewhere := plane.Namespace(t, "elsewhere")
			run("c", elsewhere, &logs[2])
			logs[1].Await(t, `level=ERROR msg="`+otherProgram+`" source=hub1 other="host [^"]+, process `)
			last := logs[2].Await(t, `level=ERROR msg="`+otherProgram+`" source=hub1 other="host [^"]+, process .* thisInstance=(\S+) `)
			if lines := logs[1].Lines(otherProgram); len(lines) != len(logs[1].Lines(otherProgram, "otherInstance="+last)) {
				t.Errorf("a hand-over counts as another program: %q", lines)
			}
			if text := logs[0].String(); strings.Contains(text, otherProgram) {
				t.Errorf("a former leader counts the next one as another program:\n%s", text)
			}
			for _, namespace := range []string{w.namespace, elsewhere} {
				w.awaitEvent(namespace, "TwoProgramsOneSource", "Another program publishes under the source id hub1 since ")
			}
		})
	}
}

// awaitEvent waits for an event about the hub's identity.
func (w *world) awaitEvent(namespace, reason, text string) {
	w.t.Helper()
	core, err := kubernetes.NewForConfig(plane.REST())
	kit.NoError(w.t, err)
	kit.Eventually(w.t, "event "+reason+" in "+namespace, func() error {
		list, err := core.CoreV1().Events(namespace).List(w.t.Context(), metav1.ListOptions{})
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

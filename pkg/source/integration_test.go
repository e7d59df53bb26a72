package source_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestRealBrokers runs a source and an agent over MQTT: works are created, changed and deleted
// while the broker, the agent and the source are restarted.
func TestRealBrokers(t *testing.T) {
	users := []broker.User{
		{Username: "ops", Password: "secret", Role: acl.Source},
		{Username: "cluster1", Password: "secret", Role: acl.Agent},
	}
	for name, start := range map[string]func(t *testing.T) *brokertest.Running{
		"embedded":  func(t *testing.T) *brokertest.Running { return brokertest.Start(t, broker.Config{Users: users}) },
		"mosquitto": func(t *testing.T) *brokertest.Running { return brokertest.StartMosquitto(t, users) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overMQTT(t, start(t))
		})
	}
}

func overMQTT(t *testing.T, b *brokertest.Running) {
	r := &sourceOverMQTT{t: t, broker: b, path: filepath.Join(t.TempDir(), "ops.db")}
	const works = 100
	r.startSource()
	agent := wirekit.NewAgent(wirekit.AgentConfig{Cluster: "cluster1", Source: "ops", Topics: topics, Transport: r.transport("cluster1")})
	stopAgent := kit.Run(t, "agent", agent.Run)

	r.each(works, r.create)
	b.Restart(t) // in the middle of it
	r.until("all works are applied", allApplied(works))

	stopAgent()
	r.each(works, r.change)
	r.each(10, func(i int) { r.delete(works + i - 10) })
	r.stopSource()
	r.startSource()
	agent = wirekit.NewAgent(wirekit.AgentConfig{Cluster: "cluster1", Source: "ops", Topics: topics, Transport: r.transport("cluster1")})
	stopAgent = kit.Run(t, "agent", agent.Run) // without the works it had
	r.until("the changes are applied and the deleted works gone", allApplied(works-10))
	for uid, spec := range agent.Holds() {
		if spec.Meta.Labels["changed"] != "yes" {
			t.Errorf("work %s (%s) has not changed on its cluster", spec.Meta.Name, uid)
		}
	}

	b.Stop()
	r.each(works-10, r.delete)
	b.Restart(t)
	r.until("nothing is left", allApplied(0))
	stopAgent()
	r.stopSource()
	if n := len(agent.Holds()); n != 0 {
		t.Errorf("the agent still holds %d works", n)
	}
}

// sourceOverMQTT is a source on a real broker.
type sourceOverMQTT struct {
	t          *testing.T
	broker     *brokertest.Running
	path       string
	client     *source.Client
	stopSource func()
}

func (r *sourceOverMQTT) startSource() {
	r.t.Helper()
	c, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: r.transport("ops"), StateFile: r.path,
		Logger: kit.Logger(r.t)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.client, r.stopSource = c, kit.Run(r.t, "source", c.Run)
}

// transport returns a transport for a user of the broker.
func (r *sourceOverMQTT) transport(user string) *mqtt.Transport {
	r.t.Helper()
	m, err := mqtt.New(mqtt.Config{ClientID: user + "-client", Logger: kit.Logger(r.t),
		Broker: config.Config{BrokerHost: r.broker.Addr, Username: user, Password: "secret", Topics: topics}})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// each runs do n times concurrently.
func (r *sourceOverMQTT) each(n int, do func(i int)) {
	var doing sync.WaitGroup
	for i := range n {
		doing.Go(func() { do(i) })
	}
	doing.Wait()
}

func (r *sourceOverMQTT) create(i int) {
	_, err := r.client.ManifestWorks("cluster1").Create(r.t.Context(), configMap(fmt.Sprintf("w%d", i), "one"), metav1.CreateOptions{})
	r.check(err)
}

func (r *sourceOverMQTT) change(i int) {
	patch := []byte(`{"metadata":{"labels":{"changed":"yes"}},"spec":{"deleteOption":{"propagationPolicy":"Foreground"}}}`)
	_, err := r.client.ManifestWorks("cluster1").Patch(r.t.Context(), fmt.Sprintf("w%d", i), types.MergePatchType, patch, metav1.PatchOptions{})
	r.check(err)
}

func (r *sourceOverMQTT) delete(i int) {
	r.check(r.client.ManifestWorks("cluster1").Delete(r.t.Context(), fmt.Sprintf("w%d", i), metav1.DeleteOptions{}))
}

func (r *sourceOverMQTT) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
	}
}

// until waits until the condition holds for the works. It checks after each change.
func (r *sourceOverMQTT) until(what string, is func([]workv1.ManifestWork) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	works := r.client.ManifestWorks("")
	for {
		list, err := works.List(ctx, metav1.ListOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		if is(list.Items) {
			return
		}
		watching, err := works.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			r.t.Fatal(err)
		}
		_, open := <-watching.ResultChan()
		watching.Stop()
		if !open {
			r.t.Fatalf("%s: not after 2 minutes; there are %d works", what, len(list.Items))
		}
	}
}

// allApplied requires n works, all of them applied at their newest generation.
func allApplied(n int) func([]workv1.ManifestWork) bool {
	return func(works []workv1.ManifestWork) bool {
		for i := range works {
			if !applied(&works[i]) {
				return false
			}
		}
		return len(works) == n
	}
}

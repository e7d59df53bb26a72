package source_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/ctl/doctor"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/instances"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// program is a program under the source id "ops", with a client id of its own.
type program struct {
	log      kit.Log
	registry *prometheus.Registry
	others   chan []instances.Other
	stop     func()
}

func startProgram(t *testing.T, b *brokertest.Running, clientID string, s store.Store) *program {
	t.Helper()
	p := &program{registry: prometheus.NewRegistry(), others: make(chan []instances.Other, 16)}
	tr, err := mqtt.New(mqtt.Config{ClientID: clientID, Logger: p.log.Logger(), Broker: opsConfig(b)})
	kit.NoError(t, err)
	c, err := source.New(source.Config{
		SourceID: "ops", Topics: topics, Transport: tr, Store: s, Ephemeral: true, Logger: p.log.Logger(), Registerer: p.registry,
		InstanceInterval: time.Second, OnOtherInstances: func(others []instances.Other) { p.others <- others },
	})
	kit.NoError(t, err)
	p.stop = kit.Run(t, clientID, c.Run)
	kit.True(t, clientID+" hears itself", func() bool { return kit.Metric(t, p.registry, "workwire_source_instances_watched") == 1 })
	return p
}

// await waits until there are n others.
func (p *program) await(t *testing.T, what string, n int) []instances.Other {
	t.Helper()
	for {
		if others := kit.Receive(t, what, p.others); len(others) == n {
			return others
		}
	}
}

func opsConfig(b *brokertest.Running) config.Config {
	return config.Config{BrokerHost: b.Addr, Username: "ops", Password: "secret", Topics: topics}
}

const otherProgram = "another program publishes under this source id"

// TestTwoProgramsUnderOneSourceID: both say so, with the host of the other, until one ends; a
// program that is restarted is none of two. workctl doctor tells at once.
func TestTwoProgramsUnderOneSourceID(t *testing.T) {
	users := []broker.User{{Username: "ops", Password: "secret", Role: acl.Source}}
	for name, start := range map[string]func(t *testing.T) *brokertest.Running{
		"embedded":  func(t *testing.T) *brokertest.Running { return brokertest.Start(t, broker.Config{Users: users}) },
		"mosquitto": func(t *testing.T) *brokertest.Running { return brokertest.StartMosquitto(t, users) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			first := startProgram(t, b, "ops-1", nil)
			for range 3 {
				first.stop()
				first = startProgram(t, b, "ops-1", nil)
			}
			expectPrograms(t, b, doctor.Skipped, "one program publishes as ops: host ")
			if text := first.log.String(); strings.Contains(text, otherProgram) {
				t.Errorf("a restart counts as another program:\n%s", text)
			}
			second := startProgram(t, b, "ops-2", nil)
			for what, p := range map[string]*program{"the first": first, "the second": second} {
				if others := p.await(t, what+" notices the other", 1); !strings.HasPrefix(others[0].Program, "host ") || others[0].Since.IsZero() {
					t.Errorf("%s: got %+v", what, others)
				}
				p.log.Await(t, `level=ERROR msg="`+otherProgram+`" source=ops other="host [^"]+, process \d+" otherInstance=\S+ otherSince=\S+ this="host [^"]+`)
				kit.True(t, what+" counts the other", func() bool { return kit.Metric(t, p.registry, "workwire_source_other_instances") == 1 })
			}
			expectPrograms(t, b, doctor.Fault, "2 programs publish as ops: host ")
			second.stop()
			first.await(t, "the first is alone", 0)
			first.log.Await(t, `level=INFO msg="the other program under this source id is no longer heard"`)
			first.stop()
		})
	}
}

// TestReplicaAndAnotherProgram: a replica with a shared store and a program without it notice each other; announcements, too, are
// published with the lease only.
func TestReplicaAndAnotherProgram(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: []broker.User{{Username: "ops", Password: "secret", Role: acl.Source}}})
	lease := &validLease{}
	replica := startProgram(t, b, "ops-1", &sharedStore{lease: lease})
	if lease.asked.Load() == 0 {
		t.Error("the replica publishes whoever has the lease")
	}
	other := startProgram(t, b, "ops-2", nil)
	replica.await(t, "the replica notices the other program", 1)
	other.await(t, "the other program notices the replica", 1)
}

// expectPrograms has workctl doctor say this about the source id.
func expectPrograms(t *testing.T, b *brokertest.Running, worst doctor.Verdict, text string) {
	t.Helper()
	c := opsConfig(b)
	for _, r := range doctor.Run(t.Context(), doctor.Config{Broker: &c, Timeout: kit.Patience}) {
		if r.Check == "source id" {
			if !strings.Contains(r.Message, text) || (r.Verdict == doctor.Fault) != (worst == doctor.Fault) {
				t.Errorf("got %+v, want %q", r, text)
			}
			return
		}
	}
	t.Error("doctor does not look at the source id")
}

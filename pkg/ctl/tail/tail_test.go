package tail_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/tail"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/wirekit"
)

var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "$share/replicas/sources/hub1/clusters/+/agentevents",
	SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
}

func TestSubscriptions(t *testing.T) {
	for _, c := range []struct {
		role   tail.Role
		filter tail.Filter
		want   string
	}{
		{tail.Observer, tail.Filter{}, "sources/+/clusters/+/sourceevents sources/+/clusters/+/agentevents sources/+/sourcebroadcast clusters/+/agentbroadcast"},
		{tail.Observer, tail.Filter{Cluster: "c1", Source: "hub2"}, "sources/hub2/clusters/c1/sourceevents sources/hub2/clusters/c1/agentevents sources/hub2/sourcebroadcast clusters/c1/agentbroadcast"},
		{tail.Source, tail.Filter{}, "sources/hub1/clusters/+/agentevents clusters/+/agentbroadcast"},
		{tail.Source, tail.Filter{Cluster: "c1"}, "sources/hub1/clusters/c1/agentevents clusters/c1/agentbroadcast"},
		{tail.Agent, tail.Filter{Cluster: "c1"}, "sources/hub1/clusters/c1/sourceevents sources/+/sourcebroadcast"},
	} {
		got, err := tail.Subscriptions(topics, c.role, c.filter)
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s, %+v: %q, %v", c.role, c.filter, got, err)
		}
	}
	if _, err := tail.Subscriptions(topics, tail.Agent, tail.Filter{}); err == nil {
		t.Error("an agent without a cluster listens")
	}
	if _, err := tail.Subscriptions(wire.Topics{}, tail.Observer, tail.Filter{}); err == nil {
		t.Error("topics are not needed")
	}
}

const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","annotations":{"last":"aHVudGVy"}},"data":{"password":"aHVudGVy"},"stringData":{"plain":"hunter2"}}`

func specOf(name string) *wire.Spec {
	return &wire.Spec{
		UID: "uid-1", Generation: 3, Source: "hub1", Cluster: "c1", Action: wire.Update, Meta: metav1.ObjectMeta{Name: name, UID: "uid-1"},
		Bundle: &wire.Bundle{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(secret)}}}},
	}
}

// TestSecrets checks what is shown of a Secret.
func TestSecrets(t *testing.T) {
	event, err := wire.Encode(specOf("web"), time.Now())
	kit.NoError(t, err)
	show := func(payload tail.Payload) string {
		text, err := json.Marshal(tail.Decode(received(event), time.Now(), payload))
		kit.NoError(t, err)
		return string(text)
	}
	for payload, shown := range map[tail.Payload][3]bool{tail.NoPayload: {false, false}, tail.RedactedPayload: {true, false}, tail.FullPayload: {true, true}} {
		text := show(payload)
		if strings.Contains(text, `"Secret"`) != shown[0] || strings.Contains(text, "hunter2") != shown[1] || strings.Contains(text, "aHVudGVy") != shown[1] {
			t.Errorf("payload %d: %s", payload, text)
		}
		if !strings.Contains(text, `"digest":"`) || !strings.Contains(text, `"summary":"update_request, 1 manifest"`) {
			t.Errorf("payload %d: %s", payload, text)
		}
	}
}

// TestForms: what is compressed, or sent as a difference, is shown as what it says, and no value of a
// Secret either.
func TestForms(t *testing.T) {
	spec := specOf("web")
	for range 10 {
		spec.Bundle.Manifests = append(spec.Bundle.Manifests, spec.Bundle.Manifests[0])
	}
	event, err := wire.Encode(spec, time.Now())
	kit.NoError(t, err)
	kit.NoError(t, wire.Compress(&event))
	if event.DataContentType() == "application/json" {
		t.Fatal("the event is not compressed")
	}
	shown := tail.Decode(received(event), time.Now(), tail.RedactedPayload)
	if text := string(shown.Data); shown.Kind != "spec" || !strings.Contains(text, `"Secret"`) || strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVy") {
		t.Errorf("compressed: %s %s", shown.Kind, text)
	}
	if text := string(tail.Decode(received(event), time.Now(), tail.FullPayload).Data); !strings.Contains(text, "hunter2") {
		t.Errorf("compressed, all of it: %s", text)
	}

	event, err = wire.Encode(specOf("web"), time.Now())
	kit.NoError(t, err)
	kit.NoError(t, wire.SetSealed(&event, wire.Sealed{KeyID: "0123456789abcdef", Box: []byte("box")}, ""))
	shown = tail.Decode(received(event), time.Now(), tail.NoPayload)
	if shown.Kind != "spec" || shown.Work != "web" || shown.Generation != 3 || shown.Summary != "update_request, sealed: only the agent can read it" {
		t.Errorf("sealed: %+v", shown)
	}

	base, next := wirekit.LargeStatus(3), wirekit.LargeStatus(3)
	next.Conditions[0].Message = "changed"
	baseHash, err := wire.StatusHash(&base)
	kit.NoError(t, err)
	hash, err := wire.StatusHash(&next)
	kit.NoError(t, err)
	delta, err := wire.NewStatusDelta(&wire.Status{UID: "uid-1", Generation: 3, Source: "hub1", Cluster: "c1", Agent: "a", Action: wire.Update,
		Meta: metav1.ObjectMeta{Name: "web"}, Hash: hash, Status: next}, &base, baseHash)
	kit.NoError(t, err)
	event, err = wire.Encode(delta, time.Now())
	kit.NoError(t, err)
	shown = tail.Decode(received(event), time.Now(), tail.FullPayload)
	if shown.Kind != "status" || shown.Work != "web" || shown.Generation != 3 || shown.Summary != "7 bytes are new since the status before" ||
		!strings.Contains(string(shown.Data), `"text":"changed"`) {
		t.Errorf("a delta: %+v", shown)
	}
}

func received(event cloudevents.Event) mqtt.Received {
	return mqtt.Received{Size: 100, Message: transport.Message{Topic: "sources/hub1/clusters/c1/sourceevents", Event: event}}
}

// TestRun listens on real brokers, as each role.
func TestRun(t *testing.T) {
	users := []broker.User{
		{Username: "hub1", Password: "secret", Role: acl.Source}, {Username: "c1", Password: "secret", Role: acl.Agent},
		{Username: "observer.ops", ID: "ops", Password: "secret", Role: acl.Observer},
	}
	for name, start := range map[string]func(testing.TB) *brokertest.Running{
		"work-broker": func(t testing.TB) *brokertest.Running { return brokertest.Start(t, broker.Config{Users: users}) },
		"mosquitto":   func(t testing.TB) *brokertest.Running { return brokertest.StartMosquitto(t, users) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			listen := func(role tail.Role, user string, filter tail.Filter) <-chan tail.Event {
				events, listening := make(chan tail.Event, 100), make(chan struct{})
				c := tail.Config{Broker: transportOf(b, user), Role: role, Filter: filter, Emit: func(e tail.Event) { events <- e }, Listening: func() { close(listening) }}
				kit.Run(t, "tail of "+user, func(ctx context.Context) error { return tail.Run(ctx, c) })
				kit.Receive(t, "listening", listening)
				return events
			}
			all := listen(tail.Observer, "observer.ops", tail.Filter{})
			some := listen(tail.Observer, "observer.ops", tail.Filter{Cluster: "c1", Work: "web", Kinds: []string{"spec"}})
			source := listen(tail.Source, "hub1", tail.Filter{})
			agent := listen(tail.Agent, "c1", tail.Filter{Cluster: "c1"})
			exchange(t, b)
			wants := map[string]<-chan tail.Event{"spec other, spec web, status web": all, "spec web": some, "status web": source, "spec other, spec web": agent}
			for want, events := range wants {
				var got []string
				for range strings.Count(want, ",") + 1 {
					e := kit.Receive(t, want, events)
					got = append(got, e.Kind+" "+e.Work)
					if e.Source != "hub1" || e.Cluster != "c1" || e.Size < 100 || e.Data != nil || e.Digest == "" || e.Received.Before(e.Sent) {
						t.Errorf("%+v", e)
					}
				}
				slices.Sort(got) // the topics of source and agent have no common order
				if strings.Join(got, ", ") != want {
					t.Errorf("got %q, want %s", got, want)
				}
			}
			err := tail.Run(t.Context(), tail.Config{Broker: transportOf(b, "nobody"), Emit: func(tail.Event) {}})
			if err == nil || !strings.Contains(err.Error(), "check ") {
				t.Errorf("an unknown user: %v", err)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		b := brokertest.Start(t, broker.Config{Users: users})
		err := tail.Run(t.Context(), tail.Config{Broker: transportOf(b, "hub1"), Emit: func(tail.Event) {}})
		if err == nil || !strings.Contains(err.Error(), "use --as") {
			t.Errorf("a source as observer: %v", err)
		}
		b.Stop()
	})
}

func transportOf(b *brokertest.Running, user string) config.Config {
	c := topics
	c.AgentEvents = wire.Unshared(c.AgentEvents)
	return config.Config{BrokerHost: b.Addr, Username: user, Password: "secret", Topics: c}
}

// exchange has a source send two works, and the agent a status of one.
func exchange(t *testing.T, b *brokertest.Running) {
	t.Helper()
	connect := func(user, filter string) *wirekit.Peer {
		tr, err := mqtt.New(mqtt.Config{Broker: transportOf(b, user), ClientID: user, Logger: kit.Logger(t)})
		kit.NoError(t, err)
		return wirekit.Connect(t, tr, filter)
	}
	hub, agent := connect("hub1", "sources/hub1/clusters/+/agentevents"), connect("c1", "sources/+/clusters/c1/sourceevents")
	hub.Publish(t, "sources/hub1/clusters/c1/sourceevents", specOf("other"), nil)
	hub.Publish(t, "sources/hub1/clusters/c1/sourceevents", specOf("web"), nil)
	wirekit.Next(t, agent, "the spec", func(s *wire.Spec) bool { return s.Meta.Name == "web" })
	agent.Publish(t, "sources/hub1/clusters/c1/agentevents", &wire.Status{
		UID: "uid-1", Generation: 3, Source: "hub1", Cluster: "c1", Agent: "agent", Action: wire.Update, Sequence: 1, Meta: metav1.ObjectMeta{Name: "web", UID: "uid-1"},
		Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: "Applied", Status: "False", Reason: "AppliedManifestWorkFailed"}}},
	}, nil)
}

// FuzzDecode checks that no payload breaks an event, or gets a Secret past the redaction.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{secret, "[" + secret + "]", `{"manifests":[` + secret + `]}`, `{"kind":"Secret","data":"hunter2"}`, "hunter2", `{"a":`, "null", strings.Repeat("[", 20000)} {
		f.Add([]byte(seed), "io.open-cluster-management.works.v1alpha1.manifestbundles.spec.update_request")
		f.Add([]byte(seed), "dev.workwire.v1alpha1.agents.status.update_request")
	}
	f.Fuzz(func(t *testing.T, data []byte, kind string) {
		event := cloudevents.New()
		event.SetType(kind)
		event.SetSource("hub1")
		event.SetID("1")
		if err := event.SetData("application/json", data); err != nil {
			return
		}
		e := tail.Decode(received(event), time.Now(), tail.RedactedPayload)
		if !slices.Contains(tail.Kinds, e.Kind) {
			t.Errorf("kind %q", e.Kind)
		}
		if text, err := json.Marshal(e); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	})
}

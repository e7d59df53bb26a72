package wire_test

import (
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/pkg/wire"
)

// TestInstance: what a program says of itself survives the wire, and a question is empty.
func TestInstance(t *testing.T) {
	at := time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	for _, want := range []*wire.Instance{
		{Source: "hub1", ID: "a-1", Program: "host node1, process 7", Since: at, Heard: []string{"b-2"}, Expires: at.Add(time.Minute)},
		{Source: "hub1", ID: "a-1", Part: "work-hub-hub1-a"},
		{Source: "hub1"},
	} {
		e, err := wire.Encode(want, at)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// TestInstanceFaults: what is too long or has another shape is refused both ways, and what is shown to people cannot steer a terminal.
func TestInstanceFaults(t *testing.T) {
	for name, data := range map[string]string{
		"id":      `{"instance":"A B"}`,
		"heard":   `{"instance":"a","heard":["b c"]}`,
		"many":    `{"instance":"a","heard":["` + strings.Repeat(`b","`, wire.MaxHeardInstances) + `b"]}`,
		"program": `{"instance":"a","program":"` + strings.Repeat("x", 257) + `"}`,
		"part":    `{"instance":"a","part":"` + strings.Repeat("x", 257) + `"}`,
		"no JSON": `{`,
	} {
		if m, err := wire.Decode(instanceEvent(data)); err == nil {
			t.Errorf("%s: decoded as %+v", name, m)
		}
	}
	m, err := wire.Decode(instanceEvent(`{"instance":"a","program":"node1\n\u001b[2J"}`))
	if err != nil || m.(*wire.Instance).Program != "node1  [2J" {
		t.Errorf("got %+v, %v", m, err)
	}
	if _, err := wire.Encode(&wire.Instance{Source: "hub1", ID: "A"}, time.Now()); err == nil {
		t.Error("an id with another shape is encoded")
	}
}

func instanceEvent(data string) cloudevents.Event {
	e := cloudevents.New()
	e.SetID("1")
	e.SetSource("hub1")
	e.SetType("dev.workwire.v1alpha1.sources.spec.update_request")
	_ = e.SetData("application/json", []byte(data))
	return e
}

func TestInstancesTopic(t *testing.T) {
	topics := wire.Topics{SourceEvents: "sources/+/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"}
	for pattern, want := range map[string]string{topics.SourceEvents: "sources/hub1/clusters/-/sourceevents", "sources/hub1/clusters/c1/sourceevents": ""} {
		topics.SourceEvents = pattern
		source, err := topics.ForSource("hub1")
		if err != nil {
			t.Fatal(err)
		}
		if topic, ok := source.Instances(); topic != want || ok != (want != "") {
			t.Errorf("%s: got %q", pattern, topic)
		}
	}
}

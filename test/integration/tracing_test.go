package integration

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/tracing/otlp"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/tracekit"
	"github.com/workwire/workwire/test/kit/world"
)

// exportTo returns a provider of spans for a program, whose spans arrive when flush is called.
func exportTo(t *testing.T, c *tracekit.Collector, service string) (provider trace.TracerProvider, flush func()) {
	t.Helper()
	options := otlp.NewOptions()
	options.Endpoint = c.URL
	exporter, err := otlp.New(otlp.Config{Options: options, Service: service, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	return exporter.TracerProvider(), func() {
		flusher := exporter.TracerProvider().(interface{ ForceFlush(context.Context) error })
		kit.NoError(t, flusher.ForceFlush(t.Context()))
	}
}

// traced is a hub, a broker and an agent that export to a collector.
func traced(t *testing.T) (w *world.World, collector *tracekit.Collector, flush func()) {
	w, collector = newWorld(t), tracekit.Start(t)
	atBroker, flushBroker := exportTo(t, collector, "work-broker")
	w.StartBroker(broker.Config{TracerProvider: atBroker})
	atHub, flushHub := exportTo(t, collector, "work-hub")
	w.StartHub(func(c *hub.Config) { c.TracerProvider = atHub }).AwaitConnected()
	atAgent, flushAgent := exportTo(t, collector, "work-agent")
	w.StartAgent(0, func(c *agent.Config) { c.TracerProvider = atAgent })
	return w, collector, func() { flushHub(); flushBroker(); flushAgent() }
}

// One trace has a change from the spec at the hub to the status at the hub, with the requests to both
// API servers, and no value of an object.
func TestOneTraceOfOneChange(t *testing.T) {
	t.Parallel()
	w, collector, flush := traced(t)
	const secret = "a-value-that-traces-must-not-have"
	w.Create(w.Works(0), w.Work(0, "earlier", "1", "earlier"))
	w.Applied(w.Works(0), "earlier") // the agent is connected: the next work is no answer to its question
	w.Create(w.Works(0), w.Work(0, "web", secret, "one"))
	w.Applied(w.Works(0), "web")

	uid := uidOf(w, 0, "web")
	var all []tracekit.Span
	// The status can be published, and stored, more than once.
	find := func(service, name string) (found []tracekit.Span) {
		for _, s := range all {
			if s.Service == service && s.Name == name && s.Attributes["workwire.work.uid"] == string(uid) && s.Attributes["workwire.work.generation"] == int64(1) {
				found = append(found, s)
			}
		}
		return found
	}
	child := func(s tracekit.Span, service, name string) bool {
		if name == "" {
			return s.Parent == ""
		}
		return slices.ContainsFunc(find(service, name), func(parent tracekit.Span) bool { return parent.ID == s.Parent })
	}
	const specs, statuses = "sources/{id}/clusters/{id}/sourceevents", "sources/{id}/clusters/{id}/agentevents"
	type expected struct{ service, name, parentService, parent, kind string }
	parents := []expected{
		{"work-hub", "deliver ManifestWork", "", "", "internal"},
		{"work-hub", "publish " + specs, "work-hub", "deliver ManifestWork", "producer"},
		{"work-agent", "process " + specs, "work-hub", "publish " + specs, "consumer"},
		{"work-agent", "reconcile ManifestWork", "work-agent", "process " + specs, "internal"},
		{"work-agent", "publish " + statuses, "work-agent", "reconcile ManifestWork", "producer"},
		{"work-hub", "process " + statuses, "work-agent", "publish " + statuses, "consumer"},
		{"work-hub", "store status", "work-hub", "process " + statuses, "internal"},
	}
	kit.Eventually(t, "the trace is complete", func() error {
		flush()
		all = collector.Spans()
		routes := 0
		for _, s := range all {
			if s.Service == "work-broker" && slices.ContainsFunc(find("work-hub", "deliver ManifestWork"), func(root tracekit.Span) bool { return root.Trace == s.Trace }) {
				routes++
			}
		}
		missing := slices.DeleteFunc(slices.Clone(parents), func(p expected) bool { return len(find(p.service, p.name)) > 0 })
		if routes < 2 || len(missing) > 0 {
			return fmt.Errorf("the broker has routed %d messages; missing are %v", routes, missing)
		}
		return nil
	})
	root := find("work-hub", "deliver ManifestWork")[0]
	for _, s := range all {
		// The hub also has the works of other tests.
		if s.Trace != root.Trace && s.Attributes["workwire.work.uid"] == string(uid) {
			t.Errorf("span %s of %s is of another trace", s.Name, s.Service)
		}
	}
	for _, p := range parents {
		spans := find(p.service, p.name)
		i := slices.IndexFunc(spans, func(s tracekit.Span) bool {
			return child(s, p.parentService, p.parent) && s.Kind == p.kind && !s.Failed
		})
		if i < 0 {
			t.Errorf("%s of %s: %+v, want one with a parent %q of %s and kind %s", p.name, p.service, spans, p.parent, p.parentService, p.kind)
			continue
		}
		span := spans[i]
		if span.Attributes["workwire.work.uid"] != string(uid) || span.Attributes["k8s.cluster.name"] != string(w.Clusters[0]) ||
			span.Attributes["workwire.work.name"] != "web" || span.Attributes["workwire.source"] != string(w.Source) {
			t.Errorf("%s has attributes %v", p.name, span.Attributes)
		}
		if p.kind != "producer" && p.kind != "consumer" {
			continue
		}
		a := span.Attributes
		if a["messaging.system"] != "mqtt" || !strings.Contains(fmt.Sprint(a["messaging.destination.name"]), string(w.Clusters[0])) ||
			a["messaging.message.id"] == nil || a["messaging.operation.name"] != strings.Fields(p.name)[0] {
			t.Errorf("%s has attributes %v, want those of messaging", p.name, a)
		}
	}
	wantRequests(t, all, find("work-agent", "reconcile ManifestWork"), "create appliedmanifestworks", "configmaps")
	wantRequests(t, all, find("work-hub", "store status"), "update manifestworks/status")
	for name, service := range map[string]string{specs: "work-hub", statuses: "work-agent"} {
		if !slices.ContainsFunc(all, func(s tracekit.Span) bool {
			return s.Service == "work-broker" && s.Name == "route "+name && child(s, service, "publish "+name) && s.Kind == "server"
		}) {
			t.Errorf("the broker has no span route %s with such a parent", name)
		}
	}
	requests, _ := collector.Requests()
	for _, body := range requests {
		if bytes.Contains(body, []byte(secret)) {
			t.Error("the traces have a value of an object")
		}
	}
}

// wantRequests checks that one of the parents has children whose names contain each text.
func wantRequests(t *testing.T, all, parents []tracekit.Span, names ...string) {
	t.Helper()
	if !slices.ContainsFunc(parents, func(parent tracekit.Span) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(all, func(s tracekit.Span) bool {
				code, _ := s.Attributes["http.response.status_code"].(int64)
				return s.Parent == parent.ID && s.Kind == "client" && strings.Contains(s.Name, name) && code >= 200 && code < 300
			})
		})
	}) {
		t.Errorf("none of %+v has the requests %q", parents, names)
	}
}

// uidOf returns the UID of a work at the hub.
func uidOf(w *world.World, i int, name string) types.UID {
	w.Helper()
	work, err := w.Works(i).Get(w.Context(), name, metav1.GetOptions{})
	kit.NoError(w, err)
	return work.UID
}

// Peers without tracing ignore the extension, and what they send has no trace.
func TestTracesBesideOthers(t *testing.T) {
	t.Parallel()
	w, collector := newWorld(t), tracekit.Start(t)
	w.StartBroker(broker.Config{})
	atHub, flush := exportTo(t, collector, "work-hub")
	w.StartHub(func(c *hub.Config) { c.TracerProvider = atHub })
	w.StartAgent(0)
	w.Create(w.Works(0), w.Work(0, "web", "1", "one"))
	w.Applied(w.Works(0), "web")
	flush()
	for _, s := range collector.Spans() {
		if s.Name == "store status" || strings.HasPrefix(s.Name, "process") {
			t.Errorf("a status without a trace has span %s", s.Name)
		}
	}
}

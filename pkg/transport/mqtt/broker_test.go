package mqtt_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// rawClient is a plain MQTT client, as another implementation of the protocol is.
func rawClient(t *testing.T, addr, user string, filters ...string) (*paho.Client, <-chan *paho.Publish) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	kit.NoError(t, err)
	messages := make(chan *paho.Publish, 100)
	c := paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){
		func(p paho.PublishReceived) (bool, error) {
			messages <- p.Packet
			return true, nil
		},
	}})
	if _, err := c.Connect(t.Context(), &paho.Connect{ClientID: user + "-raw", CleanStart: true, KeepAlive: 30,
		UsernameFlag: true, Username: user, PasswordFlag: true, Password: []byte(password)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
	for _, filter := range filters {
		if _, err := c.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	return c, messages
}

// specEvent is a spec event as the protocol has it (docs/protocol.md, Encoding).
func specEvent() cloudevents.Event {
	e := cloudevents.New()
	e.SetID("0d0a4d3c-3a10-4b51-a5f2-7a0f1f2c9d11")
	e.SetSource("hub1")
	e.SetType("io.open-cluster-management.works.v1alpha1.manifestbundles.spec.create_request")
	e.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 263883373, time.UTC))
	e.SetExtension("clustername", "cluster1")
	e.SetExtension("originalsource", "")
	e.SetExtension("resourceid", "689c1309-877c-5dc3-97e1-8115e43fd2cf")
	e.SetExtension("resourceversion", 1)
	e.SetExtension("metadata", `{"name":"web","uid":"689c1309-877c-5dc3-97e1-8115e43fd2cf"}`)
	if err := e.SetData(cloudevents.ApplicationJSON, []byte(`{"manifests":[]}`)); err != nil {
		panic(err)
	}
	return e
}

// wireForm are the user properties of specEvent, in any order after the type.
var wireForm = []string{
	"ce-id:0d0a4d3c-3a10-4b51-a5f2-7a0f1f2c9d11",
	"ce-source:hub1",
	"ce-specversion:1.0",
	"ce-type:io.open-cluster-management.works.v1alpha1.manifestbundles.spec.create_request",
	"ce-clustername:cluster1",
	`ce-metadata:{"name":"web","uid":"689c1309-877c-5dc3-97e1-8115e43fd2cf"}`,
	"ce-originalsource:",
	"ce-resourceid:689c1309-877c-5dc3-97e1-8115e43fd2cf",
	"ce-resourceversion:1",
	"ce-time:2026-01-02T03:04:05.263883373Z",
}

// Another implementation reads exactly the properties that the protocol names.
func TestWireForm(t *testing.T) {
	onEachBroker(t, func(t *testing.T, b *brokertest.Running) {
		_, messages := rawClient(t, b.Addr, "cluster1", transporttest.ClusterSpecs)
		hub := transporttest.Start(t, client(t, b.Addr, "hub1", nil))
		hub.WaitConnected()
		hub.MustPublish(transporttest.ClusterSpecs, specEvent())
		p := kit.Receive(t, "the message", messages)
		var got []string
		for _, u := range p.Properties.User {
			got = append(got, u.Key+":"+u.Value)
		}
		slices.Sort(got[4:])
		if diff := cmp.Diff(wireForm, got); diff != "" {
			t.Errorf("user properties (-want +got):\n%s", diff)
		}
		if p.Properties.ContentType != "application/json" || string(p.Payload) != `{"manifests":[]}` || p.QoS != 1 || p.Retain {
			t.Errorf("content type %q, payload %q, QoS %d, retain %t", p.Properties.ContentType, p.Payload, p.QoS, p.Retain)
		}
	})
}

// We read what another implementation publishes.
func TestForeignEvent(t *testing.T) {
	onEachBroker(t, func(t *testing.T, b *brokertest.Running) {
		agent := transporttest.Start(t, client(t, b.Addr, "cluster1", nil), transporttest.ClusterSpecs)
		agent.WaitConnected()
		raw, _ := rawClient(t, b.Addr, "hub1")
		p := &paho.Publish{QoS: 1, Topic: transporttest.ClusterSpecs, Payload: []byte(`{"manifests":[]}`),
			Properties: &paho.PublishProperties{ContentType: "application/json"}}
		for _, pair := range wireForm {
			for i := range pair {
				if pair[i] == ':' {
					p.Properties.User.Add(pair[:i], pair[i+1:])
					break
				}
			}
		}
		if _, err := raw.Publish(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		m := agent.Next()
		m.Ack()
		want := specEvent()
		want.SetExtension("resourceversion", "1") // a text on the wire
		want.DataBase64, m.Event.DataBase64 = false, false
		if diff := cmp.Diff(want.String(), m.Event.String()); m.Err != nil || diff != "" {
			t.Errorf("error %v, event (-want +got):\n%s", m.Err, diff)
		}
	})
}

// What a broker retains is not asked for: who wrote it may have lost the right since.
func TestRetained(t *testing.T) {
	b := brokertest.StartMosquitto(t, users)
	raw, _ := rawClient(t, b.Addr, transporttest.Hub)
	if _, err := raw.Publish(t.Context(), &paho.Publish{QoS: 1, Retain: true, Topic: transporttest.ClusterSpecs, Payload: []byte("forged")}); err != nil {
		t.Fatal(err)
	}
	_, messages := rawClient(t, b.Addr, transporttest.Cluster, transporttest.ClusterSpecs)
	if p := kit.Receive(t, "the retained message at a client that asks for it", messages); !p.Retain || string(p.Payload) != "forged" {
		t.Fatalf("received %v", p)
	}
	registry := prometheus.NewPedanticRegistry()
	agent := transporttest.Start(t, client(t, b.Addr, transporttest.Cluster, func(c *mqtt.Config) { c.Registerer = registry }), transporttest.ClusterSpecs)
	agent.WaitConnected()
	hub := transporttest.Start(t, client(t, b.Addr, transporttest.Hub, nil))
	hub.WaitConnected()
	hub.MustPublish(transporttest.ClusterSpecs, transporttest.Event("one", 100))
	agent.Expect("one")
	if got := metric(t, registry, "received_events_total"); got != 1 {
		t.Errorf("%v messages received", got)
	}
}

// A retained message that a broker sends although nobody has asked for it.
func TestRetainedAllTheSame(t *testing.T) {
	b := startFake(t)
	registry := prometheus.NewPedanticRegistry()
	c := transporttest.Start(t, client(t, b.addr, "cluster1", func(c *mqtt.Config) { c.Registerer = registry }), transporttest.ClusterSpecs)
	conn := b.granted(t, &packets.Connack{})
	conn.send(&packets.Publish{PacketID: 7, QoS: 1, Retain: true, Topic: transporttest.ClusterSpecs, Properties: eventProperties("retained")})
	conn.publish(8, transporttest.ClusterSpecs, "{}", eventProperties("live"))
	if p := read[*packets.Puback](conn); p.PacketID != 7 || p.ReasonCode != 0 {
		t.Errorf("the retained one is acknowledged with %s", p)
	}
	c.Expect("live")
	if got := metric(t, registry, "received_retained_total"); got != 1 {
		t.Errorf("%v retained messages", got)
	}
}

func TestMetrics(t *testing.T) {
	onEachBroker(t, func(t *testing.T, b *brokertest.Running) {
		registry := prometheus.NewPedanticRegistry()
		proxy := transporttest.StartProxy(t, b.Addr)
		agent := transporttest.Start(t, client(t, proxy.Addr, "cluster1", func(c *mqtt.Config) { c.Registerer = registry }), transporttest.ClusterSpecs)
		hub := transporttest.Start(t, client(t, b.Addr, "hub1", nil))
		agent.WaitConnected()
		hub.WaitConnected()
		agent.MustPublish(transporttest.ClusterStatuses, transporttest.Event("one", 1000))
		_ = agent.Publish(context.Background(), transporttest.OtherStatuses, transporttest.Event("two", 1000))
		hub.MustPublish(transporttest.ClusterSpecs, transporttest.Event("three", 2000))
		agent.Expect("three")
		for name, want := range map[string]float64{
			"connected": 1, "connections_total": 1, "published_events_total": 1, "publish_duration_seconds_count": 1,
			"publish_errors_total": 1, "received_events_total": 1, "received_malformed_total": 0, "failures_total": 0,
		} {
			if got := metric(t, registry, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		for name, least := range map[string]float64{"published_bytes_total": 1000, "received_bytes_total": 2000} {
			if got := metric(t, registry, name); got < least || got > least+1000 {
				t.Errorf("%s is %v, want a little more than %v", name, got, least)
			}
		}
		proxy.Cut()
		agent.WaitLost()
		if got := metric(t, registry, "connected"); got != 0 {
			t.Errorf("connected is %v after the loss", got)
		}
		kit.True(t, "a failure to be counted", func() bool { return metric(t, registry, "failures_total") >= 2 })
		if _, err := mqtt.New(mqtt.Config{Broker: brokerAt(b.Addr), ClientID: "x", Registerer: registry}); err == nil {
			t.Error("two transports share a registry")
		}
	})
}

// metric returns the value of a metric of the transport.
func metric(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	return kit.Metric(t, registry, "workwire_transport_"+name)
}

// BenchmarkPublish measures events a second that the broker confirms, and BenchmarkReceive those
// that arrive and are acknowledged.
func BenchmarkPublish(b *testing.B) {
	for name, start := range brokers {
		running := start(b)
		for _, parallel := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", name, parallel), func(b *testing.B) {
				hub := transporttest.Start(b, client(b, running.Addr, "hub1", nil))
				hub.WaitConnected()
				event := transporttest.Event("one", 1000)
				b.ReportAllocs()
				b.ResetTimer()
				var group sync.WaitGroup
				for i := range parallel {
					group.Go(func() {
						for range b.N/parallel + boolToInt(i < b.N%parallel) {
							if err := hub.Publish(b.Context(), transporttest.OtherSpecs, event); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				group.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

func BenchmarkReceive(b *testing.B) {
	for name, start := range brokers {
		running := start(b)
		b.Run(name, func(b *testing.B) {
			hub := transporttest.Start(b, client(b, running.Addr, "hub1", nil))
			agent := transporttest.Start(b, client(b, running.Addr, "cluster1", nil), transporttest.ClusterSpecs)
			hub.WaitConnected()
			agent.WaitConnected()
			event := transporttest.Event("one", 1000)
			b.ResetTimer()
			var group sync.WaitGroup
			for i := range 64 {
				group.Go(func() {
					for range b.N/64 + boolToInt(i < b.N%64) {
						if err := hub.Publish(b.Context(), transporttest.ClusterSpecs, event); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			for range b.N {
				agent.Next().Ack()
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// What a session subscribes to since another configuration is not received, and ends where that is possible.
func TestFormerSubscription(t *testing.T) {
	onEachBroker(t, func(t *testing.T, b *brokertest.Running) {
		const broadcast = "sources/hub1/sourcebroadcast"
		hub := transporttest.Start(t, client(t, b.Addr, transporttest.Hub, nil), transporttest.AllStatuses)
		hub.WaitConnected()
		before := transporttest.Start(t, client(t, b.Addr, transporttest.Cluster, nil), transporttest.ClusterSpecs)
		before.WaitConnected()
		before.Stop()
		hub.MustPublish(transporttest.ClusterSpecs, transporttest.Event("queued", 64))

		log := &logs{}
		agent := transporttest.Start(t, client(t, b.Addr, transporttest.Cluster, log.into), "$share/replicas/"+broadcast)
		if !agent.WaitConnected().Resumed {
			t.Error("the session was not resumed")
		}
		hub.MustPublish(broadcast, transporttest.Event("one", 64))
		agent.Expect("one")
		kit.True(t, "the subscription to end", func() bool {
			nobody, err := hub.Transport.(transport.SubscriberReporter).PublishReporting(t.Context(), transporttest.ClusterSpecs, transporttest.Event("later", 64))
			kit.NoError(t, err)
			return nobody
		})
		hub.MustPublish(broadcast, transporttest.Event("two", 64))
		agent.Expect("two")
		if log.count("level=WARN", "messages on this topic are dropped", "topic="+transporttest.ClusterSpecs, "advice=") != 1 {
			t.Errorf("log is:\n%s", log)
		}
	})
}

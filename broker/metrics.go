package broker

import (
	"errors"
	"sync/atomic"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/session"
)

// counters are the figures that nobody else keeps.
type counters struct {
	denials  *prometheus.CounterVec
	refusals *prometheus.CounterVec
}

func newCounters() *counters {
	c := &counters{
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_broker_acl_denials_total",
			Help: "Publications, wills and subscriptions refused because the topic is not the client's.",
		}, []string{"action"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_broker_auth_failures_total",
			Help: "Connections refused because the client did not prove an identity.",
		}, []string{"reason"}),
	}
	for _, a := range []acl.Action{acl.Publish, acl.Subscribe} {
		c.denials.WithLabelValues(a.String())
	}
	for _, reason := range []string{"anonymous", "password", "other"} {
		c.refusals.WithLabelValues(reason)
	}
	return c
}

func (c *counters) denied(a acl.Action) { c.denials.WithLabelValues(a.String()).Inc() }

func (c *counters) refused(why error) {
	reason := "other" // a certificate without a role, a password file that cannot be read
	switch {
	case errors.Is(why, errAnonymous):
		reason = "anonymous"
	case errors.Is(why, errBadPassword):
		reason = "password"
	}
	c.refusals.WithLabelValues(reason).Inc()
}

// reading is one metric that is read off the router or mochi-mqtt when it is asked for.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(session.Stats, *mqtt.Server) float64
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("workwire_broker_"+name, help, labels, nil)
}

// readings lists them.
func readings() []reading {
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	info := func(field func(*mqtt.Server) *int64) func(session.Stats, *mqtt.Server) float64 {
		return func(_ session.Stats, s *mqtt.Server) float64 { return float64(atomic.LoadInt64(field(s))) }
	}
	router := func(field func(session.Stats) float64) func(session.Stats, *mqtt.Server) float64 {
		return func(s session.Stats, _ *mqtt.Server) float64 { return field(s) }
	}
	return []reading{
		{describe("clients_connected", "Clients connected now."), gauge,
			router(func(s session.Stats) float64 { return float64(s.Connected) })},
		{describe("sessions", "Sessions now, with and without a client."), gauge,
			router(func(s session.Stats) float64 { return float64(s.Sessions) })},
		{describe("subscriptions", "Subscriptions now."), gauge,
			router(func(s session.Stats) float64 { return float64(s.Subscriptions) })},
		{describe("retained_messages", "Retained messages now."), gauge,
			router(func(s session.Stats) float64 { return float64(s.Retained) })},
		{describe("messages_queued", "Messages waiting for sessions now, those sent and not acknowledged included."), gauge,
			router(func(s session.Stats) float64 { return float64(s.Queued) })},
		{describe("queued_bytes", "Size of the queued messages."), gauge,
			router(func(s session.Stats) float64 { return float64(s.QueuedBytes) })},
		{describe("messages_received_total", "Messages accepted from clients, wills included."), counter,
			router(func(s session.Stats) float64 { return float64(s.Received) })},
		{describe("messages_sent_total", "Messages sent to clients, repetitions included."), counter,
			router(func(s session.Stats) float64 { return float64(s.Sent) })},
		{describe("bytes_received_total", "Bytes of MQTT packets received."), counter,
			info(func(s *mqtt.Server) *int64 { return &s.Info.BytesReceived })},
		{describe("bytes_sent_total", "Bytes of MQTT packets sent."), counter,
			info(func(s *mqtt.Server) *int64 { return &s.Info.BytesSent })},
	}
}

// collector implements prometheus.Collector.
type collector struct {
	router   *session.Router
	server   *mqtt.Server
	readings []reading
	dropped  *prometheus.Desc
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, r := range c.readings {
		ch <- r.desc
	}
	ch <- c.dropped
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	stats := c.router.Stats()
	for _, r := range c.readings {
		ch <- prometheus.MustNewConstMetric(r.desc, r.kind, r.of(stats, c.server))
	}
	for _, reason := range session.Reasons() {
		ch <- prometheus.MustNewConstMetric(c.dropped, prometheus.CounterValue, float64(stats.Dropped[reason]), string(reason))
	}
}

// newRegistry returns the broker's own registry: nothing is registered globally, so that
// several brokers can live in one process.
func newRegistry(c *counters, router *session.Router, server *mqtt.Server) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		c.denials, c.refusals,
		&collector{router: router, server: server, readings: readings(),
			dropped: describe("messages_dropped_total", "Messages that were queued and will not be delivered.", "reason")},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return reg
}

package broker

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/runtime/statestore"
)

// counters are the metrics that connections count.
type counters struct {
	denials  *prometheus.CounterVec
	failures *prometheus.CounterVec
	panics   prometheus.Counter

	clients            *prometheus.GaugeVec // by role, as the next ones
	messages, received *prometheus.CounterVec
}

// roleTraffic is what the clients of one role do.
type roleTraffic struct {
	clients            prometheus.Gauge
	messages, received prometheus.Counter
}

func newCounters(r prometheus.Registerer) *counters {
	auto := promauto.With(r)
	counter := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: "workwire_broker_" + name, Help: help}, []string{label})
	}
	c := &counters{
		denials:  counter("acl_denials_total", "Number of messages, wills and subscriptions refused because the client may not use the topic.", "action"),
		failures: counter("auth_failures_total", "Number of connections refused because the client could not be authenticated.", "reason"),
		panics: auto.NewCounter(prometheus.CounterOpts{
			Name: "workwire_broker_client_panics_total",
			Help: "Number of connections ended by a fault of the broker while it served them.",
		}),
		clients:  auto.NewGaugeVec(prometheus.GaugeOpts{Name: "workwire_broker_role_clients", Help: "Current number of connected clients by role."}, []string{"role"}),
		messages: counter("role_messages_received_total", "Number of messages that clients have published, by role, also those that were refused.", "role"),
		received: counter("role_bytes_received_total", "Size of the MQTT packets received after the login in bytes, by role.", "role"),
	}
	for _, a := range []acl.Action{acl.Publish, acl.Subscribe} {
		c.denials.WithLabelValues(string(a))
	}
	for _, reason := range []string{"anonymous", "password", "other"} {
		c.failures.WithLabelValues(reason)
	}
	for _, role := range []acl.Role{acl.Agent, acl.Source, acl.Monitor, acl.Observer, acl.Joiner} {
		c.of(role)
	}
	return c
}

func (c *counters) of(role acl.Role) *roleTraffic {
	name := string(role)
	return &roleTraffic{c.clients.WithLabelValues(name), c.messages.WithLabelValues(name), c.received.WithLabelValues(name)}
}

func (c *counters) denied(a acl.Action) { c.denials.WithLabelValues(string(a)).Inc() }

func (c *counters) authFailed(err error) {
	reason := "other" // a certificate without a role, an unreadable password file
	switch {
	case errors.Is(err, errAnonymous):
		reason = "anonymous"
	case errors.Is(err, errBadPassword):
		reason = "password"
	}
	c.failures.WithLabelValues(reason).Inc()
}

// collector collects the metrics that the router and the connections count.
type collector struct {
	*server
	store    *statestore.Store // nil without a data directory
	reloader *reloader
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	collect := func(kind prometheus.ValueType, name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("workwire_broker_"+name, help, nil, nil), kind, value)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	stats := c.router.Stats()
	collect(gauge, "clients_connected", "Current number of connected clients.", float64(stats.Connected))
	collect(gauge, "sessions", "Current number of sessions, with and without a connected client.", float64(stats.Sessions))
	collect(gauge, "subscriptions", "Current number of subscriptions.", float64(stats.Subscriptions))
	collect(gauge, "messages_queued", "Current number of messages in session queues, including sent and unacknowledged ones.", float64(stats.Queued))
	collect(gauge, "queued_bytes", "Current size of the messages in session queues in bytes.", float64(stats.QueuedBytes))
	collect(gauge, "total_bytes", "What all session queues count against maxTotalBytes.", float64(stats.TotalBytes))
	collect(gauge, "max_total_bytes", "The limit maxTotalBytes of the configuration.", float64(stats.MaxTotalBytes))
	if cert := firstToExpire(c.tlsFiles); cert != nil {
		collect(gauge, "certificate_expiry_timestamp_seconds",
			"When the first of the listeners' certificates expires, in seconds since 1970; absent without one.", float64(cert.NotAfter.Unix()))
		collect(gauge, "certificate_start_timestamp_seconds", "From when that certificate is valid, in seconds since 1970; absent without one.", float64(cert.NotBefore.Unix()))
	}
	collect(gauge, "memory_bytes", "What session queues have in memory only, against maxTotalMemoryBytes.", float64(stats.TotalMemory))
	collect(gauge, "store_failing", "1 while messages cannot be written to disk and are not acknowledged, else 0.", oneIf(c.store.Err() != nil))
	collect(counter, "messages_received_total", "Number of messages accepted from clients, including wills.", float64(stats.Received))
	collect(counter, "messages_refused_total", "Number of messages refused because the publisher had more than its share of a queue, or because too much waited for the disk.", float64(stats.Refused))
	collect(counter, "messages_sent_total", "Number of messages sent to clients, including repetitions.", float64(stats.Sent))
	collect(counter, "bytes_received_total", "Size of the received MQTT packets in bytes.", float64(c.traffic.received.Load()))
	collect(counter, "bytes_sent_total", "Size of the sent MQTT packets in bytes.", float64(c.traffic.sent.Load()))
	c.collectLimits(ch, collect)
	dropped := prometheus.NewDesc("workwire_broker_messages_dropped_total", "Number of messages that were queued and dropped.", []string{"reason"}, nil)
	for _, reason := range session.Reasons() {
		ch <- prometheus.MustNewConstMetric(dropped, counter, float64(stats.Dropped[reason]), string(reason))
	}
}

// collectLimits collects the metrics of the limits and of the configuration file.
func (c *collector) collectLimits(ch chan<- prometheus.Metric, collect func(kind prometheus.ValueType, name, help string, value float64)) {
	gauge, counter, stats := prometheus.GaugeValue, prometheus.CounterValue, c.limiter.Stats()
	collect(gauge, "connections", "Current number of connections, with those that have not logged in.", float64(stats.Connections))
	collect(gauge, "connections_pending", "Current number of connections that have not logged in.", float64(stats.Pending))
	collect(gauge, "password_checks_waiting", "Current number of password checks that wait for their turn.", float64(stats.PasswordWaiting))
	collect(counter, "password_checks_total", "Number of passwords that were checked; repeated right ones are not.", float64(stats.PasswordChecks))
	collect(gauge, "handshakes_waiting", "Current number of TLS handshakes that wait for their turn.", float64(stats.Handshakes))
	collect(counter, "throttled_packets_total", "Number of packets before which the broker paused reading from a client that exceeds its rate.", float64(stats.Throttled))
	collect(counter, "throttled_seconds_total", "Sum of these pauses in seconds.", stats.ThrottledTime.Seconds())
	collect(gauge, "config_reload_failing", "1 while the configuration file cannot be used and the previous one stays in force, else 0.", oneIf(c.reloader.failing.Load()))
	collect(gauge, "draining", "1 while the broker sends clients to another server, else 0.", oneIf(c.draining.Load() != nil))
	labelled := func(name, help, label, value string, n uint64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("workwire_broker_"+name, help, []string{label}, nil), counter, float64(n), value)
	}
	for name, err := range limits.Refusals {
		labelled("connections_refused_total", "Number of connections refused or closed by a limit.", "reason", name, stats.Refused[err])
	}
	for kind, n := range stats.LogLinesLeftOut {
		labelled("log_lines_left_out_total", "Number of log lines left out by the limit for their kind.", "kind", kind, n)
	}
}

// oneIf returns 1 if yes, else 0.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

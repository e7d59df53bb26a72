package broker

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/broker/acl"
)

// roleTraffic is what the clients of one role do. It is safe for concurrent use.
type roleTraffic struct{ clients, messages, received atomic.Int64 }

// roles has the traffic of each role. It never changes.
type roles map[acl.Role]*roleTraffic

func newRoles() roles {
	return roles{acl.Agent: {}, acl.Source: {}, acl.Monitor: {}, acl.Observer: {}, acl.Joiner: {}}
}

// of returns the traffic of a role. Of a role that does not exist nobody sees it.
func (r roles) of(role acl.Role) *roleTraffic {
	if t, ok := r[role]; ok {
		return t
	}
	return &roleTraffic{}
}

var (
	roleClients  = prometheus.NewDesc("workwire_broker_role_clients", "Current number of connected clients by role.", []string{"role"}, nil)
	roleMessages = prometheus.NewDesc("workwire_broker_role_messages_received_total",
		"Number of messages that clients have published, by role, also those that were refused.", []string{"role"}, nil)
	roleBytes = prometheus.NewDesc("workwire_broker_role_bytes_received_total",
		"Size of the MQTT packets received after the login in bytes, by role.", []string{"role"}, nil)
)

// Describe implements [prometheus.Collector].
func (r roles) Describe(ch chan<- *prometheus.Desc) {
	ch <- roleClients
	ch <- roleMessages
	ch <- roleBytes
}

// Collect implements [prometheus.Collector].
func (r roles) Collect(ch chan<- prometheus.Metric) {
	for role, t := range r {
		ch <- prometheus.MustNewConstMetric(roleClients, prometheus.GaugeValue, float64(t.clients.Load()), string(role))
		ch <- prometheus.MustNewConstMetric(roleMessages, prometheus.CounterValue, float64(t.messages.Load()), string(role))
		ch <- prometheus.MustNewConstMetric(roleBytes, prometheus.CounterValue, float64(t.received.Load()), string(role))
	}
}

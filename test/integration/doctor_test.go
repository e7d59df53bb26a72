package integration

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/ctl/doctor"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/test/kit"
)

// TestDoctor examines from both ends while hub and agent work, and after the agent has gone.
func TestDoctor(t *testing.T) {
	onBothBrokers(t, func(w *world) {
		w.hub()
		topics := topicsOf(string(w.source))
		stop := w.agent(0, topics)
		w.create(w.works(0), w.work(0, "web", "1", "a"))
		w.applied(w.works(0), "web")
		examine := func(role doctor.Role, user string, want doctor.Verdict) {
			w.Helper()
			results := doctor.Run(w.Context(), doctor.Config{Role: role, Cluster: w.clusters[0], Timeout: kit.Patience,
				Broker: &config.Config{BrokerHost: w.broker.Addr, Username: user, Password: password, Topics: topics}})
			if doctor.Worst(results) != want {
				w.Errorf("%s as %s: %+v", user, role, results)
			}
		}
		examine(doctor.Source, string(w.source), doctor.Good)
		examine(doctor.Agent, string(w.clusters[0]), doctor.Good)
		stop()
		results := doctor.Run(w.Context(), doctor.Config{Cluster: w.clusters[0], Timeout: time.Second,
			Broker: &config.Config{BrokerHost: w.broker.Addr, Username: string(w.source), Password: password, Topics: topics}})
		if doctor.Worst(results) != doctor.Fault {
			w.Errorf("without an agent: %+v", results)
		}
	})
}

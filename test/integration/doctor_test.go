package integration

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/ctl/doctor"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// TestDoctor examines from both ends while hub and agent work, and after the agent has gone.
func TestDoctor(t *testing.T) {
	onBothBrokers(t, func(w *world.World) {
		w.StartHub()
		stop := w.StartAgent(0).Stop
		w.Create(w.Works(0), w.Work(0, "web", "1", "a"))
		w.Applied(w.Works(0), "web")
		examine := func(role doctor.Role, user string, want doctor.Verdict) {
			w.Helper()
			results := doctor.Run(w.Context(), doctor.Config{Role: role, Cluster: w.Clusters[0], Timeout: kit.Patience,
				Broker: &config.Config{BrokerHost: w.Broker.Addr, Username: user, Password: world.Password, Topics: w.Topics}})
			if doctor.Worst(results) != want {
				w.Errorf("%s as %s: %+v", user, role, results)
			}
		}
		examine(doctor.Source, string(w.Source), doctor.Good)
		examine(doctor.Agent, string(w.Clusters[0]), doctor.Good)
		stop()
		results := doctor.Run(w.Context(), doctor.Config{Cluster: w.Clusters[0], Timeout: time.Second,
			Broker: &config.Config{BrokerHost: w.Broker.Addr, Username: string(w.Source), Password: world.Password, Topics: w.Topics}})
		if doctor.Worst(results) != doctor.Fault {
			w.Errorf("without an agent: %+v", results)
		}
	})
}

package e2e

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/test/kit"
)

// kill kills one container after the other, and changes works while it is away.
func kill(s *stack) {
	s.change(0)
	s.converged()
	for i, service := range []string{"hub-api", "broker", "hub", "spoke", "agent"} {
		ok := s.Run(service, func(t *testing.T) {
			s := s.on(t)
			id := s.id(service)
			if service == "hub-api" {
				// Without it no work changes: what it said yes to just before must be safe.
				s.change(i + 1)
				s.docker("kill", "--signal=KILL", id)
				s.repaired("kept")
			} else {
				s.docker("kill", "--signal=KILL", id)
				s.change(i + 1)
			}
			if service == "agent" {
				s.present(metav1.ConditionUnknown, soon)
			}
			start := time.Now()
			s.compose("up", "-d")
			s.Logf("docker-compose up -d: %.1f s", time.Since(start).Seconds())
			s.converged()
			if c := s.containers()[service]; c.ID != id {
				s.Errorf("%s is another container now: this was no restart", service)
			}
			s.present(metav1.ConditionTrue, soon)
		})
		if !ok {
			return
		}
	}
}

// restart restarts everything at once, right after changes.
func restart(s *stack) {
	s.change(6)
	start := time.Now()
	s.compose("restart")
	s.Logf("docker-compose restart: %.1f s", time.Since(start).Seconds())
	for service, c := range s.containers() {
		// One that has done its work may join the network of another, which does not run yet when its turn comes.
		if !oneShots[service] && c.State.StartedAt.Before(start) {
			s.Errorf("%s was not restarted", service)
		}
	}
	s.converged()
	// An API server with policies refuses new works in its first seconds (docs/adr/0052-finalizer-at-creation.md).
	s.eventually("the hub's API is healthy", soon, func() error { return s.containers()["hub-api"].fault() })
	s.change(7)
	s.converged()
	s.present(metav1.ConditionTrue, soon)
}

// cut takes the network between agent and broker away. The agent keeps its cluster meanwhile.
func cut(s *stack) {
	network, broker := s.project+"_cluster1", s.id("broker")
	before, err := s.values()
	kit.NoError(s, err)
	s.docker("network", "disconnect", network, broker)
	start := time.Now()
	s.change(8)
	s.repaired("kept")
	s.present(metav1.ConditionUnknown, keepAlive*3/2+time.Minute)
	s.Logf("the cut was noticed after %.1f s; keepAlive is %s", time.Since(start).Seconds(), keepAlive)
	if now, err := s.values(); err != nil || now["changed"] != before["changed"] {
		s.Fatalf("it is no cut: the change has come through, %v, %v", now, err)
	}
	s.docker("network", "connect", "--alias=broker", network, broker)
	s.converged()
	s.present(metav1.ConditionTrue, soon)
}

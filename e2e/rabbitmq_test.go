package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// TestRabbitMQ does the tutorial on a cluster of three RabbitMQ, kills its nodes in turn while works
// change, and cuts one off.
func TestRabbitMQ(t *testing.T) {
	if os.Getenv("WORKWIRE_RABBITMQ") == "" {
		t.Skip("there is no image: hack/rabbitmq-image.sh says why")
	}
	t.Parallel()
	s := up(t, "-rabbitmq", "docker-compose.yaml", "deploy/compose/rabbitmq.yaml")
	s.put("kept", "always")
	tutorial(s)
	s.change(0)
	s.converged()
	s.durable()
	nodes := []string{"broker", "broker2", "broker3"}
	for i := range 3 {
		// First that of the agent, then that of the hub.
		node := nodes[0]
		if at := s.connection([]string{"agent", "hub", "hub"}[i]).node; slices.Contains(nodes, at) {
			node = at
		}
		nodes = slices.DeleteFunc(nodes, func(n string) bool { return n == node })
		if !t.Run(fmt.Sprintf("kill %s", node), func(t *testing.T) { s.on(t).killNode(node, i+1) }) {
			return
		}
	}
	t.Run("cut", func(t *testing.T) { s.on(t).cutNode(4) })
}

// killNode kills a node and changes works before it is started again.
func (s *stack) killNode(node string, change int) {
	before := s.connections()
	start := time.Now()
	s.docker("kill", "--signal=KILL", s.id(node))
	s.change(change)
	s.back(node, before, start, true)
	s.converged()
	s.compose("up", "-d")
	s.healthy()
}

// cutNode takes both networks from the agent's node, changes works, and gives the networks back.
func (s *stack) cutNode(change int) {
	before := s.connections()
	node := before["agent"].node
	networks := []string{s.project + "_hub", s.project + "_cluster1"}
	start := time.Now()
	for _, network := range networks {
		s.docker("network", "disconnect", network, s.id(node))
	}
	s.change(change)
	s.back(node, before, start, false)
	s.converged()
	for _, network := range networks {
		s.docker("network", "connect", "--alias="+node, network, s.id(node))
	}
	s.change(change + 1)
	s.converged()
	s.healthy()
}

// connection is what hub or agent has logged last about its connection.
type connection struct {
	node    string
	at      time.Time
	resumed bool
}

func (s *stack) connections() map[string]connection {
	s.Helper()
	return map[string]connection{"hub": s.connection("hub"), "agent": s.connection("agent")}
}

func (s *stack) connection(service string) connection {
	s.Helper()
	// docker logs writes to both outputs, as the program did.
	log := s.must(s.run("", "sh", "-c", "docker logs --timestamps "+s.id(service)+" 2>&1"))
	var last connection
	for _, line := range lines(log) {
		if !strings.Contains(line, "connected to the broker") || strings.Contains(line, "disconnected from") {
			continue
		}
		stamp, _, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		kit.NoError(s, err)
		_, host, _ := strings.Cut(line, "brokerHost")
		node, _, _ := strings.Cut(strings.TrimLeft(host, `=": `), ":")
		last = connection{node: node, at: at, resumed: strings.Contains(line, "resumed=true") || strings.Contains(line, `"resumed":true`)}
	}
	return last
}

// back waits until hub and agent have another connection, if they had one to this node, and logs how
// long that took, for docs/brokers.md. resumed: with their sessions.
func (s *stack) back(node string, before map[string]connection, start time.Time, resumed bool) {
	s.Helper()
	for service, former := range before {
		if former.node != node {
			continue
		}
		s.eventually(service+" is connected again", soon, func() error {
			if now := s.connection(service); !now.at.After(start) {
				return fmt.Errorf("its last connection is of %s, to %s", now.at, now.node)
			}
			return nil
		})
		now := s.connection(service)
		s.Logf("%s was at %s, and is at %s after %.2f s, resumed %v", service, node, now.node, now.at.Sub(start).Seconds(), now.resumed)
		if resumed && !now.resumed {
			s.Errorf("the session of %s is lost", service)
		}
		if now.node == node {
			s.Errorf("%s is at the lost node", service)
		}
	}
}

// durable checks that the sessions of hub and agent are replicated queues, and no others: a session
// with a queue on one node waits for this node.
func (s *stack) durable() {
	s.Helper()
	s.eventually("the sessions are quorum queues", soon, func() error {
		queues, err := s.run("", "docker", "exec", s.id("broker"), "rabbitmqctl", "--quiet", "list_queues", "name", "type")
		for _, client := range []string{"hub1-hub", "cluster1-agent"} {
			found := slices.ContainsFunc(lines(queues), func(line string) bool {
				return strings.HasPrefix(line, "mqtt-subscription-"+client+"qos1") && strings.Contains(line, "quorum")
			})
			if !found {
				err = errors.Join(err, fmt.Errorf("%s has none:\n%s", client, queues))
			}
			for _, line := range lines(queues) {
				if strings.HasPrefix(line, "mqtt-subscription-"+client) && !strings.Contains(line, "quorum") {
					err = errors.Join(err, fmt.Errorf("%s has another queue: %s", client, line))
				}
			}
		}
		return err
	})
}

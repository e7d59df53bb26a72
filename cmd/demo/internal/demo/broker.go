package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/test/kit/process"
)

// joinerPassword is the file with the password of the user who may only ask to join.
const joinerPassword = "joiner.password"

// anyPort is the address of a program that says where it listens.
const anyPort = "127.0.0.1:0"

// startBroker issues the certificates of the broker, the hub and a program, and starts the broker. Clusters get theirs when they join.
func (s *stage) startBroker(ctx context.Context) error {
	list, err := certificates.Parse(fmt.Appendf(nil, `certificates:
- {name: broker, role: broker, hosts: [127.0.0.1]}
- {name: %s, role: source}
- {name: %s, role: source}
`, sourceID, programID))
	if err != nil {
		return err
	}
	manager, err := certificates.New(certificates.ManagerConfig{Config: list, Dir: s.Dir})
	if err != nil {
		return err
	}
	if _, err := manager.Ensure(); err != nil {
		return err
	}
	password, hash, err := broker.RandomPassword()
	if err != nil {
		return err
	}
	config := func(address string) string {
		return fmt.Sprintf(`listeners:
- address: %s
  tls: {certFile: broker/tls.crt, keyFile: broker/tls.key, clientCAFile: broker/ca.crt, crlFile: broker/ca.crl}
dataDir: sessions
users:
- {username: joiner, role: joiner, passwordHash: %q}
`, address, hash)
	}
	for name, text := range map[string]string{"broker.yaml": config(anyPort), joinerPassword: password} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	p, err := s.start("broker", "work-broker", "--config="+s.path("broker.yaml"))
	if err != nil {
		return err
	}
	at, err := p.Line(ctx, process.BrokerReady)
	if err != nil {
		return err
	}
	s.say("broker is ready at mqtts://%s", at)
	// Its clients look for it there when it is started again.
	if err := os.WriteFile(s.path("broker-again.yaml"), []byte(config(at)), 0o600); err != nil {
		return err
	}
	s.restarts("broker", "work-broker", "--config="+s.path("broker-again.yaml"))
	return s.writeTransports(at)
}

// writeTransports writes the transport configurations of the hub and the program, for the broker at an address.
func (s *stage) writeTransports(broker string) error {
	for _, source := range []string{sourceID, programID} {
		text := fmt.Sprintf(`brokerHost: %s
caFile: %[3]s/ca.crt
clientCertFile: %[3]s/tls.crt
clientKeyFile: %[3]s/tls.key
topics:
  sourceEvents: sources/%[2]s/clusters/+/sourceevents
  agentEvents: sources/%[2]s/clusters/+/agentevents
  sourceBroadcast: sources/+/sourcebroadcast
  agentBroadcast: clusters/+/agentbroadcast
`, broker, source, filepath.Join(s.Dir, source))
		if err := os.WriteFile(s.transport(source), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// transport is the file with the transport configuration of a source.
func (s *stage) transport(source string) string { return s.path(source + ".yaml") }

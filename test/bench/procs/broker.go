package procs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/mosquitto"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
)

// password of all users: brokers listen on loopback, for a benchmark.
const password = "bench"

// Broker is a running broker with a user for each source and cluster.
type Broker struct {
	// Kind is work-broker or mosquitto, Addr its host:port.
	Kind, Addr string

	dir       string
	program   string
	users     []broker.User
	process   *Process           // of work-broker
	mosquitto *mosquitto.Process // of Mosquitto
}

var brokerReady = regexp.MustCompile(`msg="broker ready".* addresses=\[(127\.0\.0\.1:\d+)\]`)

// StartBroker starts program, a work-broker, or Mosquitto when it is
// "mosquitto", with its files in dir.
func StartBroker(ctx context.Context, dir, program string, source wire.SourceID, clusters ...wire.ClusterName) (*Broker, error) {
	b := &Broker{Kind: filepath.Base(program), Addr: "127.0.0.1:0", dir: filepath.Join(dir, "broker-"+string(source)), program: program}
	b.users = []broker.User{{Username: string(source), Password: password, Role: acl.Source}}
	for _, cluster := range clusters {
		b.users = append(b.users, broker.User{Username: string(cluster), Password: password, Role: acl.Agent})
	}
	// What an earlier benchmark left there are sessions.
	if err := errors.Join(os.RemoveAll(b.dir), os.MkdirAll(b.dir, 0o700)); err != nil {
		return nil, err
	}
	return b, b.Start(ctx)
}

// Start starts the broker again after Stop, at the same address, with the same
// sessions, and returns once it takes connections.
func (b *Broker) Start(ctx context.Context) (err error) {
	if b.Kind == "mosquitto" {
		port := 0
		if b.mosquitto != nil {
			port = b.mosquitto.Port
		}
		if b.mosquitto, err = mosquitto.Start(ctx, mosquitto.Config{Dir: b.dir, Port: port, Users: b.users}); err == nil {
			b.Addr = b.mosquitto.Addr
		}
		return err
	}
	file, err := b.write()
	if err != nil {
		return err
	}
	if b.process, err = Start(b.dir, "work-broker", b.program, "--config="+file); err != nil {
		return err
	}
	b.Addr, err = b.process.Line(ctx, func(line string) string {
		if match := brokerReady.FindStringSubmatch(line); match != nil {
			return match[1]
		}
		return ""
	})
	return err
}

// write makes the configuration of work-broker.
func (b *Broker) write() (string, error) {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost) // a hundred clients connect at once
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "listeners:\n- address: %s\ndataDir: data\nusers:\n", b.Addr)
	for _, user := range b.users {
		fmt.Fprintf(&text, "- {username: %s, role: %s, passwordHash: %q}\n", user.Username, user.Role, hash)
	}
	file := filepath.Join(b.dir, "broker.yaml")
	return file, os.WriteFile(file, []byte(text.String()), 0o600)
}

// Stop ends the broker. It may be called on nil.
func (b *Broker) Stop() error {
	switch {
	case b == nil:
		return nil
	case b.mosquitto != nil:
		return b.mosquitto.Stop()
	default:
		return b.process.Stop()
	}
}

// CPU is the CPU time that the running broker has used.
func (b *Broker) CPU() time.Duration {
	pids := Children(os.Getpid(), "mosquitto.conf")
	if b.process != nil {
		pids = []int{b.process.PID()}
	}
	var total time.Duration
	for _, pid := range pids {
		used, err := CPUOf(pid)
		if err == nil {
			total += used
		}
	}
	return total
}

// Transport is how user reaches the broker, for source.
func (b *Broker) Transport(user string, source wire.SourceID) config.Config {
	return config.Config{BrokerHost: b.Addr, Username: user, Password: password, Topics: Topics(source)}
}

// Topics are those of source.
func Topics(source wire.SourceID) wire.Topics {
	return wire.Topics{
		SourceEvents: fmt.Sprintf("sources/%s/clusters/+/sourceevents", source),
		AgentEvents:  fmt.Sprintf("sources/%s/clusters/+/agentevents", source),
	}
}

// WriteTransport writes the transport configuration of user to a file, and gives
// its path.
func (b *Broker) WriteTransport(user string, source wire.SourceID) (string, error) {
	topics := Topics(source)
	file := filepath.Join(b.dir, user+".yaml")
	text := fmt.Sprintf("brokerHost: %s\nusername: %s\npassword: %s\ntopics:\n  sourceEvents: %s\n  agentEvents: %s\n",
		b.Addr, user, password, topics.SourceEvents, topics.AgentEvents)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

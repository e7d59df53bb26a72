// Package brokerkit runs brokers as processes, with a user for each client.
//
//	b, err := brokerkit.Start(ctx, brokerkit.Config{Dir: dir, Program: "bin/work-broker", Source: "hub1", Clusters: clusters})
//	file, err := b.WriteTransport("hub1", b.Addr) // for --transport-config
package brokerkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/mosquittokit"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/rabbitmqkit"
)

// Config is the configuration of a broker. All fields are required, but Others.
type Config struct {
	// Dir is an existing directory for configuration, data and logs.
	Dir string
	// Program is the path of a work-broker, "mosquitto", or "rabbitmq": a container with the image that
	// WORKWIRE_RABBITMQ names in the environment, workwire/rabbitmq:dev by default.
	Program string
	// Source and Clusters are the clients; their names are the names of the users.
	Source   wire.SourceID
	Clusters []wire.ClusterName
	// Others are further sources. With them, agents serve every source, by topics with a wildcard and
	// broadcasts.
	Others []wire.SourceID
}

// Broker is a broker on loopback. One goroutine at a time may use it.
type Broker struct {
	// Addr is its host:port.
	Addr string
	// Process is the work-broker that runs; nil for others.
	Process *process.Process

	config    Config
	passwords map[string]string
	hashes    map[string]string
	users     []broker.User
	running   running // nil before the first start
}

// running is a broker that was started.
type running interface {
	Stop() error
	Kill() error
	PID() int
}

// Start starts a broker at a free port and returns when it accepts connections. Stop must be
// called.
func Start(ctx context.Context, cfg Config) (b *Broker, err error) {
	b = &Broker{Addr: "127.0.0.1:0", config: cfg, passwords: map[string]string{}, hashes: map[string]string{}}
	add := func(name string, role acl.Role) {
		password, hash, e := broker.RandomPassword()
		err = errors.Join(err, e)
		b.passwords[name], b.hashes[name] = password, hash
		b.users = append(b.users, broker.User{Username: name, Password: password, Role: role})
	}
	for _, source := range append([]wire.SourceID{cfg.Source}, cfg.Others...) {
		add(string(source), acl.Source)
	}
	for _, cluster := range cfg.Clusters {
		add(string(cluster), acl.Agent)
	}
	if err != nil {
		return nil, err
	}
	return b, b.Start(ctx)
}

// Start starts the broker again after Kill, or after Stop if it is no RabbitMQ, at the same address with
// the same sessions, and returns when it accepts connections.
func (b *Broker) Start(ctx context.Context) error {
	switch b.config.Program {
	case "mosquitto":
		return b.startMosquitto(ctx)
	case "rabbitmq":
		return b.startRabbitMQ(ctx)
	default:
		return b.startWorkBroker(ctx)
	}
}

func (b *Broker) startMosquitto(ctx context.Context) error {
	port := 0
	if before, ok := b.running.(*mosquittokit.Process); ok {
		port = before.Config.Port
	}
	p, err := mosquittokit.Start(ctx, mosquittokit.Config{Dir: b.config.Dir, Port: port, Users: b.users})
	if err != nil {
		return err
	}
	b.running, b.Addr = p, p.Addr
	return nil
}

func (b *Broker) startRabbitMQ(ctx context.Context) error {
	if killed, ok := b.running.(*rabbitmqkit.Container); ok {
		return killed.Restart(ctx)
	}
	c, err := rabbitmqkit.Start(ctx, rabbitmqkit.Config{Image: cmp.Or(os.Getenv("WORKWIRE_RABBITMQ"), "workwire/rabbitmq:dev"), Dir: b.config.Dir, Users: b.users})
	if err != nil {
		return err
	}
	b.running, b.Addr = c, c.Addr
	return nil
}

func (b *Broker) startWorkBroker(ctx context.Context) error {
	file, err := b.write()
	if err != nil {
		return err
	}
	if b.Process, err = process.Start(b.config.Dir, "broker", b.config.Program, "--config="+file); err != nil {
		return err
	}
	b.running = b.Process
	b.Addr, err = b.Process.Line(ctx, process.BrokerReady)
	return err
}

// write writes the configuration of work-broker, and returns its path.
func (b *Broker) write() (file string, err error) {
	file = filepath.Join(b.config.Dir, "broker.yaml")
	var text strings.Builder
	fmt.Fprintf(&text, "listeners:\n- address: %s\ndataDir: broker\nusers:\n", b.Addr)
	for _, user := range b.users {
		fmt.Fprintf(&text, "- {username: %s, role: %s, passwordHash: %q}\n", user.Username, user.Role, b.hashes[user.Username])
	}
	return file, os.WriteFile(file, []byte(text.String()), 0o600)
}

// Stop ends the broker. It may be called on nil.
func (b *Broker) Stop() error {
	if b == nil || b.running == nil {
		return nil
	}
	return b.running.Stop()
}

// Kill ends the broker as a crash does. Start starts it again.
func (b *Broker) Kill() error { return b.running.Kill() }

// PID returns the process id of the broker that runs.
func (b *Broker) PID() int { return b.running.PID() }

// Transport returns the configuration of user's transport.
func (b *Broker) Transport(user string) config.Config {
	return config.Config{BrokerHost: b.Addr, Username: user, Password: b.passwords[user], Topics: b.topics(user)}
}

// topics returns the topics of a user.
func (b *Broker) topics(user string) wire.Topics {
	id, broadcasts := string(b.config.Source), len(b.config.Others) > 0
	switch {
	case slices.Contains(b.config.Others, wire.SourceID(user)):
		id = user
	case broadcasts && user != id:
		id = "+"
	}
	topics := wire.Topics{
		SourceEvents: fmt.Sprintf("sources/%s/clusters/+/sourceevents", id), AgentEvents: fmt.Sprintf("sources/%s/clusters/+/agentevents", id),
	}
	if broadcasts {
		topics.SourceBroadcast, topics.AgentBroadcast = "sources/+/sourcebroadcast", "clusters/+/agentbroadcast"
	}
	return topics
}

// WriteTransport writes the configuration of user's transport to a file and returns its path. addr
// is [Broker].Addr, or that of a proxy.
func (b *Broker) WriteTransport(user, addr string) (string, error) {
	file, topics := filepath.Join(b.config.Dir, user+".yaml"), b.topics(user)
	text := fmt.Appendf(nil, "brokerHost: %s\nusername: %s\npassword: %s\ntopics:\n  sourceEvents: %s\n  agentEvents: %s\n",
		addr, user, b.passwords[user], topics.SourceEvents, topics.AgentEvents)
	if topics.SourceBroadcast != "" {
		text = fmt.Appendf(text, "  sourceBroadcast: %s\n  agentBroadcast: %s\n", topics.SourceBroadcast, topics.AgentBroadcast)
	}
	return file, os.WriteFile(file, text, 0o600)
}

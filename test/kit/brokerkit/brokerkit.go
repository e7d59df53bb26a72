// Package brokerkit runs brokers as processes, with a user for each client.
//
//	b, err := brokerkit.Start(ctx, brokerkit.Config{Dir: dir, Program: "bin/work-broker", Source: "hub1", Clusters: clusters})
//	file, err := b.WriteTransport("hub1", b.Addr) // for --transport-config
package brokerkit

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/mosquitto"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/process"
)

// Config is the configuration of a broker. All fields are required.
type Config struct {
	// Dir is an existing directory for configuration, data and logs.
	Dir string
	// Program is the path of a work-broker, or "mosquitto".
	Program string
	// Source and Clusters are the clients; their names are the names of the users.
	Source   wire.SourceID
	Clusters []wire.ClusterName
}

// Broker is a broker on loopback. One goroutine at a time may use it.
type Broker struct {
	// Addr is its host:port.
	Addr string
	// Process is the work-broker that runs; nil for Mosquitto.
	Process *process.Process
	// File is the path of the broker's configuration.
	File string

	config    Config
	topics    wire.Topics
	passwords map[string]string
	users     []broker.User
	mosquitto *mosquitto.Process
}

// Start starts a broker at a free port and returns when it accepts connections. Stop must be
// called.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	b := &Broker{Addr: "127.0.0.1:0", config: cfg, passwords: map[string]string{}, topics: wire.Topics{
		SourceEvents: fmt.Sprintf("sources/%s/clusters/+/sourceevents", cfg.Source),
		AgentEvents:  fmt.Sprintf("sources/%s/clusters/+/agentevents", cfg.Source),
	}}
	add := func(name string, role acl.Role) {
		b.passwords[name] = rand.Text()
		b.users = append(b.users, broker.User{Username: name, Password: b.passwords[name], Role: role})
	}
	add(string(cfg.Source), acl.Source)
	for _, cluster := range cfg.Clusters {
		add(string(cluster), acl.Agent)
	}
	return b, b.Start(ctx)
}

var ready = regexp.MustCompile(`msg="broker ready".* addresses=\[(127\.0\.0\.1:\d+)\]`)

// Start starts the broker again after Stop, at the same address with the same sessions, and returns
// when it accepts connections.
func (b *Broker) Start(ctx context.Context) (err error) {
	if b.config.Program == "mosquitto" {
		port := 0
		if b.mosquitto != nil {
			port = b.mosquitto.Port
		}
		b.File = filepath.Join(b.config.Dir, "mosquitto.conf")
		if b.mosquitto, err = mosquitto.Start(ctx, mosquitto.Config{Dir: b.config.Dir, Port: port, Users: b.users}); err == nil {
			b.Addr = b.mosquitto.Addr
		}
		return err
	}
	b.File = filepath.Join(b.config.Dir, "broker.yaml")
	if err := b.write(); err != nil {
		return err
	}
	if b.Process, err = process.Start(b.config.Dir, "broker", b.config.Program, "--config="+b.File); err != nil {
		return err
	}
	b.Addr, err = b.Process.Line(ctx, func(line string) string {
		if match := ready.FindStringSubmatch(line); match != nil {
			return match[1]
		}
		return ""
	})
	return err
}

// write writes the configuration of work-broker.
func (b *Broker) write() error {
	var text strings.Builder
	fmt.Fprintf(&text, "listeners:\n- address: %s\ndataDir: broker\nusers:\n", b.Addr)
	for _, user := range b.users {
		hash, err := bcrypt.GenerateFromPassword([]byte(user.Password), bcrypt.MinCost) // a hundred clients connect at once
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "- {username: %s, role: %s, passwordHash: %q}\n", user.Username, user.Role, hash)
	}
	return os.WriteFile(b.File, []byte(text.String()), 0o600)
}

// Stop ends the broker. It may be called on nil.
func (b *Broker) Stop() error {
	switch {
	case b == nil:
		return nil
	case b.mosquitto != nil:
		return b.mosquitto.Stop()
	default:
		return b.Process.Stop()
	}
}

// Transport returns the configuration of user's transport.
func (b *Broker) Transport(user string) config.Config {
	return config.Config{BrokerHost: b.Addr, Username: user, Password: b.passwords[user], Topics: b.topics}
}

// WriteTransport writes the configuration of user's transport to a file and returns its path. addr
// is [Broker].Addr, or that of a proxy.
func (b *Broker) WriteTransport(user, addr string) (string, error) {
	file := filepath.Join(b.config.Dir, user+".yaml")
	return file, os.WriteFile(file, fmt.Appendf(nil,
		"brokerHost: %s\nusername: %s\npassword: %s\ntopics:\n  sourceEvents: %s\n  agentEvents: %s\n",
		addr, user, b.passwords[user], b.topics.SourceEvents, b.topics.AgentEvents), 0o600)
}

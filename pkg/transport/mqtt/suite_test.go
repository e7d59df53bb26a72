package mqtt_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

const password = "secret"

// brokerLimit is the maximum packet size of both brokers.
const brokerLimit = 1 << 20

var users = []broker.User{
	{Username: transporttest.Hub, Password: password, Role: acl.Source},
	{Username: transporttest.Cluster, Password: password, Role: acl.Agent},
	{Username: transporttest.Other, Password: password, Role: acl.Agent},
}

// brokers are those that the tests run on.
var brokers = map[string]func(t testing.TB) *brokertest.Running{
	"embedded":  func(t testing.TB) *brokertest.Running { return brokertest.Start(t, broker.Config{Users: users}) },
	"mosquitto": func(t testing.TB) *brokertest.Running { return brokertest.StartMosquitto(t, users) },
}

// onEachBroker runs test on a broker of each kind.
func onEachBroker(t *testing.T, test func(t *testing.T, b *brokertest.Running)) {
	for name, start := range brokers {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

func TestTransport(t *testing.T) {
	suite := func(name string, start func(testing.TB) *brokertest.Running, host func(addr string) string) {
		t.Run(name, func(t *testing.T) {
			start := func(t *testing.T) transporttest.Broker { return suiteBroker(t, start(t), host) }
			transporttest.Run(t, start)
			transporttest.RunRestart(t, start)
		})
	}
	for name, start := range brokers {
		suite(name, start, plain)
	}
	suite("WebSocket", func(t testing.TB) *brokertest.Running {
		return brokertest.Start(t, broker.Config{Users: users, Listeners: []broker.Listener{{Address: "127.0.0.1:0", WebSocketPath: "/mqtt"}}})
	}, webSocket)
}

// What brokerHost is for a broker at addr.
func plain(addr string) string     { return addr }
func webSocket(addr string) string { return "ws://" + addr + "/mqtt" }

func TestForgetful(t *testing.T) {
	transporttest.RunForget(t, func(t *testing.T) transporttest.Broker {
		dir := filepath.Join(t.TempDir(), "data")
		running := brokertest.Start(t, broker.Config{Users: users, DataDir: dir})
		b := suiteBroker(t, running, plain)
		b.Forget = func() {
			running.Stop()
			kit.NoError(t, os.RemoveAll(dir))
			running.Restart(t)
		}
		return b
	})
}

// suiteBroker makes b what the suite needs: each user connects through a proxy of its own.
func suiteBroker(t *testing.T, b *brokertest.Running, host func(addr string) string) transporttest.Broker {
	proxies := make(map[string]*transporttest.Proxy)
	for _, u := range users {
		proxies[u.Username] = transporttest.StartProxy(t, b.Addr)
	}
	return transporttest.Broker{
		Client: func(user string) transport.Transport {
			return client(t, host(proxies[user].Addr), user, nil)
		},
		Cut:     func(user string) { proxies[user].Cut() },
		Restore: func(user string) { proxies[user].Restore() },
		Limit:   brokerLimit,
		Restart: func() { b.Restart(t) },
	}
}

// client makes the transport of user, its configuration changed by change.
func client(t testing.TB, addr, user string, change func(*mqtt.Config)) *mqtt.Transport {
	t.Helper()
	cfg := mqtt.Config{
		Broker:   config.Config{BrokerHost: addr, Username: user, Password: password},
		ClientID: user + "-client",
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)).With("client", user),
	}
	if change != nil {
		change(&cfg)
	}
	tr, err := mqtt.New(cfg)
	kit.NoError(t, err)
	return tr
}

func brokerAt(addr string) config.Config {
	return config.Config{BrokerHost: addr}
}

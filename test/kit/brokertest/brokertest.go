// Package brokertest starts real brokers in tests: the project's, and Mosquitto with the
// configuration of broker/mosquitto. Both accept the same users.
//
//	users := []broker.User{
//		{Username: "hub1", Password: "secret", Role: acl.Source},
//		{Username: "cluster1", Password: "secret", Role: acl.Agent},
//	}
//	b := brokertest.Start(t, broker.Config{Users: users}) // or StartMosquitto(t, users)
//	dial(b.Addr)                                          // 127.0.0.1:port
//	b.Stop()
//	b.Restart(t) // same address, same sessions
package brokertest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/mosquittokit"
	"github.com/workwire/workwire/test/kit/rabbitmqkit"
)

// Running is a broker that runs until Stop or the end of the test. Use it from the test's own
// goroutine.
type Running struct {
	// Addr is host:port of the first listener; JoinersAddr that of Mosquitto's for joiners, with TLS, WebSocketAddr that of its WebSockets.
	// Restart keeps them.
	Addr, JoinersAddr, WebSocketAddr string
	// Broker is the running broker, nil for Mosquitto.
	Broker *broker.Broker

	start func(testing.TB)
	stop  func() // nil while stopped
}

// Start runs a broker with cfg and returns when it accepts clients. It fails the test when the
// broker does not start. cfg's default listener is a free loopback port, its default DataDir a
// temporary directory, its default logger the test's output.
func Start(t testing.TB, cfg broker.Config) *Running {
	t.Helper()
	if len(cfg.Listeners) == 0 {
		cfg.Listeners = []broker.Listener{{Address: "127.0.0.1:0"}}
	}
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	r := &Running{}
	r.start = func(t testing.TB) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		b, ended, err := run(ctx, cfg)
		for deadline := time.Now().Add(kit.Patience); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(deadline); {
			<-time.After(10 * time.Millisecond) // a connection of another test has the port
			b, ended, err = run(ctx, cfg)
		}
		if err != nil {
			cancel()
			t.Fatalf("brokertest: the broker did not start: %v", err)
		}
		r.Addr, r.Broker = b.Addr(), b
		cfg.Listeners[0].Address = r.Addr
		r.stop = func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("brokertest: the broker ended with: %v", err)
			}
		}
	}
	cfg.Listeners = append([]broker.Listener(nil), cfg.Listeners...)
	r.start(t)
	t.Cleanup(r.Stop)
	return r
}

// run starts a broker and waits until it is ready. ended receives the result of its Run.
func run(ctx context.Context, cfg broker.Config) (b *broker.Broker, ended chan error, err error) {
	if b, err = broker.New(cfg); err != nil {
		return nil, nil, err
	}
	ended = make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	select {
	case <-b.Ready():
		return b, ended, nil
	case err := <-ended:
		return nil, nil, err
	}
}

// StartMosquitto runs Mosquitto for users on a free loopback port and returns when it accepts
// clients. It skips the test when Mosquitto is not installed, see [kit.Program].
func StartMosquitto(t testing.TB, users []broker.User) *Running {
	t.Helper()
	return StartMosquittoWith(t, mosquittokit.Config{Users: users})
}

// StartRabbitMQ runs RabbitMQ with cfg, of which it sets Image and Dir, in a container. It skips the test
// without the environment variable WORKWIRE_RABBITMQ, which names the image: make e2e sets it.
func StartRabbitMQ(t testing.TB, cfg rabbitmqkit.Config) *rabbitmqkit.Container {
	t.Helper()
	if cfg.Image = os.Getenv("WORKWIRE_RABBITMQ"); cfg.Image == "" {
		t.Skip("make e2e runs it, in make check too: it needs the image of hack/rabbitmq-image.sh in WORKWIRE_RABBITMQ")
	}
	cfg.Dir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	c, err := rabbitmqkit.Start(ctx, cfg)
	if err != nil {
		t.Fatalf("brokertest: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log, err := c.Log(context.Background())
			t.Logf("the end of RabbitMQ's log: %v\n%s", err, log)
		}
		if err := c.Stop(); err != nil {
			t.Errorf("brokertest: %v", err)
		}
	})
	return c
}

// StartMosquittoWith is like StartMosquitto with a configuration, of which it sets Dir and ports.
func StartMosquittoWith(t testing.TB, cfg mosquittokit.Config) *Running {
	t.Helper()
	kit.Mosquitto.Require(t)
	cfg.Dir, cfg.Port = t.TempDir(), 0
	r := &Running{}
	r.start = func(t testing.TB) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
		defer cancel()
		p, err := mosquittokit.Start(ctx, cfg)
		if err != nil {
			t.Fatalf("brokertest: %v", err)
		}
		r.Addr, r.JoinersAddr, r.WebSocketAddr, cfg = p.Addr, p.JoinersAddr, p.WebSocketAddr, p.Config
		r.stop = func() {
			if err := p.Stop(); err != nil {
				t.Errorf("brokertest: %v", err)
			}
		}
	}
	r.start(t)
	t.Cleanup(r.Stop)
	return r
}

// Stop ends the broker as SIGTERM does, and waits for it. Calling it again has no effect.
func (r *Running) Stop() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

// Restart stops the broker unless it is stopped, and starts it again on the same address with its
// sessions and messages.
func (r *Running) Restart(t testing.TB) {
	t.Helper()
	r.Stop()
	r.start(t)
}

// Package examples applies the files of examples/ at a hub, as their readers do, and checks the
// cluster and the works' statuses for what the documentation says about them. docs/features.md
// refers to it as test/examples.
//
// It has control planes of its own: its hub handles all works of its API server.
package examples

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

// All tests share a hub with its API server, a broker, and a cluster with simulated nodes. Each has
// an agent of its own.
var (
	hubPlane, spokePlane *controlplane.Plane
	brokerAddr           string
)

const (
	source = wire.SourceID("hub1")
	// clusters is the number of agents that the broker accepts: cluster-1, cluster-2 and so on.
	clusters = 1000
	// parallel is the default of -parallel: tests wait for servers most of the time.
	parallel = "8"
)

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	controlplane.Main(m, controlplane.Planes{Hub: &hubPlane, Spoke: &spokePlane, Setup: setUp})
}

// setUp installs the definitions and starts broker and hub.
func setUp() (teardown func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	teardown = func() error {
		cancel()
		return running.Wait()
	}
	if err := install.CRDs(ctx, spokePlane.REST(), definition("machines.yaml"), definition("mycustomresources.yaml")); err != nil {
		return teardown, err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := startBroker(ctx, &running, logger); err != nil {
		return teardown, err
	}
	return teardown, startHub(ctx, &running, logger)
}

func definition(file string) *apiextensionsv1.CustomResourceDefinition {
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		panic(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		panic(err)
	}
	return definition
}

func startBroker(ctx context.Context, running *errgroup.Group, logger *slog.Logger) error {
	users := []broker.User{{Username: string(source), Password: world.Password, Role: acl.Source}}
	for i := range clusters {
		users = append(users, broker.User{Username: fmt.Sprintf("cluster-%d", i+1), Password: world.Password, Role: acl.Agent})
	}
	b, err := broker.New(broker.Config{Listeners: []broker.Listener{{Address: "127.0.0.1:0"}}, Users: users, Logger: logger})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	running.Go(func() error {
		err := b.Run(ctx)
		ended <- err
		return err
	})
	select {
	case <-b.Ready():
		brokerAddr = b.Addr()
		return nil
	case err := <-ended:
		return fmt.Errorf("the broker did not start: %w", err)
	}
}

func startHub(ctx context.Context, running *errgroup.Group, logger *slog.Logger) error {
	tr, err := mqtt.New(mqtt.Config{ClientID: "hub1-hub", Logger: logger, Broker: config.Config{
		BrokerHost: brokerAddr, Username: string(source), Password: world.Password, Topics: world.Topics(source),
	}})
	if err != nil {
		return err
	}
	election := leader.NewOptions(string(source))
	election.Disabled = true
	h, err := hub.New(hub.Config{
		REST: hubPlane.REST(), Source: source, Topics: world.Topics(source), Transport: tr, Election: election, Logger: logger,
	})
	if err != nil {
		return err
	}
	running.Go(func() error { return h.Run(ctx) })
	return nil
}

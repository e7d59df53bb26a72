// Package examples applies the files of examples/ at a hub, as their readers do,
// and checks on the cluster and in the works' statuses that what the documentation
// says of them happens. Its name for the readers of docs/features.md is
// test/examples; see world_test.go for what it plays in.
package examples

import (
	"context"
	"errors"
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
	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/leader"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// What all tests share: a hub with its API, a broker, and a cluster with simulated
// nodes. The agents are the tests' own.
var (
	hubPlane, spokePlane *controlplane.Plane
	brokerAddr           string
)

const (
	source   = wire.SourceID("hub1")
	password = "secret"
	// clusters is how many agents the broker lets in: cluster-1, cluster-2 and so on.
	clusters = 1000
	// parallel is how many tests run at a time, unless -parallel says otherwise: they
	// wait for servers most of the time.
	parallel = "8"
)

var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents",
	SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
}

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	var starting errgroup.Group
	for _, p := range []struct {
		role        controlplane.Role
		plane       **controlplane.Plane
		definitions []*apiextensionsv1.CustomResourceDefinition
	}{
		{controlplane.Hub, &hubPlane, crds.Hub()},
		{controlplane.Spoke, &spokePlane, append(crds.Spoke(), definition("machines.yaml"), definition("mycustomresources.yaml"))},
	} {
		starting.Go(func() error {
			plane, err := controlplane.Start(p.role)
			if err != nil {
				return err
			}
			*p.plane = plane
			return install.CRDs(context.Background(), plane.REST(), p.definitions...)
		})
	}
	started := starting.Wait()
	defer func() {
		for _, plane := range []*controlplane.Plane{hubPlane, spokePlane} {
			if plane != nil {
				err = errors.Join(err, plane.Stop())
			}
		}
	}()
	if started != nil {
		return 1, started
	}

	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	defer func() {
		cancel()
		err = errors.Join(err, running.Wait())
	}()
	if err := startBroker(ctx, &running, logger); err != nil {
		return 1, err
	}
	if err := startHub(ctx, &running, logger); err != nil {
		return 1, err
	}
	return m.Run(), nil
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
	users := []broker.User{{Username: string(source), Password: password, Role: acl.Source}}
	for i := range clusters {
		users = append(users, broker.User{Username: fmt.Sprintf("cluster-%d", i+1), Password: password, Role: acl.Agent})
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
	link, err := connection(string(source), "hub1-hub", logger)
	if err != nil {
		return err
	}
	election := leader.NewOptions(string(source))
	election.Disabled = true
	h, err := hub.New(hub.Config{
		REST: hubPlane.REST(), Source: source, Topics: topics, Transport: link, Election: election, Logger: logger,
	})
	if err != nil {
		return err
	}
	running.Go(func() error { return h.Run(ctx) })
	return nil
}

// connection is a client's way to the broker.
func connection(user, clientID string, logger *slog.Logger) (transport.Transport, error) {
	return mqtt.New(mqtt.Config{ClientID: clientID, Logger: logger, Broker: config.Config{
		BrokerHost: brokerAddr, Username: user, Password: password, Topics: topics,
	}})
}

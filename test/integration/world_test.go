// Package integration runs hubs, brokers and agents together, on real API servers, and on both the
// project's broker and Mosquitto: a work's life while parts are away (life_test.go), duplicate and
// reordered events, an agent that moves to another broker, and the rotation of certificates.
package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

// The hub API also serves as the cluster of second agents: they need no more than namespaces and
// ConfigMaps. Both control planes are the package's own: every hub here handles all works of its
// API server.
var hubPlane, spokePlane *controlplane.Plane

func TestMain(m *testing.M) {
	if what, token, ok := strings.Cut(os.Getenv(attacker), "="); ok {
		if err := attack(what, token); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	controlplane.Main(m, controlplane.Planes{Hub: &hubPlane, Spoke: &spokePlane})
}

// newWorld returns a world of two clusters without a broker.
func newWorld(t *testing.T) *world.World {
	t.Helper()
	return world.New(t, world.Options{Hub: hubPlane, Spokes: []*controlplane.Plane{spokePlane, hubPlane}})
}

// withBroker returns a world of two clusters with the project's broker.
func withBroker(t *testing.T) *world.World {
	t.Helper()
	w := newWorld(t)
	w.StartBroker(broker.Config{})
	return w
}

// onBothBrokers runs test on each broker.
func onBothBrokers(t *testing.T, test func(w *world.World)) {
	t.Parallel()
	for name, start := range world.Brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			start(w)
			test(w)
		})
	}
}

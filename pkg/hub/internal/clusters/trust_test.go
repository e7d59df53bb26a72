package clusters

import (
	"testing"

	"github.com/workwire/workwire/pkg/wire"
)

// TestClustersWithoutKeyAreNotRegistered: if statuses must be signed, a cluster that nobody made a key
// for is not there, unless it has a ManagedCluster.
func TestClustersWithoutKeyAreNotRegistered(t *testing.T) {
	p := registering
	p.registers = func(name wire.ClusterName) bool { return name == "known" }
	x := newTestIndex(p)
	x.see("managed", managed("managed", "1", "1"))
	for _, name := range []wire.ClusterName{"known", "invented", "managed"} {
		x.messageReceived(name, says("s", true), start)
		x.messageReceived(name, nil, start)
		v, is := x.view(name)
		if want := name != "invented"; is != want {
			t.Errorf("%s: known %v, want %v", name, is, want)
		}
		if registers := decide(name, v, p, start).register != nil; registers != (name == "known") {
			t.Errorf("%s: registered: %v", name, registers)
		}
	}
}

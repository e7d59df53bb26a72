package direct

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

// TestAsksForProof: a broker gets no signed deletion of a work by calling it a probe.
func TestAsksForProof(t *testing.T) {
	probe := func(uid types.UID) wire.SpecVersion { return wire.SpecVersion{UID: uid, Generation: 1, Probe: true} }
	const random = "6f1c1b1e-0d8c-4b0a-9c53-000000000001"
	for name, test := range map[string]struct {
		request wire.SpecResync
		want    bool
	}{
		"of an agent":     {wire.SpecResync{Partial: true, Versions: []wire.SpecVersion{probe(random)}}, true},
		"for all works":   {wire.SpecResync{Versions: []wire.SpecVersion{probe(random)}}, false},
		"a work":          {wire.SpecResync{Partial: true, Versions: []wire.SpecVersion{probe(wire.UIDFor("ops", "cluster1", "web"))}}, false},
		"a work besides":  {wire.SpecResync{Partial: true, Versions: []wire.SpecVersion{probe(random), probe(wire.UIDFor("ops", "cluster1", "web"))}}, false},
		"no probe":        {wire.SpecResync{Partial: true, Versions: []wire.SpecVersion{{UID: random}}}, false},
		"nothing":         {wire.SpecResync{Partial: true}, false},
		"what is no UUID": {wire.SpecResync{Partial: true, Versions: []wire.SpecVersion{probe("u")}}, false},
	} {
		if got := asksForProof(&test.request); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

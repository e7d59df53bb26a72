package session

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

// TestPartials: the works to request are merged by work, taken in turns, and dropped if they are too many, which
// does not concern other sources.
func TestPartials(t *testing.T) {
	list := func(from, n int, generation wire.Generation) (versions []wire.SpecVersion) {
		for i := range n {
			versions = append(versions, wire.SpecVersion{UID: types.UID(fmt.Sprint(from + i)), Generation: generation})
		}
		return versions
	}
	var p partials
	for i := range 100 {
		if !p.add("a", list(0, partialTurn+1, wire.Generation(i))) {
			t.Fatal("the same works 100 times are too many")
		}
	}
	first, more := p.take("a")
	last, again := p.take("a")
	if len(first) != partialTurn || !more || len(last) != 1 || again || last[0].Generation != 99 {
		t.Errorf("took %d, more %v; then %+v, more %v", len(first), more, last, again)
	}
	p.add("b", list(0, 1, 1))
	if !p.add("a", list(0, maxPartial, 1)) || p.add("a", list(maxPartial, 1, 1)) {
		t.Errorf("the limit is not %d", maxPartial)
	}
	if versions, _ := p.take("a"); len(versions) != 0 {
		t.Errorf("%d works wait after too many", len(versions))
	}
	if versions, _ := p.take("b"); len(versions) != 1 || len(p.waiting) != 0 {
		t.Errorf("of the other source %d, left %v", len(versions), p.waiting)
	}
}

package outbox_test

import (
	"testing"

	"github.com/workwire/workwire/pkg/wire"
)

// TestSetAllocates bounds what setting a status costs: one that says what was said before, which
// each look at a work ends with, and another one.
func TestSetAllocates(t *testing.T) {
	r := prepare(t, &broker{})
	work, last := key("busy"), status(1, "as it was")
	r.Set(work, last)
	same := testing.AllocsPerRun(200, func() { r.Set(work, last) })
	generation := wire.Generation(1)
	other := testing.AllocsPerRun(200, func() {
		generation++
		last.Generation = generation
		r.Set(work, last)
	})
	if most := 21.0; same > most {
		t.Errorf("a status that says nothing new allocates %v times, want at most %v", same, most)
	}
	if most := 25.0; other > most {
		t.Errorf("a new status allocates %v times, want at most %v", other, most)
	}
}

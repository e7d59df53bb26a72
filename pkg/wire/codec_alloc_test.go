package wire_test

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// TestEventAllocates bounds what one event costs, however busy the machine is. The bounds are a
// tenth above what is counted with the race detector, under which pools forget.
func TestEventAllocates(t *testing.T) {
	for _, c := range []struct {
		fixture        string
		encode, decode float64
	}{
		{"update", 34, 100},
		{"status", 55, 140},
	} {
		message, event := decoded(t, c.fixture), fixture(t, c.fixture).event(t)
		encode := testing.AllocsPerRun(200, func() {
			if _, err := wire.Encode(message, time.UnixMilli(0)); err != nil {
				t.Fatal(err)
			}
		})
		decode := testing.AllocsPerRun(200, func() {
			if _, err := wire.Decode(event); err != nil {
				t.Fatal(err)
			}
		})
		if encode > c.encode {
			t.Errorf("encoding %s allocates %v times, want at most %v", c.fixture, encode, c.encode)
		}
		if decode > c.decode {
			t.Errorf("decoding %s allocates %v times, want at most %v", c.fixture, decode, c.decode)
		}
	}
}

package signing

import (
	"testing"
	"time"
)

// TestDecideSigned: which statuses with a valid signature count, by when they were signed.
func TestDecideSigned(t *testing.T) {
	started := time.Unix(1_790_000_000, 0)
	after := started.Add
	hour := Window{MaxAge: time.Hour, Started: started}
	noLimit := Window{Started: started}
	for _, c := range []struct {
		name                string
		limits              Window
		signed, newest, now time.Duration // after the start
		want                Reason
	}{
		{"new", hour, 2 * time.Minute, time.Minute, 2 * time.Minute, ""},
		{"the first one of its work", hour, time.Minute, -1000 * time.Hour, time.Minute, ""},
		{"delivered twice", hour, time.Minute, time.Minute, time.Minute, ""}, // its sequence id shows it
		{"older than the newest", hour, time.Minute, time.Minute + time.Microsecond, 2 * time.Minute, Replayed},
		{"delayed", hour, time.Minute, 0, time.Hour, ""},
		{"delayed too long", hour, time.Minute, 0, time.Hour + 2*time.Minute, Expired},
		{"as old as may be", hour, 0, 0, time.Hour, ""},
		{"by a clock that is ahead", hour, time.Hour, 0, 0, ""},
		{"by a clock that is too far ahead", hour, time.Hour + time.Second, 0, 0, Future},
		{"before the start", hour, -2 * time.Minute, -1000 * time.Hour, 0, BeforeStart},
		{"by a clock that is a little behind", hour, -time.Minute, -1000 * time.Hour, 0, ""},
		{"no limit: years old", noLimit, -10_000 * time.Hour, -20_000 * time.Hour, 0, ""},
		{"no limit: replayed", noLimit, -10_000 * time.Hour, -9_000 * time.Hour, 0, Replayed},
	} {
		if got := c.limits.Decide(after(c.signed), after(c.newest).UnixMicro(), after(c.now)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

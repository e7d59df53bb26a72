package delivery

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/security/signing"
)

// TestDecideSigned: which statuses with a valid signature count, by when they were signed.
func TestDecideSigned(t *testing.T) {
	started := time.Unix(1_790_000_000, 0)
	after := started.Add
	hour := signing.Window{MaxAge: time.Hour, Started: started}
	noLimit := signing.Window{Started: started}
	for _, c := range []struct {
		name                string
		limits              signing.Window
		signed, newest, now time.Duration // after the start
		want                signing.Reason
	}{
		{"new", hour, 2 * time.Minute, time.Minute, 2 * time.Minute, ""},
		{"the first one of its work", hour, time.Minute, -1000 * time.Hour, time.Minute, ""},
		{"delivered twice", hour, time.Minute, time.Minute, time.Minute, ""}, // its sequence id shows it
		{"older than the newest", hour, time.Minute, time.Minute + time.Microsecond, 2 * time.Minute, signing.Replayed},
		{"delayed", hour, time.Minute, 0, time.Hour, ""},
		{"delayed too long", hour, time.Minute, 0, time.Hour + 2*time.Minute, signing.Expired},
		{"by a clock that is ahead", hour, time.Hour, 0, 0, ""},
		{"by a clock that is too far ahead", hour, time.Hour + time.Second, 0, 0, signing.Future},
		{"before the start", hour, -2 * time.Minute, -1000 * time.Hour, 0, signing.BeforeStart},
		{"by a clock that is a little behind", hour, -time.Minute, -1000 * time.Hour, 0, ""},
		{"no limit: years old", noLimit, -10_000 * time.Hour, -20_000 * time.Hour, 0, ""},
		{"no limit: replayed", noLimit, -10_000 * time.Hour, -9_000 * time.Hour, 0, signing.Replayed},
	} {
		if got := c.limits.Decide(after(c.signed), after(c.newest).UnixMicro(), after(c.now)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestDecideDistrust: a thousand forged statuses are one report, and another reason is one a minute.
func TestDecideDistrust(t *testing.T) {
	start := time.Unix(1_790_000_000, 0)
	var d distrust
	reports := 0
	note := func(reason signing.Reason, after time.Duration) (report bool) {
		d, report = decideDistrust(d, reason, start.Add(after))
		if report {
			reports++
		}
		return report
	}
	if !note(signing.Unsigned, 0) || d.Reason != signing.Unsigned || !d.Since.Equal(start) {
		t.Errorf("the first one: %+v", d)
	}
	for i := range 1000 {
		reason := signing.Unsigned
		if i%2 == 0 {
			reason = signing.UnknownKey
		}
		note(reason, time.Duration(i)*59*time.Millisecond)
	}
	if reports != 1 {
		t.Errorf("%d reports", reports)
	}
	if !note(signing.UnknownKey, time.Minute) || d.Reason != signing.UnknownKey || !d.Since.Equal(start) || d.last != start.Add(time.Minute) {
		t.Errorf("another reason: %+v", d)
	}
}

package delivery

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/security/signing"
)

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

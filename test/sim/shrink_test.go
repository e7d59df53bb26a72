package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workwire/workwire/test/kit"
)

func TestNumbers(t *testing.T) {
	for text, want := range map[string]string{"": "", "3": "3", "3,7-12": "3,7-12", "9,8,7,3,7": "3,7-9", "1-2,3-4": "1-4", "5-5": "5"} {
		var n Numbers
		kit.NoError(t, n.Set(text))
		if got := n.String(); got != want {
			t.Errorf("Numbers %q are %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"a", "1-", "-1", "5-3", "1-1000000"} {
		if err := new(Numbers).Set(text); err == nil {
			t.Errorf("Numbers %q have no error", text)
		}
	}
}

// small runs a world with one cluster for two minutes.
func small(t *testing.T, leaveOut ...int) (w *World, violations []string) {
	synctest.Test(t, func(*testing.T) {
		time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
		w = New(Options{Seed: 3, Clusters: 1, Works: 3, Faults: 2 * time.Minute, LeaveOut: leaveOut})
		violations = w.Run()
	})
	return w, violations
}

// What is left out changes nothing of what else is chosen.
func TestLeaveOut(t *testing.T) {
	chosen := func(w *World) string {
		var text []string
		for _, d := range w.trace.decisions {
			text = append(text, fmt.Sprint(d.Number, d.At, d.Name, d.Fault))
		}
		return strings.Join(text, "\n")
	}
	whole, _ := small(t)
	var all []int
	for _, d := range whole.trace.decisions {
		all = append(all, d.Number)
	}
	nothing, violations := small(t, all...)
	if len(violations) > 0 {
		t.Errorf("when nothing happens: %v", violations)
	}
	if got, want := chosen(nothing), chosen(whole); got != want || got == "" {
		t.Errorf("decisions when they are left out:\n%s\nwant those of the whole run:\n%s", got, want)
	}
	for _, s := range nothing.trace.story() {
		if len(s.Works) > 0 {
			t.Errorf("nothing was to happen: %s", &s)
		}
	}
}

package main

import (
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// TestKilledAgent kills the leader and starts it again in its state directory. It leads when the Lease
// has expired, with the state that it had: nobody has led meanwhile.
func TestKilledAgent(t *testing.T) {
	works, file := newSource(t)
	dir := t.TempDir()
	flags := []string{"--listen-address=127.0.0.1:0", "--leader-election-namespace=default", "--leader-election-name=killed",
		"--leader-election-lease-duration=6s", "--leader-election-renew-deadline=4s", "--leader-election-retry-period=1s"}
	killed := launch(t, file, dir, flags...)
	applied(t, works, "before", "")

	kit.NoError(t, killed.Process.Kill())
	_ = killed.Wait() // it was killed
	log := &kit.Log{}
	launchLogging(t, log, file, dir, flags...)
	log.Await(t, "standing by")
	applied(t, works, "after", "")
	if lines := log.Lines("another replica may have led"); len(lines) > 0 {
		t.Errorf("the state is discarded: %v", lines)
	}
	deleted(t, works, "before", "after")
}

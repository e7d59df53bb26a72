// Package hostile holds the credentials of one cluster, or of one source, and does its worst to the real
// programs: what it sends passes the broker, and costs the hub or an agent as much as it can. Meanwhile the
// works of another cluster must be delivered as ever.
//
// The programs are processes of their own between real API servers. An attack is sent while changes of
// honest works are timed; [attack] says what it may cost. docs/reliability.md has the results. Each test logs
// one line of them:
//
//	go test ./test/hostile -v | grep hostile:
//
// TestMessages is a fuzzer of messages that the broker lets pass:
//
//	go test ./test/hostile -run '^TestMessages$' -for 10m -seed 7
package hostile

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
)

var (
	hubPlane, spokePlane *controlplane.Plane

	programs = flag.String("programs", "", "directory of work-hub, work-broker and work-agent, to measure others; they are built by default")
	duration = flag.Duration("for", 5*time.Second, "how long TestMessages sends messages")
	seed     = flag.Uint64("seed", 0, "seed of the messages of TestMessages; 0 chooses one")
)

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Planes{Hub: &hubPlane, Spoke: &spokePlane, Setup: func() (teardown func() error, err error) {
		if *programs == "" {
			*programs, teardown, err = process.BuildTemporary(filepath.Join("..", ".."))
		}
		return teardown, err
	}})
}

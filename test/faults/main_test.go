// Package faults breaks the real programs while works change, and compares what is there in the end
// with a model of what must be true: every work is on the cluster as it was last written, every
// deleted work is gone from the hub and the cluster, the status at the hub is that of the cluster,
// nothing is left over, and no object has another UID unless the test deleted it. The hub, the
// broker and the agent are processes of their own between real API servers; proxies stand between
// the broker and the others.
//
// docs/reliability.md has the promises that these tests prove. TestSoak mixes the faults in an
// order that a seed decides; it runs with -soak only, as in make soak.
package faults

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
)

var (
	hubPlane, spokePlane *controlplane.Plane
	// programs is the directory of work-hub, work-broker and work-agent.
	programs string

	soak = flag.Duration("soak", 0, "how long TestSoak runs; 0 skips it")
	seed = flag.Uint64("seed", 0, "seed of the order of faults in TestSoak; 0 chooses one")
	away = flag.Duration("away", 0, "how long agent and broker are away in TestAbsence; 0 skips it")
)

func TestMain(m *testing.M) {
	if name := os.Getenv(programEnv); name != "" {
		os.Exit(runProgram(name, os.Args[1:]))
	}
	controlplane.Main(m, controlplane.Planes{Hub: &hubPlane, Spoke: &spokePlane, Setup: func() (teardown func() error, err error) {
		programs, teardown, err = process.BuildTemporary(filepath.Join("..", ".."))
		return teardown, err
	}})
}

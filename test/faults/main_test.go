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
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
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
	controlplane.MainPair(m, func(hub, spoke *controlplane.Plane) (teardown func() error, err error) {
		hubPlane, spokePlane = hub, spoke
		if programs, err = os.MkdirTemp("", "workwire-faults-"); err != nil {
			return nil, err
		}
		teardown = func() error { return os.RemoveAll(programs) }
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return process.Build(ctx, filepath.Join("..", ".."), programs) })
		group.Go(func() error { return install.CRDs(ctx, hub.REST(), crds.Hub()...) })
		group.Go(func() error { return install.CRDs(ctx, spoke.REST(), crds.Spoke()...) })
		return teardown, group.Wait()
	})
}

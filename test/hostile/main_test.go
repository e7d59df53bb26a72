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

	programs = flag.String("programs", "", "directory of work-hub, work-broker and work-agent, to measure others; they are built by default")
	duration = flag.Duration("for", 5*time.Second, "how long TestMessages sends messages")
	seed     = flag.Uint64("seed", 0, "seed of the messages of TestMessages; 0 chooses one")
)

func TestMain(m *testing.M) {
	controlplane.MainPair(m, func(hub, spoke *controlplane.Plane) (teardown func() error, err error) {
		hubPlane, spokePlane = hub, spoke
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		group, ctx := errgroup.WithContext(ctx)
		if *programs == "" {
			if *programs, err = os.MkdirTemp("", "workwire-hostile-"); err != nil {
				return nil, err
			}
			teardown = func() error { return os.RemoveAll(*programs) }
			group.Go(func() error { return process.Build(ctx, filepath.Join("..", ".."), *programs) })
		}
		group.Go(func() error { return install.CRDs(ctx, hub.REST(), crds.Hub()...) })
		group.Go(func() error { return install.CRDs(ctx, spoke.REST(), crds.Spoke()...) })
		return teardown, group.Wait()
	})
}

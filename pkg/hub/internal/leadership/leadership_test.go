package leadership_test

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/pkg/hub/internal/leadership"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// TestSharedLease: a hub with a selector keeps the Lease of the source id while it publishes, although no
// controller of it is about no single cluster. A hub without a selector stands by meanwhile.
func TestSharedLease(t *testing.T) {
	namespace := plane.Namespace(t, "leases")
	serving, ending := make(chan string, 2), make(chan struct{})
	run := func(name, selector string, serve func()) (stop context.CancelFunc, ended chan error) {
		cfg := leadership.Config{Election: leader.NewOptions(leadership.SharedLease("hub1") + name), REST: plane.REST(), Source: "hub1"}
		cfg.Election.Namespace, cfg.Election.LeaseDuration, cfg.Election.RenewDeadline, cfg.Election.RetryPeriod = namespace, 4*time.Second, 3*time.Second, 200*time.Millisecond
		cfg.Connected, cfg.Logger = func() bool { return false }, kit.Logger(t)
		if selector != "" {
			var err error
			cfg.Selector, err = labels.Parse(selector)
			kit.NoError(t, err)
		}
		l, err := leadership.New(cfg)
		kit.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended = make(chan error, 1)
		go func() {
			ended <- l.Run(ctx, leadership.Term{
				CatchUp: func(ctx context.Context) bool { return ctx.Err() == nil },
				Serve: func(ctx context.Context) error {
					serving <- name
					<-ctx.Done()
					serve()
					return nil
				},
				Global: func(context.Context) error { return nil },
			})
		}()
		return stop, ended
	}
	stopShard, shardEnded := run("-a", "shard=a", func() { <-ending })
	kit.Receive(t, "the hub with a selector serves", serving)
	stopWhole, wholeEnded := run("", "", func() {})
	leases := kubernetes.NewForConfigOrDie(plane.REST()).CoordinationV1().Leases(namespace)
	kept := func(when string) {
		t.Helper()
		since := time.Now()
		kit.Await(t, leases, leadership.SharedLease("hub1"), "renewed by the hub with a selector "+when, func(l *coordinationv1.Lease) bool {
			return l != nil && strings.Contains(ptr.Deref(l.Spec.HolderIdentity, ""), "-a/") && l.Spec.RenewTime.After(since)
		})
	}
	kept("that serves")
	stopShard()
	kept("that ends")
	if len(serving) > 0 {
		t.Error("a hub without a selector serves beside one with a selector")
	}
	close(ending)
	kit.NoError(t, kit.Receive(t, "the end of the hub with a selector", shardEnded))
	kit.Receive(t, "the hub without a selector serves", serving)
	stopWhole()
	kit.NoError(t, kit.Receive(t, "the end of the hub without a selector", wholeEnded))
}

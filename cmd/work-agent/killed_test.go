package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/test/kit"
)

const leaseName = "work-agent-" + cluster

// TestKilledAgentIsBackAtOnce kills the leader of two replicas and starts it again in its state
// directory. It takes its Lease, which does not expire during the test. The replica with a state
// directory of its own waits all the time.
func TestKilledAgentIsBackAtOnce(t *testing.T) {
	works, file := newSource(t)
	dir := t.TempDir()
	kubernetesClient, err := kubernetes.NewForConfig(plane.REST())
	kit.NoError(t, err)
	leases := kubernetesClient.CoordinationV1().Leases("default")
	t.Cleanup(func() { _ = leases.Delete(context.Background(), leaseName, metav1.DeleteOptions{}) })
	flags := []string{"--listen-address=127.0.0.1:0", "--leader-election-namespace=default",
		"--leader-election-lease-duration=1h", "--leader-election-renew-deadline=30m"}

	killed := launch(t, file, filepath.Join(dir, "first"), flags...)
	applied(t, works, "before", "")
	first := holder(t, leases, "is held", func(holder string) bool { return holder != "" })
	log, again := &kit.Log{}, &kit.Log{}
	other := launchLogging(t, log, file, filepath.Join(dir, "second"), flags...)
	log.Await(t, "standing by")

	kit.NoError(t, killed.Process.Kill())
	_ = killed.Wait() // it was killed
	began := time.Now()
	launch(t, file, filepath.Join(dir, "first"), flags...)
	applied(t, works, "after", "")
	t.Logf("applied %v after the restart", time.Since(began))
	second := holder(t, leases, "is held by the next process", func(holder string) bool { return holder != "" && holder != first })
	if lines := log.Lines("msg=leading"); len(lines) > 0 {
		t.Errorf("the other replica led: %v", lines)
	}

	// The directory tells the other replica nothing about the first one.
	kit.NoError(t, other.Process.Kill())
	_ = other.Wait()
	launchLogging(t, again, file, filepath.Join(dir, "second"), flags...)
	again.Await(t, "standing by")
	if now := holder(t, leases, "is held", func(holder string) bool { return holder != "" }); now != second {
		t.Errorf("the Lease is held by %s, want %s", now, second)
	}
	deleted(t, works, "before", "after")
}

// holder waits until the holder of the agent's Lease is as wanted, and returns it.
func holder(t *testing.T, leases coordination.LeaseInterface, what string, want func(string) bool) string {
	t.Helper()
	lease := kit.Await(t, leases, leaseName, what, func(lease *coordinationv1.Lease) bool {
		return lease != nil && want(ptr.Deref(lease.Spec.HolderIdentity, ""))
	})
	return *lease.Spec.HolderIdentity
}

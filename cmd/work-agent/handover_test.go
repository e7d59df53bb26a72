package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

// asAgent is the environment variable that makes the test binary run as work-agent.
const asAgent = "WORKWIRE_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
	}
	controlplane.Main(m, controlplane.Planes{Spoke: &plane})
}

const (
	cluster  = "c1"
	password = "secret"
)

// launch starts work-agent with state in a directory. It is killed at the end of the test.
func launch(t *testing.T, configFile, state string, flags ...string) *exec.Cmd {
	t.Helper()
	return launchLogging(t, t.Output(), configFile, state, flags...)
}

// launchLogging is launch with a log of its own.
func launchLogging(t *testing.T, log io.Writer, configFile, state string, flags ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{
		"--cluster-name=" + cluster, "--transport-config=" + configFile, "--kubeconfig=" + plane.Kubeconfig, "--state-dir=" + state,
	}, flags...)...)
	cmd.Env = append(os.Environ(), asAgent+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = log
	kit.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// replica runs work-agent until it is stopped. Its Lease does not expire while a test waits.
func replica(t *testing.T, configFile, state string) (stop func()) {
	t.Helper()
	cmd := launch(t, configFile, state, "--listen-address=127.0.0.1:0", "--leader-election-namespace=default",
		"--leader-election-lease-duration=1h", "--leader-election-renew-deadline=30m")
	stop = sync.OnceFunc(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("work-agent ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// applied creates a work with a ConfigMap of some data, and waits until it is applied.
func applied(t *testing.T, works workclientv1.ManifestWorkInterface, name, data string) {
	t.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"handover-%s","namespace":"default"},"data":{"a":%q}}`, name, data)
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}
	if _, err := works.Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.Await(t, works, name, "is applied", func(w *workv1.ManifestWork) bool {
		return w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, workv1.WorkApplied)
	})
}

// newSource is newClient, and returns the source's works for the cluster.
func newSource(t *testing.T) (works workclientv1.ManifestWorkInterface, configFile string) {
	t.Helper()
	client, configFile := newClient(t)
	return client.ManifestWorks(cluster), configFile
}

// newClient runs a broker and a source. It returns the source, and the transport configuration of an
// agent.
func newClient(t *testing.T) (client *source.Client, configFile string) {
	t.Helper()
	b := brokertest.Start(t, broker.Config{Users: []broker.User{
		{Username: "ops", Password: password, Role: acl.Source}, {Username: cluster, Password: password, Role: acl.Agent},
	}})
	topics := wire.Topics{SourceEvents: "sources/ops/clusters/+/sourceevents", AgentEvents: "sources/ops/clusters/+/agentevents"}
	transport, err := mqtt.New(mqtt.Config{ClientID: "ops", Broker: config.Config{BrokerHost: b.Addr, Username: "ops", Password: password, Topics: topics}})
	kit.NoError(t, err)
	client, err = source.New(source.Config{SourceID: "ops", Topics: topics, Transport: transport})
	kit.NoError(t, err)
	kit.Run(t, "source", client.Run)
	return client, written(t, fmt.Sprintf("brokerHost: %s\nusername: %s\npassword: %s\nreceiveMaximum: 5\n"+
		"topics: {sourceEvents: %s, agentEvents: %s}\n", b.Addr, cluster, password, topics.SourceEvents, topics.AgentEvents))
}

// deleted deletes works and waits until they are gone.
func deleted(t *testing.T, works workclientv1.ManifestWorkInterface, names ...string) {
	t.Helper()
	for _, name := range names {
		kit.NoError(t, works.Delete(t.Context(), name, metav1.DeleteOptions{}))
		kit.Await(t, works, name, "is gone", func(w *workv1.ManifestWork) bool { return w == nil })
	}
}

// TestPresence: a source sees an agent come, die, come again and stop.
func TestPresence(t *testing.T) {
	client, file := newClient(t)
	state := t.TempDir()
	is := func(want source.Presence) {
		t.Helper()
		kit.Eventually(t, "the agent is "+string(want), func() error {
			if got, _ := client.Clusters().Get(cluster); got.Presence != want {
				return fmt.Errorf("it is %+v", got)
			}
			return nil
		})
	}
	for _, end := range []func(*exec.Cmd) error{
		func(cmd *exec.Cmd) error { return cmd.Process.Kill() },
		func(cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGTERM) },
	} {
		cmd := launch(t, file, state, "--listen-address=0", "--disable-leader-election")
		is(source.PresenceConnected)
		kit.NoError(t, end(cmd))
		is(source.PresenceDisconnected)
		_ = cmd.Wait() // it was killed, or has stopped
	}
}

// TestHandover stops the leader of two replicas. The other one serves the cluster although the Lease
// has not expired.
func TestHandover(t *testing.T) {
	works, file := newSource(t)
	dir := t.TempDir()
	stopFirst := replica(t, file, filepath.Join(dir, "first"))
	applied(t, works, "before", "")
	replica(t, file, filepath.Join(dir, "second"))
	stopFirst()
	applied(t, works, "after", "")
	deleted(t, works, "before", "after")
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/brokertest"
	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

// asAgent is the environment variable that makes the test binary run as work-agent.
const asAgent = "WORKWIRE_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
	}
	controlplane.Main(m, controlplane.Spoke, func(p *controlplane.Plane) error {
		plane = p
		return install.CRDs(context.Background(), p.REST(), crds.Spoke()...)
	})
}

const (
	cluster  = "c1"
	password = "secret"
)

// replica runs work-agent until it is stopped.
func replica(t *testing.T, configFile, state string) (stop func()) {
	t.Helper()
	plane.Require(t)
	cmd := exec.Command(os.Args[0],
		"--cluster-name="+cluster, "--transport-config="+configFile, "--kubeconfig="+plane.Kubeconfig,
		"--listen-address=127.0.0.1:0", "--leader-election-namespace=default", "--state-dir="+state)
	cmd.Env = append(os.Environ(), asAgent+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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

// applied creates a work and waits until it is applied.
func applied(t *testing.T, works workclientv1.ManifestWorkInterface, name string) {
	t.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"handover-%s","namespace":"default"}}`, name)
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}
	if _, err := works.Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.Await(t, works, name, "is applied", func(w *workv1.ManifestWork) bool {
		return w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, workv1.WorkApplied)
	})
}

// TestHandover stops the leader of two replicas. The other one serves the cluster long before the Lease
// would have expired.
func TestHandover(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: []broker.User{
		{Username: "ops", Password: password, Role: acl.Source}, {Username: cluster, Password: password, Role: acl.Agent},
	}})
	topics := wire.Topics{SourceEvents: "sources/ops/clusters/+/sourceevents", AgentEvents: "sources/ops/clusters/+/agentevents"}
	transport, err := mqtt.New(mqtt.Config{ClientID: "ops", Broker: config.Config{BrokerHost: b.Addr, Username: "ops", Password: password, Topics: topics}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	kit.Run(t, "source", client.Run)
	works := client.ManifestWorks(cluster)
	dir := t.TempDir()
	file := written(t, fmt.Sprintf("brokerHost: %s\nusername: %s\npassword: %s\ntopics: {sourceEvents: %s, agentEvents: %s}\n",
		b.Addr, cluster, password, topics.SourceEvents, topics.AgentEvents))
	stopFirst := replica(t, file, filepath.Join(dir, "first"))
	applied(t, works, "before")
	replica(t, file, filepath.Join(dir, "second"))
	stopFirst()
	start := time.Now()
	applied(t, works, "after")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the second replica took %v to serve the cluster: the Lease was not handed over", took)
	}
	for _, name := range []string{"before", "after"} {
		if err := works.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		kit.Await(t, works, name, "is gone", func(w *workv1.ManifestWork) bool { return w == nil })
	}
}

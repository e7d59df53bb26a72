package faults

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokerkit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
)

// source is the hub. Tests run one after the other, and each ends without works, so that all can
// have one.
const source = "hub1"

// world is a hub, a broker, and the agent of one cluster. One goroutine at a time may use it.
type world struct {
	*testing.T
	*model
	random  *rand.Rand
	serial  int             // of the last change
	ofSets  map[string]bool // the works that a ManifestWorkReplicaSet has, which the test does not change
	cluster string          // its namespace at the hub
	target  string          // the namespace of objects on the cluster

	works        workclientv1.ManifestWorkInterface
	appliedWorks workclientv1.AppliedManifestWorkInterface
	configMaps   corev1client.ConfigMapInterface

	dir                          string
	brokerDisk, agentDisk        *kit.Disk // with their files; nil where mounting is not allowed, and for an agent without files
	broker                       *brokerkit.Broker
	hub, agent                   *process.Process // nil while stopped
	hubArgs, agentArgs           []string
	keepAlive                    int                  // in seconds; 0: the least
	stateDir                     string               // of the agent, "" for one without
	hubLink, agentLink           *transporttest.Proxy // between the programs and the broker
	hubLoss, agentLoss           *lossy               // between the links and the broker
	hubTransport, agentTransport string               // files
}

// newWorld starts all programs; change may give them more arguments before. The end of the test
// stops them. seed decides all changes of works.
func newWorld(t *testing.T, seed uint64, change func(*world)) *world {
	t.Helper()
	w := &world{
		T: t, model: newModel(), dir: t.TempDir(), cluster: hubPlane.Namespace(t, "cluster"), target: spokePlane.Namespace(t, "target"),
		random: rand.New(rand.NewPCG(seed, 0)), ofSets: map[string]bool{},
	}
	change(w)
	w.works = workclient.NewForConfigOrDie(hubPlane.REST()).WorkV1().ManifestWorks(w.cluster)
	w.appliedWorks = workclient.NewForConfigOrDie(spokePlane.REST()).WorkV1().AppliedManifestWorks()
	w.configMaps = kubernetes.NewForConfigOrDie(spokePlane.REST()).CoreV1().ConfigMaps(w.target)
	var err error
	if w.brokerDisk, err = kit.MountDisk(t, diskSize); err == nil {
		kit.NoError(t, os.Symlink(w.brokerDisk.Dir, filepath.Join(w.dir, "broker")))
	}
	w.broker, err = brokerkit.Start(t.Context(), brokerkit.Config{
		Dir: w.dir, Program: filepath.Join(programs, "work-broker"), Source: source, Clusters: []wire.ClusterName{wire.ClusterName(w.cluster)},
	})
	t.Cleanup(w.close)
	kit.NoError(t, err)
	w.hubLoss, w.agentLoss = startLossy(t, w.broker.Addr), startLossy(t, w.broker.Addr)
	w.hubLink, w.agentLink = transporttest.StartProxy(t, w.hubLoss.addr), transporttest.StartProxy(t, w.agentLoss.addr)
	w.hubTransport, w.agentTransport = w.transport(source, w.hubLink), w.transport(w.cluster, w.agentLink)
	w.startHub()
	w.startAgent()
	return w
}

// diskSize is room for the files of a broker, or of an agent.
const diskSize = 8 << 20

// keepState has the agent keep its state on a disk, or in a directory where mounting is not allowed.
func (w *world) keepState() {
	w.Helper()
	w.stateDir = w.TempDir()
	if disk, err := kit.MountDisk(w, diskSize); err == nil {
		w.agentDisk, w.stateDir = disk, disk.Dir
	}
	w.agentArgs = append(w.agentArgs, "--state-dir="+w.stateDir)
}

// settings are the rest of a transport configuration. The keepAlive is short, so that a cut is noticed within seconds: after
// 1.5 times of it, both sides have given up their connection.
const settings = `  sourceBroadcast: sources/+/sourcebroadcast
  agentBroadcast: clusters/+/agentbroadcast
keepAlive: %d
`

// untilCut is more than 1.5 times the keepAlive.
const untilCut = 4 * time.Second

// transport writes the transport configuration of a user who connects through link.
func (w *world) transport(user string, link *transporttest.Proxy) string {
	w.Helper()
	file, err := w.broker.WriteTransport(user, link.Addr)
	kit.NoError(w, err)
	text, err := os.ReadFile(file)
	kit.NoError(w, err)
	kit.NoError(w, os.WriteFile(file, fmt.Appendf(text, settings, cmp.Or(w.keepAlive, 2)), 0o600))
	return file
}

func (w *world) start(name string, args ...string) *process.Process {
	w.Helper()
	p, err := process.Start(w.dir, name, append([]string{filepath.Join(programs, "work-"+name), "--disable-leader-election",
		"--listen-address=127.0.0.1:0"}, args...)...)
	kit.NoError(w, err)
	return p
}

func (w *world) startHub() { w.startHubOn(hubPlane) }

func (w *world) startHubOn(api *controlplane.Plane) {
	w.Helper()
	w.hub = w.start("hub", append([]string{"--source-id=" + source, "--kubeconfig=" + api.Kubeconfig,
		"--transport-config=" + w.hubTransport}, w.hubArgs...)...)
}

func (w *world) stopAgent() {
	w.Helper()
	kit.NoError(w, w.agent.Stop())
	w.agent = nil
}

func (w *world) startAgent() {
	w.Helper()
	w.agent = w.start("agent", append([]string{"--cluster-name=" + w.cluster, "--agent-id=" + w.cluster,
		"--kubeconfig=" + spokePlane.Kubeconfig, "--transport-config=" + w.agentTransport}, w.agentArgs...)...)
}

func (w *world) startBroker() {
	w.Helper()
	kit.NoError(w, w.broker.Start(w.Context()))
}

// alive fails the test when a program has ended by itself.
func (w *world) alive() {
	w.Helper()
	kit.NoError(w, errors.Join(w.broker.Process.Died(), w.hub.Died(), w.agent.Died()))
}

// close stops the programs, and shows the end of their logs if the test has failed.
func (w *world) close() {
	for _, stop := range []func() error{w.agent.Stop, w.hub.Stop, w.broker.Stop} {
		if err := stop(); err != nil {
			w.Error(err)
		}
	}
	if !w.Failed() {
		return
	}
	for _, name := range []string{"agent", "hub", "broker"} {
		text, _ := os.ReadFile(filepath.Join(w.dir, name+".log"))
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		w.Logf("the end of the log of the %s:\n%s", name, bytes.Join(lines[max(0, len(lines)-40):], []byte("\n")))
	}
}

// end deletes all works and waits until nothing is left of them.
func (w *world) end() {
	w.Helper()
	for name := range w.want {
		w.remove(name)
	}
	w.converge()
}

// during makes n changes, spread over d. Their number does not depend on the speed of the machine,
// so that a seed decides what comes next.
func (w *world) during(d time.Duration, n int) {
	w.Helper()
	for range n {
		w.change()
		time.Sleep(d / time.Duration(n))
	}
}

var (
	create  = metav1.CreateOptions{}
	update  = metav1.UpdateOptions{}
	deleted = metav1.DeleteOptions{}
)

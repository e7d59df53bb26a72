package faults

import (
	"cmp"
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
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
	kitworld "github.com/workwire/workwire/test/kit/world"
)

// source is the hub. Tests run one after the other, and each ends without works, so that all can
// have one.
const source = "hub1"

// world is a hub, a broker, and the agent of one cluster, as processes. One goroutine at a time may use it.
type world struct {
	*kitworld.Processes
	*model
	random  *rand.Rand
	serial  int             // of the last change
	ofSets  map[string]bool // the works that a ManifestWorkReplicaSet has, which the test does not change
	cluster string          // its namespace at the hub
	target  string          // the namespace of objects on the cluster

	works        workclientv1.ManifestWorkInterface
	appliedWorks workclientv1.AppliedManifestWorkInterface
	configMaps   corev1client.ConfigMapInterface

	brokerDisk, agentDisk *kit.Disk        // with their files; nil where mounting is not allowed, and for an agent without files
	hub, agent            *process.Process // the last ones
	hubArgs, agentArgs    []string
	keepAlive             int                  // in seconds; 0: the least
	stateDir              string               // of the agent, "" for one without
	hubLink, agentLink    *transporttest.Proxy // between the programs and the broker
	hubLoss, agentLoss    *lossy               // between the links and the broker
}

// newWorld starts all programs; change may give them more arguments before. The end of the test
// stops them. seed decides all changes of works.
func newWorld(t *testing.T, seed uint64, change func(*world)) *world {
	t.Helper()
	return newWorldOn(t, hubPlane, seed, change)
}

// newWorldOn is newWorld on another API of the hub.
func newWorldOn(t *testing.T, api *controlplane.Plane, seed uint64, change func(*world)) *world {
	t.Helper()
	w := &world{
		Processes: kitworld.New(t, kitworld.Options{Hub: api, Spokes: []*controlplane.Plane{spokePlane}, Source: source}).Processes(programs),
		model:     newModel(), random: rand.New(rand.NewPCG(seed, 0)), ofSets: map[string]bool{},
	}
	w.cluster, w.target, w.works = string(w.Clusters[0]), w.Targets[0], w.Works(0)
	w.appliedWorks = workclient.NewForConfigOrDie(spokePlane.REST()).WorkV1().AppliedManifestWorks()
	w.configMaps = kubernetes.NewForConfigOrDie(spokePlane.REST()).CoreV1().ConfigMaps(w.target)
	change(w)
	var err error
	if w.brokerDisk, err = kit.MountDisk(t, diskSize); err == nil {
		kit.NoError(t, os.Symlink(w.brokerDisk.Dir, filepath.Join(w.Dir, "broker")))
	}
	w.StartBroker()
	w.hubLoss, w.agentLoss = startLossy(t, w.Broker.Addr), startLossy(t, w.Broker.Addr)
	w.hubLink, w.agentLink = transporttest.StartProxy(t, w.hubLoss.addr), transporttest.StartProxy(t, w.agentLoss.addr)
	w.Links = map[string]string{source: w.hubLink.Addr, w.cluster: w.agentLink.Addr}
	w.Settings = fmt.Sprintf(settings, cmp.Or(w.keepAlive, 2))
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

func (w *world) startHub() {
	w.Helper()
	w.hub = w.StartHub("hub", w.hubArgs...)
}

func (w *world) stopAgent() {
	w.Helper()
	kit.NoError(w, w.agent.Stop())
}

func (w *world) startAgent() {
	w.Helper()
	w.agent = w.StartAgent(0, "agent", w.agentArgs...)
}

func (w *world) startBroker() {
	w.Helper()
	kit.NoError(w, w.Broker.Start(w.Context()))
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

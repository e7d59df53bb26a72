package integration

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/world"
)

// moved are the ConfigMaps of the work "web".
var moved = []string{"c0", "c1", "c2"}

// move is a world with two brokers that take the same users, and one cluster that moves from the
// first to the second, as docs/brokers.md describes it.
type move struct {
	*world.World
	brokers  [2]*brokertest.Running
	stateDir string // of the agent, "" for none
}

func newMove(t *testing.T, keepState bool) *move {
	t.Helper()
	m := &move{World: newWorld(t)}
	m.brokers[0] = brokertest.Start(t, broker.Config{Users: m.Users})
	m.brokers[1] = brokertest.StartMosquitto(t, m.Users)
	if keepState {
		m.stateDir = t.TempDir()
	}
	return m
}

// hubAt starts the hub at broker i.
func (m *move) hubAt(i int) (stop func()) {
	m.Helper()
	m.Broker = m.brokers[i]
	return m.StartHub().Stop
}

// agentAt starts the agent at broker i. An empty id stands for the hash of the broker's address.
func (m *move) agentAt(i int, id string) (stop func()) {
	m.Helper()
	m.Broker = m.brokers[i]
	return m.StartAgent(0, func(c *agent.Config) {
		c.AgentID, c.StateDir, c.EvictionGrace, c.SyncInterval = id, m.stateDir, 3*time.Second, time.Second
	}).Stop
}

// put creates or updates the work "web", and waits until it is applied.
func (m *move) put(value string) {
	m.Helper()
	works := m.Works(0)
	m.Put(works, m.Work(0, "web", value, moved...))
	m.Applied(works, "web")
}

func (m *move) deleteWork() {
	m.Helper()
	m.Delete(m.Works(0), "web")
	m.Gone(m.Works(0), "web")
}

// objects returns the UID and the value of each ConfigMap on the cluster, by name.
func (m *move) objects() map[string]string {
	m.Helper()
	list, err := m.ConfigMaps(0)
	kit.NoError(m, err)
	out := map[string]string{}
	for _, c := range list {
		out[c.Name] = string(c.UID) + " " + c.Data["k"]
	}
	return out
}

// appliedManifestWorks returns those of the work, of any agent.
func (m *move) appliedManifestWorks() []workv1.AppliedManifestWork {
	m.Helper()
	list, err := workclient.NewForConfigOrDie(spokePlane.REST()).WorkV1().AppliedManifestWorks().List(m.Context(),
		metav1.ListOptions{LabelSelector: workv1.OriginalSourceLabelKey + "=" + string(m.Source)})
	kit.NoError(m, err)
	return list.Items
}

// hubHash returns what docs/agent.md says that --hub-hash is by default.
func hubHash(broker string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(broker))) }

// awaitOnly waits until the AppliedManifestWork named after broker i is the only one.
func (m *move) awaitOnly(i int) {
	m.Helper()
	want := hubHash(m.brokers[i].Addr) + "-web"
	kit.Eventually(m, "one AppliedManifestWork is left", func() error {
		var got []string
		for _, item := range m.appliedManifestWorks() {
			got = append(got, item.Name)
		}
		if len(got) != 1 || got[0] != want {
			return fmt.Errorf("%s, want %s", strings.Join(got, ", "), want)
		}
		return nil
	})
}

// owned fails unless the only AppliedManifestWork is the only owner of every object: an object
// without a living owner is garbage to a cluster.
func (m *move) owned() {
	m.Helper()
	owner := m.appliedManifestWorks()[0]
	list, err := m.ConfigMaps(0)
	kit.NoError(m, err)
	for _, c := range list {
		if owners := c.OwnerReferences; len(owners) != 1 || owners[0].UID != owner.UID {
			m.Errorf("%s belongs to %+v, want %s", c.Name, owners, owner.Name)
		}
	}
}

// sameObjects fails when an object was replaced, removed or changed since before.
func (m *move) sameObjects(before map[string]string) {
	m.Helper()
	if now := m.objects(); !equality.Semantic.DeepEqual(now, before) {
		m.Errorf("the objects are %v, were %v", now, before)
	}
}

// TestMove moves an agent to a broker of another address, and the hub after it. The agent has the
// same id on both, so the AppliedManifestWorks under the hash of the old address are its own: it
// creates new ones under the hash of the new address, for the same objects, and evicts the old ones
// after the grace period, which removes no object.
func TestMove(t *testing.T) {
	t.Parallel()
	for name, keepState := range map[string]bool{"memory": false, "state": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMove(t, keepState)
			stopHub, stopAgent := m.hubAt(0), m.agentAt(0, string(m.Clusters[0]))
			m.put("one")
			m.awaitOnly(0)
			before := m.objects()
			if len(before) != len(moved) {
				t.Fatalf("the objects are %v", before)
			}
			stopAgent()
			stopAgent = m.agentAt(1, string(m.Clusters[0]))
			m.sameObjects(before) // without a hub, the agent does not know the works
			stopHub()
			m.hubAt(1)
			m.awaitOnly(1)
			m.owned()
			m.sameObjects(before)
			m.put("two")
			for object, is := range m.objects() {
				if uid, _, _ := strings.Cut(before[object], " "); is != uid+" two" {
					t.Errorf("%s is %q, was %q", object, is, before[object])
				}
			}
			stopAgent()
			m.agentAt(1, string(m.Clusters[0])) // a restart finds nothing left of the move
			m.deleteWork()
			if left := m.objects(); len(left) > 0 {
				t.Errorf("the deletion left %v", left)
			}
			if left := m.appliedManifestWorks(); len(left) > 0 {
				t.Errorf("the deletion left AppliedManifestWorks: %v", left)
			}
		})
	}
}

// TestMoveWithAnotherID shows why the id must stay: without one, it is a hash of the broker's
// address. The AppliedManifestWork under the old address then belongs to another agent, and stays
// forever; it keeps the objects when the work is deleted. It is removed when an agent with that id
// runs again.
func TestMoveWithAnotherID(t *testing.T) {
	t.Parallel()
	for name, cured := range map[string]bool{"cured": true, "not-cured": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMove(t, false)
			stopHub, stopAgent := m.hubAt(0), m.agentAt(0, "")
			m.put("one")
			stopAgent()
			stopHub()
			m.hubAt(1)
			stopAgent = m.agentAt(1, "")
			m.put("two")
			if got := len(m.appliedManifestWorks()); got != 2 {
				t.Errorf("%d AppliedManifestWorks, want the old one and the new one", got)
			}
			left := len(moved)
			if cured {
				stopAgent()
				m.agentAt(1, hubHash(m.brokers[0].Addr))
				m.awaitOnly(1)
				left = 0
			}
			m.deleteWork()
			if got := m.objects(); len(got) != left {
				t.Errorf("the deletion left %v, want %d objects", got, left)
			}
		})
	}
}

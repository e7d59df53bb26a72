// Package upgrade starts today's programs on the files that an earlier version left.
package upgrade

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

var topics = wire.Topics{SourceEvents: "sources/ops/clusters/+/sourceevents", AgentEvents: "sources/ops/clusters/+/agentevents"}

// TestFirstFiles: broker, agent and SDK go on with the files of the first version, which knew neither
// source identities, content hashes, sessions nor sealed data. The agent knows its works while no
// source runs, the broker sends the change of web-0 that it has queued, or without a file of the broker the source, and nothing
// is deleted or created again.
func TestFirstFiles(t *testing.T) {
	t.Run("with the broker's", func(t *testing.T) { testFirstFiles(t, "2") })
	t.Run("without the broker's", func(t *testing.T) { testFirstFiles(t, "1") })
}

// testFirstFiles takes what web-0 has before a source runs.
func testFirstFiles(t *testing.T, value string) {
	dir := t.TempDir()
	kit.NoError(t, os.CopyFS(dir, os.DirFS("testdata/first")))
	if value == "2" {
		justLeft(t, filepath.Join(dir, "broker", "broker.db"))
	} else {
		kit.NoError(t, os.RemoveAll(filepath.Join(dir, "broker")))
	}
	w := world.New(t, world.Options{Spokes: []*controlplane.Plane{plane}, Source: "ops", Clusters: []wire.ClusterName{"cluster1"}, Topics: topics})
	w.StartBroker(broker.Config{DataDir: filepath.Join(dir, "broker")})
	w.StartAgent(0, func(c *agent.Config) {
		c.ClientID, c.AgentID, c.BrokerHost, c.StateDir = "cluster1-client", "agent1", "broker.example.com:8883", filepath.Join(dir, "agent")
	})
	holds(t, map[string]string{"web-0": value, "web-1": "1", "web-2": "1"})
	before := uids(t)

	ops := w.StartSDK("ops", func(c *source.Config) {
		c.Topics, c.StateFile, c.Transport = topics, filepath.Join(dir, "source.db"), w.Transport("ops", "ops-client", topics)
	})
	holds(t, map[string]string{"web-0": "2", "web-1": "1", "web-2": "1"})
	kit.Eventually(t, "all works are applied at their generations", func() error {
		list, err := ops.ManifestWorks("cluster1").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, work := range list.Items {
			applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
			if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != work.Generation || work.Labels["app"] != "web" {
				return fmt.Errorf("%s, generation %d, has %+v", work.Name, work.Generation, work.Status.Conditions)
			}
		}
		if len(list.Items) != 3 {
			return fmt.Errorf("there are %d works", len(list.Items))
		}
		return nil
	})
	if after := uids(t); !maps.Equal(before, after) {
		t.Errorf("objects were created again: %v, before %v", after, before)
	}
	records, err := workclient.NewForConfigOrDie(plane.REST()).WorkV1().AppliedManifestWorks().List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	for _, r := range records.Items {
		if r.DeletionTimestamp != nil {
			t.Errorf("AppliedManifestWork %s is being deleted", r.Name)
		}
	}
	if len(records.Items) != 3 {
		t.Errorf("there are %d AppliedManifestWorks", len(records.Items))
	}
	if lines := ops.Log.Lines("level=ERROR"); len(lines) > 0 {
		t.Errorf("the source logs %q", lines)
	}
	for name := range before {
		kit.NoError(t, ops.ManifestWorks("cluster1").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	kit.True(t, "the cluster has nothing of them", func() bool { return len(uids(t)) == 0 })
}

// justLeft has the clients of the sessions in a broker's file leave now: they expire a day after that.
func justLeft(t *testing.T, file string) {
	t.Helper()
	db, err := bbolt.Open(file, 0o600, nil)
	kit.NoError(t, err)
	left, now := regexp.MustCompile(`"left":\d+`), fmt.Appendf(nil, `"left":%d`, time.Now().Unix())
	kit.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		sessions, changed := tx.Bucket([]byte("sessions")), map[string][]byte{}
		err := sessions.ForEach(func(id, session []byte) error {
			changed[string(id)] = left.ReplaceAll(session, now)
			return nil
		})
		for id, session := range changed {
			err = errors.Join(err, sessions.Put([]byte(id), session))
		}
		return err
	}))
	kit.NoError(t, db.Close())
}

// holds waits until the ConfigMaps of the works have these values.
func holds(t *testing.T, want map[string]string) {
	t.Helper()
	configMaps := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().ConfigMaps("default")
	kit.Eventually(t, fmt.Sprintf("the cluster holds %v", want), func() error {
		for name, value := range want {
			c, err := configMaps.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if c.Data["k"] != value {
				return fmt.Errorf("%s has %v", name, c.Data)
			}
		}
		return nil
	})
}

// uids returns those of the ConfigMaps of the works.
func uids(t *testing.T) map[string]string {
	t.Helper()
	list, err := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	found := map[string]string{}
	for _, c := range list.Items {
		if c.Name != "kube-root-ca.crt" {
			found[c.Name] = string(c.UID)
		}
	}
	return found
}

package agent_test

import (
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// replicas are two replicas of an agent, of which one at a time leads, each with its own directory.
type replicas struct {
	*fixture
	works  workclientv1.ManifestWorkInterface
	dirs   [2]string
	values func() []string // of all ConfigMaps that were written since the last term began
}

// lead ends the agent that runs, and begins a term of replica n.
func (r *replicas) lead(n int, term int32) {
	r.Helper()
	if r.stop != nil {
		r.stop()
	}
	r.values = r.watchValues()
	r.agent(func(c *agent.Config) {
		c.StateDir, c.Term = r.dirs[n], &agent.Term{Lease: "lease", Transitions: term}
	})
}

// watchValues watches ConfigMaps until the end of the test, and returns the values that were
// written, as name=value.
func (r *replicas) watchValues() func() []string {
	r.Helper()
	list, err := r.cluster.CoreV1().ConfigMaps(r.namespace).List(r.Context(), metav1.ListOptions{})
	kit.NoError(r, err)
	watching, err := r.cluster.CoreV1().ConfigMaps(r.namespace).Watch(r.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	kit.NoError(r, err)
	var mu sync.Mutex
	var values []string
	go func() {
		for event := range watching.ResultChan() {
			if c, ok := event.Object.(*corev1.ConfigMap); ok && event.Type != "DELETED" {
				mu.Lock()
				values = append(values, c.Name+"="+c.Data["k"])
				mu.Unlock()
			}
		}
	}()
	r.Cleanup(watching.Stop)
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), values...)
	}
}

// TestStandbyWithOldState: replica 0 leads again after replica 1 has changed one work and deleted
// another. Its state takes neither back, with the broker reachable or not.
func TestStandbyWithOldState(t *testing.T) {
	for name, away := range map[string]bool{"with the broker": false, "without the broker": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := &replicas{fixture: w, works: w.source("hub1"), dirs: [2]string{t.TempDir(), t.TempDir()}}
			r.lead(0, 1)
			w.deploy(r.works, "changed", configMap("changed", "1"))
			w.deploy(r.works, "gone", configMap("gone", "1"))
			r.lead(1, 2)
			w.change(r.works, "changed", configMap("changed", "2"))
			w.Is(r.works, "changed", "Applied=True", "Available=True")
			w.remove(r.works, "gone")
			w.stop()
			w.stop = nil
			if away {
				w.Memory.Cut(cluster + "-agent")
			}
			r.lead(0, 3)
			if away {
				time.Sleep(time.Second) // time to do what must not be done
				w.Memory.Restore(cluster + "-agent")
			}
			w.change(r.works, "changed", configMap("changed", "3"))
			w.Is(r.works, "changed", "Applied=True", "Available=True")
			w.data("changed", "3")
			for _, written := range r.values() {
				if written != "changed=2" && written != "changed=3" {
					t.Errorf("replica 0 wrote %s", written)
				}
			}
			w.remove(r.works, "changed")
		})
	}
}

// TestOwnStateWithoutBroker: nobody else led, so what was deleted while no agent ran is repaired from
// the state, without a broker.
func TestOwnStateWithoutBroker(t *testing.T) {
	w := newWorld(t)
	r := &replicas{fixture: w, works: w.source("hub1"), dirs: [2]string{t.TempDir()}}
	r.lead(0, 1)
	w.deploy(r.works, "own", configMap("own", "1"))
	for _, term := range []int32{2, 2} { // released and acquired again; a crash
		w.stop()
		w.stop = nil
		w.deleteConfigMap("own")
		w.Memory.Cut(cluster + "-agent")
		r.lead(0, term)
		w.data("own", "1")
		w.Memory.Restore(cluster + "-agent")
	}
	w.remove(r.works, "own")
}

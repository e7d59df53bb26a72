package source_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestConverges performs random operations on a source, its agents and their broker, and loses,
// repeats and reorders messages. In the end, each cluster must hold the works of the source, the
// source must have their statuses, and deleted works must be gone.
func TestConverges(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ops.db")
			inWorld(t, func(t *testing.T, w *world) {
				s := newStorm(t, w, seed, path)
				for range 80 {
					s.step()
				}
				s.calm()
				s.check()
			})
		})
	}
}

// storm is one run of TestConverges.
type storm struct {
	*world
	t      *testing.T
	rand   *rand.Rand
	path   string
	client *source.Client
	stop   func()
	agents map[string]*wirekit.Agent

	mu          sync.Mutex
	loseSpecs   int // of the next spec events, acknowledged and lost; guarded by mu
	loseStatus  int // of the next statuses; guarded by mu
	statusesOut bool
}

func newStorm(t *testing.T, w *world, seed uint64, path string) *storm {
	s := &storm{world: w, t: t, rand: rand.New(rand.NewPCG(seed, 0)), path: path, agents: make(map[string]*wirekit.Agent)}
	for _, cluster := range []string{"cluster1", "cluster2"} {
		s.agents[cluster] = w.agent(wire.ClusterName(cluster), func(c *wirekit.AgentConfig) {
			c.Lose = func(m wire.Message) bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				if _, ok := m.(*wire.Spec); !ok || s.loseSpecs == 0 {
					return false
				}
				s.loseSpecs--
				return true
			}
			c.LoseStatus = func(*wire.Status) bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.loseStatus == 0 {
					return false
				}
				s.loseStatus--
				s.statusesOut = true
				return true
			}
		})
	}
	s.restart()
	return s
}

// restart ends the source and starts it again from its state file.
func (s *storm) restart() {
	if s.stop != nil {
		s.stop()
	}
	s.client = s.world.client(func(c *source.Config) { c.StateFile = s.path })
	s.stop = s.run(s.client)
}

func (s *storm) cluster() string { return []string{"cluster1", "cluster2"}[s.rand.IntN(2)] }

func (s *storm) someone() string { return []string{"ops", "cluster1", "cluster2"}[s.rand.IntN(3)] }

// anyUID returns a UID that the agent of cluster holds, or an unknown one.
func (s *storm) anyUID(cluster string) types.UID {
	for uid := range s.agents[cluster].Holds() {
		return uid
	}
	return "unknown"
}

// step performs one random operation.
func (s *storm) step() {
	ctx := s.t.Context()
	cluster, name := s.cluster(), string(rune('a'+s.rand.IntN(5)))
	works := s.client.ManifestWorks(cluster)
	switch n := s.rand.IntN(100); {
	case n < 25:
		_, err := works.Create(ctx, configMap(name, fmt.Sprint(s.rand.Int())), metav1.CreateOptions{})
		s.accept(err, apierrors.IsAlreadyExists)
	case n < 45:
		s.update(ctx, works, name)
	case n < 50:
		_, err := works.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n), metav1.PatchOptions{})
		s.accept(err, apierrors.IsNotFound)
	case n < 63:
		s.accept(works.Delete(ctx, name, metav1.DeleteOptions{}), apierrors.IsNotFound)
	case n < 69:
		s.broker.Cut(s.someone())
	case n < 77:
		s.broker.Restore(s.someone())
	case n < 79:
		s.broker.Forget(s.someone())
	case n < 82:
		s.mu.Lock()
		s.loseSpecs += s.rand.IntN(4)
		s.mu.Unlock()
	case n < 84:
		s.mu.Lock()
		s.loseStatus += s.rand.IntN(3)
		s.mu.Unlock()
	case n < 86:
		s.broker.Duplicate(s.rand.IntN(2))
	case n < 89:
		s.agents[cluster].Replay(ctx, s.rand.IntN(50))
	case n < 91: // a broker delivers again what was not acknowledged, in order
		log := s.agents[cluster].Log()
		for _, m := range log[max(0, len(log)-s.rand.IntN(6)):] {
			s.agents[cluster].Receive(m)
		}
	case n < 93:
		s.agents[cluster].Touch(s.anyUID(cluster), fmt.Sprint(n))
	case n < 94:
		s.agents[cluster].Evict(s.anyUID(cluster))
	case n < 96:
		s.restart()
	default:
		time.Sleep(time.Duration(s.rand.IntN(90)) * time.Second)
	}
	if s.rand.IntN(2) == 0 {
		synctest.Wait()
	}
}

func (s *storm) update(ctx context.Context, works workclient.ManifestWorkInterface, name string) {
	work, err := works.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		s.accept(err, apierrors.IsNotFound)
		return
	}
	work.Spec = specOf(fmt.Sprint(s.rand.Int()))
	_, err = works.Update(ctx, work, metav1.UpdateOptions{})
	s.accept(err, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) })
}

func (s *storm) accept(err error, expected func(error) bool) {
	s.t.Helper()
	if err != nil && !expected(err) {
		s.t.Fatal(err)
	}
}

// calm ends all faults and waits until they are repaired. Lost statuses are only repaired at a
// connect, lost specs also without one.
func (s *storm) calm() {
	s.mu.Lock()
	s.loseSpecs, s.loseStatus = 0, 0
	reconnect := s.statusesOut || s.rand.IntN(2) == 0
	s.mu.Unlock()
	s.broker.Duplicate(0)
	for _, id := range []string{"ops", "cluster1", "cluster2"} {
		s.broker.Restore(id)
	}
	synctest.Wait()
	if reconnect {
		for _, id := range []string{"ops", "cluster1", "cluster2"} {
			s.broker.Cut(id)
			synctest.Wait()
			s.broker.Restore(id)
			synctest.Wait()
		}
		return
	}
	for range 200 {
		for cluster, agent := range s.agents { // a message from the cluster
			_ = agent.Send(s.t.Context(), &wire.Status{UID: "nothing", Generation: 1, Source: "ops", Cluster: wire.ClusterName(cluster), Agent: "a", Action: wire.Update})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
	}
}

// check compares the source with its agents.
func (s *storm) check() {
	s.t.Helper()
	list, err := s.client.ManifestWorks("").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	has := make(map[string]int)
	for _, work := range list.Items {
		has[work.Namespace]++
		agent := s.agents[work.Namespace]
		held, ok := agent.Holds()[work.UID]
		switch {
		case work.DeletionTimestamp != nil:
			s.t.Errorf("%s/%s is still being deleted; its agent holds it: %v", work.Namespace, work.Name, ok)
			continue
		case !ok:
			s.t.Errorf("%s/%s is not on its cluster", work.Namespace, work.Name)
			continue
		case held.Generation != wire.Generation(work.Generation):
			s.t.Errorf("%s/%s is on its cluster at generation %d, not %d", work.Namespace, work.Name, held.Generation, work.Generation)
		case !bytes.Equal(held.Bundle.Manifests[0].Raw, work.Spec.Workload.Manifests[0].Raw):
			s.t.Errorf("%s/%s differs on its cluster", work.Namespace, work.Name)
		}
		status := agent.Status(work.UID)
		want, _ := wire.StatusHash(&status)
		if got, _ := wire.StatusHash(&work.Status); got != want {
			s.t.Errorf("%s/%s: the source has status %+v, its agent %+v", work.Namespace, work.Name, work.Status, status)
		}
	}
	for cluster, agent := range s.agents {
		if n := len(agent.Holds()); n != has[cluster] {
			s.t.Errorf("%s holds %d works, its source has %d", cluster, n, has[cluster])
		}
	}
}

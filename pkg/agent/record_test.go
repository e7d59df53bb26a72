package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// The tests of this file do not run in parallel: an agent also reconciles the AppliedManifestWorks of
// others, and must not be busy with them.

// removeRecords removes the records of the agent, which those of the other tests would read when they start.
func (w *fixture) removeRecords() {
	ctx := context.Background()
	list, err := w.amws.List(ctx, metav1.ListOptions{})
	kit.NoError(w, err)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range list.Items {
		if amw := &list.Items[i]; amw.Spec.AgentID == w.BrokerHost {
			group.Go(func() error {
				_, err := w.amws.Patch(ctx, amw.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				return errors.Join(err, w.amws.Delete(ctx, amw.Name, metav1.DeleteOptions{}))
			})
		}
	}
	kit.NoError(w, group.Wait())
}

func isRecord(r kit.Request) bool { return r.String() == "patch appliedmanifestworks/status" }

// isRecorded waits until the agent has written a record since Take, and that it names objects with
// these names. What is put off is written after a minute.
func (w *fixture) isRecorded(work string, names ...string) {
	w.Helper()
	kit.Within(w, kit.Patience/2, "the record is written", func() error {
		if len(w.requests.All(isRecord)) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	w.names(work, names...)
}

// An agent that has nothing else to do records at once what it has applied, and what it removes.
func TestAppliedIsRecorded(t *testing.T) {
	w := newSerialWorld(t)
	raw := w.rawSource("hub1", func(c *agent.Config) { c.RecordDelay = time.Hour })
	w.requests.Take()
	raw.send(raw.spec("web", "uid-web", 1, held(configMap("a", "1")), configMap("b", "1")), nil)
	raw.reported("uid-web", 1, workv1.WorkApplied)
	w.isRecorded("web", "a", "b")
	if counts := w.requests.Counts(kit.Request.Writes); counts["create configmaps"] != 2 || counts["create appliedmanifestworks"] != 1 || counts["patch appliedmanifestworks/status"] != 1 {
		t.Errorf("a work of 2 objects took %v", counts)
	}
	w.requests.Take()
	raw.send(raw.spec("web", "uid-web", 2, configMap("b", "1"), configMap("c", "1")), nil) // a finalizer keeps a
	raw.reported("uid-web", 2, workv1.WorkApplied)
	w.isRecorded("web", "a", "b", "c")
	w.patch("a", `{"metadata":{"finalizers":null}}`)
	w.names("web", "b", "c")
}

// busily sends spec to an agent with one worker, and calls check when it is applied. Until then other works
// wait for the worker, which waits for them in a request that is is true for.
func (r *rawSource) busily(registry *prometheus.Registry, spec *wire.Spec, is func(kit.Request) bool, check func()) {
	r.Helper()
	reached, own, others := make(chan struct{}, 10), make(chan struct{}), make(chan struct{})
	r.requests.Fail(func(request kit.Request) error {
		switch {
		case is(request):
			reached <- struct{}{}
			<-own // is closed from then on
		case strings.Contains(request.Body, "filler"):
			<-others
		}
		return nil
	})
	goOn, release := sync.OnceFunc(func() { close(own) }), sync.OnceFunc(func() { close(others) })
	r.Cleanup(goOn)
	r.Cleanup(release)
	r.send(spec, nil)
	kit.Receive(r, "the worker gets there", reached)
	var fillers []types.UID
	for i := range 20 { // more than the workers that replace slow ones
		name := fmt.Sprintf("filler-%d-%d", spec.Generation, i)
		r.send(r.spec(name, types.UID(name), 1, configMap(name, "1")), nil)
		fillers = append(fillers, types.UID(name))
	}
	kit.True(r, "works wait", func() bool { return kit.Gather(r, registry).Sum("workwire_agent_queue_length") >= 10 })
	goOn()
	r.reported(spec.UID, spec.Generation, workv1.WorkApplied)
	check()
	r.requests.Fail(nil)
	release()
	for _, uid := range fillers {
		kit.True(r, "the others are applied", func() bool {
			return meta.IsStatusConditionTrue(r.last(string(uid)).Status.Conditions, workv1.WorkApplied)
		})
	}
}

// Under load records wait, but not that of an object that is being removed.
func TestHeldObjectIsRecordedUnderLoad(t *testing.T) {
	w := newSerialWorld(t)
	w.requests.Bodies = true
	registry := prometheus.NewRegistry()
	raw := w.rawSource("hub1", func(c *agent.Config) { c.RecordDelay, c.Workers, c.Registerer = time.Hour, 1, registry })
	raw.busily(registry, raw.spec("web", "uid-web", 1, held(configMap("a", "1")), configMap("b", "1")), func(r kit.Request) bool {
		return r.Verb == "create" && strings.Contains(r.Body, `"name":"a"`)
	}, func() {
		w.applied("web", "waits", func(amw *workv1.AppliedManifestWork) error {
			if listed := amw.Status.AppliedResources; len(listed) > 0 {
				t.Errorf("other works waited, and recorded are %v", listed)
			}
			return nil
		})
	})
	w.requests.Take()
	raw.busily(registry, raw.spec("web", "uid-web", 2, configMap("b", "1")), func(r kit.Request) bool {
		return r.Verb == "delete" && r.Name == "a"
	}, func() { w.isRecorded("web", "a", "b") })
	w.patch("a", `{"metadata":{"finalizers":null}}`)
	w.names("web", "b")
}

// An object that the spec dropped before it was recorded, and that a finalizer holds, is recorded.
func TestHeldObjectDroppedBeforeTheRecord(t *testing.T) {
	w := newSerialWorld(t)
	raw := w.rawSource("hub1")
	w.requests.Fail(func(r kit.Request) error {
		if isRecord(r) {
			return errors.New("not now")
		}
		return nil
	})
	raw.send(raw.spec("web", "uid-web", 1, held(configMap("a", "1")), configMap("b", "1")), nil)
	raw.reported("uid-web", 1, workv1.WorkApplied)
	raw.send(raw.spec("web", "uid-web", 2, configMap("b", "1")), nil)
	raw.reported("uid-web", 2, workv1.WorkApplied)
	w.requests.Fail(nil)
	w.names("web", "a", "b")
	w.patch("a", `{"metadata":{"finalizers":null}}`)
	w.names("web", "b")
}

// Of many works at once, records wait until all are applied, and cost no more than one by one.
func TestManyRecordsWait(t *testing.T) {
	w := newSerialWorld(t)
	w.Cleanup(w.removeRecords) // after the agent
	const many = 400
	registry := prometheus.NewRegistry()
	raw := w.rawSource("hub1", func(c *agent.Config) { c.RecordDelay, c.Registerer = 0, registry })
	came := make(chan struct{})
	answer := sync.OnceFunc(func() { close(came) })
	defer answer()
	w.requests.Fail(func(kit.Request) error { <-came; return nil })
	for i := range many {
		name := fmt.Sprintf("web-%d", i)
		raw.send(raw.spec(name, types.UID(name), 1, configMap(name, "1")), nil)
	}
	kit.True(t, "the works wait", func() bool { return kit.Gather(t, registry).Sum("workwire_agent_queue_length") >= many*3/4 }) // after a second, 80 are under way (pkg/agent/internal/slots)
	w.requests.Fail(nil)
	answer()
	applied := map[types.UID]bool{}
	kit.Eventually(t, "all are applied", func() error {
		for _, message := range raw.peer.Received() {
			if status, ok := message.(*wire.Status); ok && meta.IsStatusConditionTrue(status.Status.Conditions, workv1.WorkApplied) {
				applied[status.UID] = true
			}
		}
		if len(applied) < many {
			return fmt.Errorf("%d are", len(applied))
		}
		return nil
	})
	early := len(w.requests.All(isRecord))
	if t.Logf("%d of %d records before all were applied", early, many); early > many/4 {
		t.Errorf("%d of %d records were written before all works were applied", early, many)
	}
	kit.Eventually(t, "all are recorded", func() error {
		list, err := w.amws.List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		without := 0
		for i := range list.Items {
			if amw := &list.Items[i]; amw.Spec.AgentID == w.BrokerHost && len(amw.Status.AppliedResources) == 0 {
				without++
			}
		}
		if without > 0 {
			return fmt.Errorf("%d are not", without)
		}
		return nil
	})
	if writes := len(w.requests.All(kit.Request.Writes)); writes > 3*many+many/20 {
		t.Errorf("%d works of one object took %d writes: %v", many, writes, w.requests.Counts(kit.Request.Writes))
	}
}

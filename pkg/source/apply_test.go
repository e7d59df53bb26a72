package source_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// inCluster returns a work of cluster1 with one ConfigMap.
func inCluster(name, value string) *workv1.ManifestWork {
	work := configMap(name, value)
	work.Namespace = "cluster1"
	return work
}

// TestApply: a work is created, left alone or changed, and what others have set stays.
func TestApply(t *testing.T) {
	c, ctx := offline(t), t.Context()
	works := c.ManifestWorks("cluster1")
	made := must(t)(c.Apply(ctx, inCluster("w", "x")))
	again := must(t)(c.Apply(ctx, inCluster("w", "x")))
	if again.ResourceVersion != made.ResourceVersion || again.Generation != made.Generation {
		t.Errorf("the same again: %+v", again.ObjectMeta)
	}
	others := again.DeepCopy()
	others.Labels, others.Annotations = map[string]string{"team": "a", "app": "old"}, map[string]string{"note": "theirs"}
	others.Finalizers = append(others.Finalizers, "example.com/theirs")
	must(t)(works.Update(ctx, others, metav1.UpdateOptions{}))

	labelled := inCluster("w", "x")
	labelled.Labels = map[string]string{"app": "new"}
	got := must(t)(c.Apply(ctx, labelled))
	if got.Generation != made.Generation || got.Labels["team"] != "a" || got.Labels["app"] != "new" || got.Annotations["note"] != "theirs" {
		t.Errorf("labels: %+v", got.ObjectMeta)
	}
	if len(got.Finalizers) != 2 {
		t.Errorf("finalizers %v", got.Finalizers)
	}
	if got = must(t)(c.Apply(ctx, inCluster("w", "y"))); got.Generation != made.Generation+1 || got.Labels["app"] != "new" {
		t.Errorf("another spec: %+v", got.ObjectMeta)
	}
	for name, q := range map[string]struct {
		spoil func(*workv1.ManifestWork)
		is    func(error) bool
	}{
		"stale":        {func(w *workv1.ManifestWork) { w.ResourceVersion = made.ResourceVersion }, apierrors.IsConflict},
		"versioned":    {func(w *workv1.ManifestWork) { w.Name, w.ResourceVersion = "new", "1" }, apierrors.IsConflict},
		"other UID":    {func(w *workv1.ManifestWork) { w.UID = "other" }, apierrors.IsConflict},
		"no namespace": {func(w *workv1.ManifestWork) { w.Namespace = "" }, apierrors.IsBadRequest},
		"no name":      {func(w *workv1.ManifestWork) { w.Name, w.GenerateName = "", "g-" }, apierrors.IsBadRequest},
		"invalid":      {func(w *workv1.ManifestWork) { w.Spec.Workload.Manifests = nil }, apierrors.IsInvalid},
		"invalid new":  {func(w *workv1.ManifestWork) { w.Name, w.Spec.Workload.Manifests = "new", nil }, apierrors.IsInvalid},
	} {
		work := inCluster("w", "z")
		q.spoil(work)
		if _, err := c.Apply(ctx, work); !q.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConcurrentApply: concurrent writers of one work lose nothing and see no conflict.
func TestConcurrentApply(t *testing.T) {
	c := offline(t)
	var writers sync.WaitGroup
	for i := range 20 {
		writers.Go(func() {
			work := inCluster("w", "x")
			work.Labels = map[string]string{fmt.Sprintf("writer%d", i): "yes"}
			if _, err := c.Apply(t.Context(), work); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if got := must(t)(c.ManifestWorks("cluster1").Get(t.Context(), "w", metav1.GetOptions{})); len(got.Labels) != 20 {
		t.Errorf("%d labels of 20 writers", len(got.Labels))
	}
}

// TestApplyWhileDeleted: Apply waits until the deleted work of the name is gone, or until its context
// ends.
func TestApplyWhileDeleted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		agent := w.agent("cluster1", func(c *wirekit.AgentConfig) { c.KeepDeleting = true })
		c := w.client()
		w.run(c)
		made := must(t)(c.Apply(t.Context(), inCluster("w", "x")))
		synctest.Wait()
		kit.NoError(t, c.ManifestWorks("cluster1").Delete(t.Context(), "w", metav1.DeleteOptions{}))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Apply(short, inCluster("w", "y")); !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "being deleted") {
			t.Errorf("before it is gone: %v", err)
		}
		other := inCluster("away", "x")
		other.Namespace = "cluster2"
		must(t)(c.Apply(t.Context(), other))
		kit.NoError(t, c.ManifestWorks("cluster2").Delete(t.Context(), "away", metav1.DeleteOptions{}))
		if _, err := c.WaitFor(short, "cluster2", "away", source.Deleted); err == nil || !strings.Contains(err.Error(), "remove the work's finalizers") {
			t.Errorf("a deletion that nobody answers: %v", err)
		}
		if _, err := c.WaitFor(t.Context(), "cluster1", "w", source.Applied); !apierrors.IsConflict(err) {
			t.Errorf("a wait for a work that is being deleted: %v", err)
		}
		var applying sync.WaitGroup
		applying.Go(func() {
			next, err := c.Apply(t.Context(), inCluster("w", "y"))
			if err != nil || next.Generation <= made.Generation+1 || next.DeletionTimestamp != nil {
				t.Errorf("after it is gone: %v %v", next, err)
			}
		})
		waiting, gone := (*workv1.ManifestWork)(nil), error(nil)
		applying.Go(func() { waiting, gone = c.WaitFor(t.Context(), "cluster1", "w", source.Deleted) })
		synctest.Wait()
		agent.Finish(made.UID)
		applying.Wait()
		if gone != nil || waiting == nil || waiting.DeletionTimestamp == nil {
			t.Errorf("the deleted work, replaced since: %v %v", waiting, gone)
		}
	})
}

// TestWaitFor: a wait ends with the condition of the newest generation, or says what it knows.
func TestWaitFor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client()
		stop := w.run(c)
		wait := func(condition source.Condition, limit time.Duration) (*workv1.ManifestWork, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return c.WaitFor(ctx, "cluster1", "w", condition)
		}
		if _, err := wait(source.Applied, time.Second); !apierrors.IsNotFound(err) {
			t.Errorf("no work: %v", err)
		}
		if gone, err := wait(source.Deleted, time.Second); gone != nil || err != nil {
			t.Errorf("gone already: %v %v", gone, err)
		}
		if _, err := wait("Delivered", time.Second); !apierrors.IsBadRequest(err) {
			t.Errorf("another condition: %v", err)
		}
		made := must(t)(c.Apply(t.Context(), inCluster("w", "x")))
		_, err := wait(source.Applied, time.Second)
		var late *source.WaitError
		if !apierrors.IsTimeout(err) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &late) ||
			late.AgentHeard || late.Last != nil || late.Cluster != "cluster1" || late.Generation != made.Generation {
			t.Errorf("without an agent: %+v", err)
		}
		agent := w.agent("cluster1", func(c *wirekit.AgentConfig) {
			c.Status = func(s *wire.Spec) workv1.ManifestWorkStatus {
				missing := metav1.Condition{Type: workv1.WorkAvailable, Status: metav1.ConditionFalse, Reason: "Missing", Message: "c is missing", ObservedGeneration: int64(s.Generation)}
				return workv1.ManifestWorkStatus{
					Conditions: []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: "Done", ObservedGeneration: int64(s.Generation)}, missing},
					ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
						ResourceMeta: workv1.ManifestResourceMeta{Kind: "ConfigMap", Namespace: "default", Name: "c"}, Conditions: []metav1.Condition{missing}}}},
				}
			}
		})
		if got := must(t)(wait(source.Applied, time.Minute)); got.Generation != made.Generation {
			t.Errorf("applied at generation %d", got.Generation)
		}
		_, err = wait(source.Available, time.Second)
		if !errors.As(err, &late) || !late.AgentHeard || late.LastHeard.IsZero() || late.Last == nil || late.Last.Reason != "Missing" ||
			!strings.Contains(err.Error(), "; ConfigMap default/c: c is missing; ") {
			t.Errorf("not available: %+v", err)
		}
		if _, err = wait(source.Ready, time.Second); !errors.As(err, &late) || late.Last == nil || late.Last.Type != workv1.WorkAvailable {
			t.Errorf("not ready: %+v", err)
		}
		for _, present := range []bool{true, false} {
			kit.NoError(t, agent.Send(t.Context(), &wire.Presence{Agent: "cluster1", Cluster: "cluster1", Source: "ops", Session: "1", Present: present}))
		}
		synctest.Wait()
		if _, err = wait(source.Available, time.Second); !errors.As(err, &late) || late.Disconnected.IsZero() || late.NoConnection != nil {
			t.Errorf("the agent is gone: %+v", err)
		}
		w.broker.Cut("ops")
		if _, err = wait(source.Available, time.Second); !errors.As(err, &late) || late.NoConnection == nil || late.NoConnection.Since.IsZero() {
			t.Errorf("the client is gone: %+v", err)
		}
		w.broker.Restore("ops")
		agent.SetSilent(true)
		next := must(t)(c.Apply(t.Context(), inCluster("w", "y")))
		if _, err := wait(source.Applied, time.Second); !errors.As(err, &late) || late.Last.ObservedGeneration != made.Generation {
			t.Errorf("the condition of the generation before counts: %v", err)
		}
		agent.SetSilent(false)
		if got := must(t)(wait(source.Applied, time.Hour)); got.Generation != next.Generation {
			t.Errorf("applied at generation %d", got.Generation)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.WaitFor(ctx, "cluster1", "w", source.Available); !errors.Is(err, context.Canceled) || apierrors.IsTimeout(err) {
			t.Errorf("canceled: %v", err)
		}
		stop()
		if _, err := wait(source.Available, time.Hour); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("after Run: %v", err)
		}
	})
}

// TestWaitBeforeRun: a wait says that Run has not loaded the works.
func TestWaitBeforeRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client(func(config *source.Config) {
			config.Load = func(context.Context) ([]*workv1.ManifestWork, error) { return nil, nil }
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.WaitFor(ctx, "cluster1", "w", source.Applied); !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "Run") {
			t.Error(err)
		}
	})
}

// TestWaitWithoutConnection: a client that the broker refuses, or whose broker is gone, says so and why.
func TestWaitWithoutConnection(t *testing.T) {
	issued, foreign := t.TempDir(), t.TempDir()
	for _, dir := range []string{issued, foreign} {
		manager, err := certificates.New(certificates.ManagerConfig{Dir: dir, Config: certificates.Config{Certificates: []certificates.Certificate{
			{Name: "broker", Role: certificates.Broker, Hosts: []string{"127.0.0.1"}}, {Name: "ops", Role: certificates.Source},
		}}})
		kit.NoError(t, err)
		_, err = manager.Ensure()
		kit.NoError(t, err)
	}
	b := brokertest.Start(t, broker.Config{Listeners: []broker.Listener{{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{
		CertFile: issued + "/broker/tls.crt", KeyFile: issued + "/broker/tls.key", ClientCAFile: issued + "/broker/ca.crt",
	}}}})
	start := func(id, dir string) (*source.Client, *mqtt.Transport) {
		m, err := mqtt.New(mqtt.Config{ClientID: id, Logger: kit.Logger(t), Broker: config.Config{
			BrokerHost: b.Addr, Topics: topics, CA: config.PEM{File: issued + "/ops/ca.crt"},
			ClientCert: config.PEM{File: dir + "/ops/tls.crt"}, ClientKey: config.PEM{File: dir + "/ops/tls.key"},
		}})
		kit.NoError(t, err)
		c, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: m, Logger: kit.Logger(t)})
		kit.NoError(t, err)
		must(t)(c.Apply(t.Context(), inCluster("w", "x")))
		kit.Run(t, id, c.Run)
		return c, m
	}
	late := func(c *source.Client) *source.WaitError {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := c.WaitFor(ctx, "cluster1", "w", source.Applied)
		var late *source.WaitError
		if !errors.As(err, &late) {
			t.Fatal(err)
		}
		return late
	}
	refused, m := start("refused", foreign)
	kit.True(t, "the broker refuses the certificate", func() bool { return m.Failure() != nil })
	if got := late(refused); got.NoConnection == nil || !got.NoConnection.Since.IsZero() ||
		!strings.Contains(got.Error(), "; this client was never connected to the broker: ") || !strings.Contains(got.Error(), "unknown certificate authority") {
		t.Errorf("with a certificate of another authority: %v", got)
	}
	c, m := start("ops", issued)
	kit.True(t, "it is connected", c.Connected)
	if got := late(c); got.NoConnection != nil {
		t.Errorf("connected: %v", got)
	}
	b.Stop()
	kit.True(t, "it has noticed", func() bool { return !c.Connected() && m.Failure() != nil })
	if got := late(c); got.NoConnection == nil || got.NoConnection.Since.IsZero() || got.NoConnection.Err == nil {
		t.Errorf("without the broker: %v", got)
	}
}

// TestApplyOverMQTT applies works and waits for them, with a store and a real broker.
func TestApplyOverMQTT(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: []broker.User{
		{Username: "ops", Password: "secret", Role: acl.Source},
		{Username: "cluster1", Password: "secret", Role: acl.Agent},
	}})
	r := &sourceOverMQTT{t: t, broker: b, path: t.TempDir() + "/ops.db"}
	r.startSource()
	agent := wirekit.NewAgent(wirekit.AgentConfig{Cluster: "cluster1", Source: "ops", Topics: topics, Transport: r.transport("cluster1")})
	kit.Run(t, "agent", agent.Run)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, value := range []string{"one", "two"} {
		r.each(20, func(i int) {
			made, err := r.client.Apply(ctx, inCluster(fmt.Sprintf("w%d", i), value))
			r.check(err)
			got, err := r.client.WaitFor(ctx, "cluster1", fmt.Sprintf("w%d", i), source.Applied)
			if err != nil || got.Generation != made.Generation {
				t.Errorf("work %d: %v", i, err)
			}
		})
	}
	r.each(20, func(i int) {
		r.delete(i)
		made, err := r.client.Apply(ctx, inCluster(fmt.Sprintf("w%d", i), "three"))
		r.check(err)
		if err == nil && made.DeletionTimestamp != nil {
			t.Errorf("work %d is being deleted", i)
		}
		r.delete(i)
		_, err = r.client.WaitFor(ctx, "cluster1", fmt.Sprintf("w%d", i), source.Deleted)
		r.check(err)
	})
	if n := len(agent.Holds()); n != 0 {
		t.Errorf("the agent still holds %d works", n)
	}
}

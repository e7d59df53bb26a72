package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// Topics are those of the tests.
var Topics = wire.Topics{SourceEvents: "sources/ops/clusters/+/sourceevents", AgentEvents: "sources/ops/clusters/+/agentevents"}

// Cluster is the cluster of the tests.
const Cluster = "cluster1"

// StartClient runs a client of the SDK with a store, whose id at the broker is name.
func StartClient(t testing.TB, broker *memory.Broker, name string, s store.Store) (client *source.Client, stop func()) {
	t.Helper()
	client, err := source.New(source.Config{SourceID: Source, Topics: Topics, Transport: broker.Client(name), Store: s, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	return client, kit.Run(t, "source "+name, client.Run)
}

// StartAgent runs a scripted agent.
func StartAgent(t testing.TB, broker *memory.Broker) *wirekit.Agent {
	t.Helper()
	return wirekit.StartAgent(t, wirekit.AgentConfig{Cluster: Cluster, Source: Source, Topics: Topics, Transport: broker.Client(Cluster)})
}

// Work returns a work with a ConfigMap that contains value.
func Work(name, value string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{}
	work.Name = name
	work.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
	work.Spec.Workload.Manifests[0].Raw = fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":{"value":%q}}`, name, value)
	return work
}

// Applied reports whether the agent has reported the newest generation of work as applied.
func Applied(work *workv1.ManifestWork) bool {
	c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == work.Generation
}

// AwaitApplied waits until exactly these works are there, and applied.
func AwaitApplied(t testing.TB, works workclient.ManifestWorkInterface, names ...string) {
	t.Helper()
	kit.Eventually(t, "works are applied", func() error {
		list, err := works.List(context.WithoutCancel(t.Context()), metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := 0
		for i := range list.Items {
			if !Applied(&list.Items[i]) {
				return fmt.Errorf("work %s is not applied: %+v", list.Items[i].Name, list.Items[i].Status.Conditions)
			}
			for _, name := range names {
				if list.Items[i].Name == name {
					found++
				}
			}
		}
		if found != len(names) || len(list.Items) != len(names) {
			return fmt.Errorf("there are %d works, %d of the %d that should be there", len(list.Items), found, len(names))
		}
		return nil
	})
}

// Change gives a work another value.
func Change(ctx context.Context, works workclient.ManifestWorkInterface, name, value string) error {
	for {
		work, err := works.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		work.Spec = Work(name, value).Spec
		if _, err = works.Update(ctx, work, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// Holds checks that the agent holds these works with these values, and no others.
func Holds(t testing.TB, agent *wirekit.Agent, want map[string]string) {
	t.Helper()
	kit.Eventually(t, "the agent holds the works of the source", func() error {
		held := agent.Holds()
		for name, value := range want {
			spec := held[wire.UIDFor(Source, Cluster, name)]
			if spec == nil {
				return fmt.Errorf("work %s is missing", name)
			}
			if got := string(spec.Bundle.Manifests[0].Raw); !strings.Contains(got, fmt.Sprintf(`"value":%q`, value)) {
				return fmt.Errorf("work %s is %s", name, got)
			}
		}
		if len(held) != len(want) {
			return fmt.Errorf("%d works, want %d", len(held), len(want))
		}
		return nil
	})
}

// testLife: works and statuses survive restarts; what was changed while the agent was away is
// delivered by the client that comes next.
func testLife(t *testing.T, at Place) {
	broker := memory.NewBroker()
	agent := StartAgent(t, broker)
	client, stop := StartClient(t, broker, "ops", at.New())
	works, ctx := client.ManifestWorks(Cluster), t.Context()
	for _, name := range []string{"kept", "changed", "deleted"} {
		_, err := works.Create(ctx, Work(name, "one"), metav1.CreateOptions{})
		kit.NoError(t, err)
	}
	AwaitApplied(t, works, "kept", "changed", "deleted")
	broker.Cut(Cluster)
	kit.NoError(t, Change(ctx, works, "changed", "two"))
	kit.NoError(t, works.Delete(ctx, "deleted", metav1.DeleteOptions{}))
	before, err := works.Get(ctx, "kept", metav1.GetOptions{})
	kit.NoError(t, err)
	stop()

	client, stop = StartClient(t, broker, "ops", at.New())
	works = client.ManifestWorks(Cluster)
	after, err := works.Get(ctx, "kept", metav1.GetOptions{})
	kit.NoError(t, err)
	if after.UID != before.UID || after.Generation != before.Generation || after.ResourceVersion != before.ResourceVersion || !Applied(after) {
		t.Errorf("after a restart the work is %+v, before it was %+v", after, before)
	}
	if _, err := works.Create(ctx, Work("kept", "again"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create returns %v", err)
	}
	broker.Restore(Cluster)
	AwaitApplied(t, works, "kept", "changed")
	Holds(t, agent, map[string]string{"kept": "one", "changed": "two"})
	stop()
}

// testRestored: an older copy of the store is put back. What it has is on the cluster again, and no
// resourceVersion repeats: who has seen a later state must list again.
func testRestored(t *testing.T, at Place) {
	broker := memory.NewBroker()
	agent := StartAgent(t, broker)
	client, stop := StartClient(t, broker, "ops", at.New())
	works, ctx := client.ManifestWorks(Cluster), t.Context()
	for _, name := range []string{"kept", "changed", "deleted"} {
		_, err := works.Create(ctx, Work(name, "copy"), metav1.CreateOptions{})
		kit.NoError(t, err)
	}
	AwaitApplied(t, works, "kept", "changed", "deleted")
	stop()
	at.Copy(t)

	client, stop = StartClient(t, broker, "ops", at.New())
	works = client.ManifestWorks(Cluster)
	for _, value := range []string{"later", "last"} {
		kit.NoError(t, Change(ctx, works, "changed", value))
	}
	kit.NoError(t, works.Delete(ctx, "deleted", metav1.DeleteOptions{}))
	AwaitApplied(t, works, "kept", "changed")
	list, err := works.List(ctx, metav1.ListOptions{})
	kit.NoError(t, err)
	stop()
	at.Restore(t)

	client, stop = StartClient(t, broker, "ops", at.New())
	works = client.ManifestWorks(Cluster)
	broker.Cut(Cluster) // the agent asks for its specs when it connects
	broker.Restore(Cluster)
	AwaitApplied(t, works, "kept", "changed", "deleted")
	Holds(t, agent, map[string]string{"kept": "copy", "changed": "copy", "deleted": "copy"})
	if _, err := works.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch that goes on after the state that was lost: %v", err)
	}
	kit.NoError(t, Change(ctx, works, "changed", "again"))
	AwaitApplied(t, works, "kept", "changed", "deleted")
	Holds(t, agent, map[string]string{"kept": "copy", "changed": "again", "deleted": "copy"})
	stop()
}

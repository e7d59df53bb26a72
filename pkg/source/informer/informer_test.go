package informer_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/listers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/informer"
	"github.com/workwire/workwire/pkg/source/sourcetest"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestController: a controller of the usual kind, with a queue and a lister, gives every work that is
// applied a label, and sees its own changes, and deletions.
func TestController(t *testing.T) {
	network, topics := memory.NewBroker(), sourcetest.Topics("ops")
	client, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: network.Client("ops"), Logger: slog.New(slog.DiscardHandler)})
	kit.NoError(t, err)
	kit.Run(t, "source", client.Run)
	for _, cluster := range []wire.ClusterName{"cluster1", "cluster2"} {
		agent, err := sourcetest.NewAgent(sourcetest.AgentConfig{Cluster: cluster, Source: "ops", Topics: topics, Transport: network.Client(string(cluster))})
		kit.NoError(t, err)
		kit.Run(t, "agent", agent.Run)
	}

	const byLabel = "applied"
	works := informer.New(client, metav1.NamespaceAll, 0, cache.Indexers{byLabel: func(object any) ([]string, error) {
		return []string{object.(*workv1.ManifestWork).Labels[byLabel]}, nil
	}})
	lister := listers.New[*workv1.ManifestWork](works.GetIndexer(), workv1.Resource("manifestworks"))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	enqueue := func(object any) {
		if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
			queue.Add(name)
		}
	}
	_, err = works.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, now any) { enqueue(now) }, DeleteFunc: enqueue})
	kit.NoError(t, err)
	kit.Run(t, "informer", func(ctx context.Context) error { works.RunWithContext(ctx); return nil })
	reconcile := func(ctx context.Context, name cache.ObjectName) error {
		work, err := listers.NewNamespaced(lister, name.Namespace).Get(name.Name)
		if err != nil || !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) || work.Labels[byLabel] != "" {
			return nil // gone, not yet, or done
		}
		work = work.DeepCopy()
		metav1.SetMetaDataLabel(&work.ObjectMeta, byLabel, "yes")
		_, err = client.ManifestWorks(name.Namespace).Update(ctx, work, metav1.UpdateOptions{})
		return err
	}
	kit.Run(t, "controller", func(ctx context.Context) error {
		context.AfterFunc(ctx, queue.ShutDown)
		for {
			name, shutdown := queue.Get()
			if shutdown {
				return nil
			}
			if reconcile(ctx, name) != nil {
				queue.AddRateLimited(name)
			}
			queue.Done(name)
		}
	})

	for i := range 20 {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("cluster%d", 1+i%2), Name: fmt.Sprintf("w%d", i)}}
		work.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
		work.Spec.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"c"}}`)
		_, err := client.Apply(t.Context(), work)
		kit.NoError(t, err)
	}
	kit.NoError(t, client.ManifestWorks("cluster1").Delete(t.Context(), "w0", metav1.DeleteOptions{}))
	kit.Eventually(t, "every work that is left is labelled", func() error {
		labelled, err := works.GetIndexer().ByIndex(byLabel, "yes")
		if err != nil || len(labelled) != 19 || len(works.GetIndexer().List()) != 19 {
			return fmt.Errorf("%d of %d works are labelled, %w", len(labelled), len(works.GetIndexer().List()), err)
		}
		return nil
	})
}

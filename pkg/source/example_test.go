package source_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// A program delivers a ConfigMap to a cluster, waits until its agent has applied it, and deletes it
// again. The broker in this example is in memory; package mqtt connects to a real one.
func Example() {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	topics := wire.Topics{
		SourceEvents: "sources/ops/clusters/+/sourceevents",
		AgentEvents:  "sources/ops/clusters/+/agentevents",
	}
	broker := memory.NewBroker()
	client, err := source.New(source.Config{
		SourceID:  "ops",
		Topics:    topics,
		Transport: broker.Client("ops"),
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	agent := wirekit.NewAgent(wirekit.AgentConfig{Cluster: "cluster1", Source: "ops", Topics: topics, Transport: broker.Client("agent")})
	running.Go(func() { _ = client.Run(ctx) })
	running.Go(func() { _ = agent.Run(ctx) })

	works := client.ManifestWorks("cluster1")
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	work.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
	work.Spec.Workload.Manifests[0].Raw = []byte(`{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": {"namespace": "default", "name": "settings"},
		"data": {"colour": "blue"}
	}`)
	work, err = works.Create(ctx, work, metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}

	changes, err := works.Watch(ctx, metav1.ListOptions{ResourceVersion: work.ResourceVersion})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		work, ok := change.Object.(*workv1.ManifestWork)
		if ok && meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) {
			fmt.Println(work.Name, "is applied")
			break
		}
	}

	if err := works.Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	for change := range changes.ResultChan() {
		if change.Type == "DELETED" {
			fmt.Println("settings is gone from the cluster")
			break
		}
	}
	// Output:
	// settings is applied
	// settings is gone from the cluster
}

package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/sourcetest"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
)

// A program delivers a ConfigMap to a cluster, waits until its agent has applied it, and deletes it
// again. The broker in this example is in memory; package mqtt connects to a real one.
func Example() {
	client, stop := startWithAgents("cluster1")
	defer stop()
	ctx := context.Background()

	works := client.ManifestWorks("cluster1")
	work, err := works.Create(ctx, workOf("settings", `{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": {"namespace": "default", "name": "settings"},
		"data": {"colour": "blue"}
	}`), metav1.CreateOptions{})
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
		if change.Type == watch.Deleted {
			fmt.Println("settings is gone from the cluster")
			break
		}
	}
	// Output:
	// settings is applied
	// settings is gone from the cluster
}

// A program states what it wants, however often it runs, and waits until the agent has applied it.
func Example_applyAndWait() {
	client, stop := startWithAgents("cluster1")
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	work := workOf("settings", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "settings"}}`)
	work.Namespace = "cluster1"
	if _, err := client.Apply(ctx, work); err != nil {
		fmt.Println(err)
		return
	}
	_, err := client.WaitFor(ctx, "cluster1", "settings", source.Applied)
	if late := (*source.WaitError)(nil); errors.As(err, &late) && !late.AgentHeard {
		fmt.Println("no agent of", late.Cluster, "has been heard")
	}
	fmt.Println(err)
	// Output:
	// <nil>
}

// A program waits until the pods of a Deployment run: the work asks its agent to report that.
func Example_waitUntilReady() {
	client, stop := startWithAgents("cluster1")
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	work := workOf("web", `{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
		"spec": {
			"selector": {"matchLabels": {"app": "web"}},
			"template": {
				"metadata": {"labels": {"app": "web"}},
				"spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1"}]}
			}
		}
	}`)
	work.Namespace = "cluster1"
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	if _, err := client.Apply(ctx, work); err != nil {
		fmt.Println(err)
		return
	}
	_, err := client.WaitFor(ctx, "cluster1", "web", source.Ready)
	fmt.Println(err)
	// Output:
	// <nil>
}

// A program tests its source without clusters: the broker is in memory, and the test says what the
// agent reports.
func Example_test() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	broker, topics := memory.NewBroker(), sourcetest.Topics("ops")
	client, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: broker.Client("ops"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	agent, err := sourcetest.NewAgent(sourcetest.AgentConfig{
		Cluster: "cluster1", Source: "ops", Topics: topics, Transport: broker.Client("cluster1"),
		Status: func(*workv1.ManifestWork) workv1.ManifestWorkStatus {
			return sourcetest.Failed("AppliedManifestWorkFailed", "namespaces \"shop\" not found")
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	running.Go(func() { _ = client.Run(ctx) })
	running.Go(func() { _ = agent.Run(ctx) })

	works := client.ManifestWorks("cluster1")
	if _, err := works.Create(ctx, workOf("shop", `{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "settings"}
	}`), metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	changes, err := works.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		work, ok := change.Object.(*workv1.ManifestWork)
		if !ok {
			continue
		}
		if c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); c != nil {
			fmt.Println(c.Status, c.Message)
			break
		}
	}
	// Output:
	// False namespaces "shop" not found
}

// A program changes a work that others change too: it reads again and tries again when its change
// conflicts.
func Example_retry() {
	client, stop := startWithAgents("cluster1")
	defer stop()
	ctx, works := context.Background(), client.ManifestWorks("cluster1")
	if _, err := works.Create(ctx, workOf("settings", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "settings"}}`),
		metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
		return
	}

	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		work, err := works.Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return err
		}
		metav1.SetMetaDataLabel(&work.ObjectMeta, "team", "shop")
		_, err = works.Update(ctx, work, metav1.UpdateOptions{})
		return err
	})
	fmt.Println(err)
	// Output:
	// <nil>
}

// A program brings a work to many clusters, and follows all of them with one watch.
func Example_manyClusters() {
	clusters := []string{"cluster1", "cluster2", "cluster3"}
	client, stop := startWithAgents(clusters...)
	defer stop()
	ctx := context.Background()

	all := client.ManifestWorks(metav1.NamespaceAll)
	changes, err := all.Watch(ctx, metav1.ListOptions{LabelSelector: "app=agent-settings"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer changes.Stop()
	var group errgroup.Group
	group.SetLimit(32) // callers at the same time share commits to the store
	for _, cluster := range clusters {
		group.Go(func() error {
			work := workOf("settings", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "settings"}}`)
			work.Labels = map[string]string{"app": "agent-settings"}
			_, err := client.ManifestWorks(cluster).Create(ctx, work, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		fmt.Println(err)
		return
	}
	applied := map[string]bool{}
	for change := range changes.ResultChan() {
		work, ok := change.Object.(*workv1.ManifestWork)
		if ok && meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) {
			applied[work.Namespace] = true
		}
		if len(applied) == len(clusters) {
			break
		}
	}
	fmt.Println("applied on", len(applied), "clusters")
	// Output:
	// applied on 3 clusters
}

// Manifests that are too large for one work are spread over several.
func Example_bigWorks() {
	var manifests []workv1.Manifest
	for i := range 1000 {
		manifests = append(manifests, workOf("", fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "page%d"}, "data": {"text": "%01000d"}}`, i, 0,
		)).Spec.Workload.Manifests...)
	}

	const most = 400_000 // bytes of manifests in a work; agents refuse more than 512,000
	var works []*workv1.ManifestWork
	size := most
	for _, manifest := range manifests {
		if size+len(manifest.Raw) > most {
			works = append(works, &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pages-%d", len(works))}})
			size = 0
		}
		last := &works[len(works)-1].Spec.Workload
		last.Manifests = append(last.Manifests, manifest)
		size += len(manifest.Raw)
	}
	fmt.Println(len(works), "works")
	// Output:
	// 3 works
}

// The work names a secret, and the cluster fetches it: it is in no event and no store.
func Example_secretsByReference() {
	work := workOf("database", `{
		"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret",
		"metadata": {"namespace": "shop", "name": "database"},
		"spec": {
			"secretStoreRef": {"kind": "ClusterSecretStore", "name": "vault"},
			"target": {"name": "database"},
			"dataFrom": [{"extract": {"key": "shop/database"}}]
		}
	}`)
	text, err := json.Marshal(work.Spec)
	fmt.Println(json.Valid(text), err)
	// Output:
	// true <nil>
}

// workOf returns a work with one manifest.
func workOf(name, manifest string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	work.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
	work.Spec.Workload.Manifests[0].Raw = []byte(manifest)
	return work
}

// startWithAgents runs a source, and agents of clusters, on a broker in memory.
func startWithAgents(clusters ...string) (client *source.Client, stop func()) {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	broker, topics := memory.NewBroker(), sourcetest.Topics("ops")
	client, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: broker.Client("ops"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	running.Go(func() { _ = client.Run(ctx) })
	// What an agent says at its start reaches who is subscribed.
	_ = wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) { return client.Connected(), nil })
	for _, cluster := range clusters {
		agent, err := sourcetest.NewAgent(sourcetest.AgentConfig{
			Cluster: wire.ClusterName(cluster), Source: "ops", Topics: topics, Transport: broker.Client(cluster),
		})
		if err != nil {
			panic(err)
		}
		running.Go(func() { _ = agent.Run(ctx) })
	}
	return client, func() { cancel(); running.Wait() }
}

// A program follows which clusters are connected.
func ExampleClient_Clusters() {
	client, stop := startWithAgents("cluster1")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // ends the watch

	for cluster := range client.Clusters().Watch(ctx) {
		fmt.Println(cluster.Name, cluster.Presence)
		break // without this, until ctx ends
	}
	// The agent of this example announces nothing.

	// Output:
	// cluster1 Unknown
}

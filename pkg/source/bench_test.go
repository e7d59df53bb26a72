package source_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// BenchmarkRoundTrip measures a change of one work, from Update until its status is received, with
// the number of works in the name: the cost must not grow with it.
func BenchmarkRoundTrip(b *testing.B) {
	for _, works := range []int{100, 10_000} {
		b.Run(fmt.Sprint(works), func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			broker := memory.NewBroker()
			client, err := source.New(source.Config{SourceID: "ops", Topics: topics, Transport: broker.Client("ops"), Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			agent := wirekit.NewAgent(wirekit.AgentConfig{Cluster: "cluster1", Source: "ops", Topics: topics, Transport: broker.Client("cluster1")})
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			running.Go(func() { _ = client.Run(ctx) })
			running.Go(func() { _ = agent.Run(ctx) })
			api := client.ManifestWorks("cluster1")
			for i := range works {
				if _, err := api.Create(ctx, configMap(fmt.Sprintf("w%d", i), "x"), metav1.CreateOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			changes, err := api.Watch(ctx, metav1.ListOptions{})
			if err != nil {
				b.Fatal(err)
			}
			appliedWorks := make(map[string]bool)
			for len(appliedWorks) < works {
				if work := next(b, changes); applied(work) {
					appliedWorks[work.Name] = true
				}
			}
			b.ResetTimer()
			for i := range b.N {
				work, err := api.Get(ctx, fmt.Sprintf("w%d", i%works), metav1.GetOptions{})
				if err != nil {
					b.Fatal(err)
				}
				work.Spec = specOf(fmt.Sprint(i))
				if work, err = api.Update(ctx, work, metav1.UpdateOptions{}); err != nil {
					b.Fatal(err)
				}
				for seen := next(b, changes); seen.UID != work.UID || !applied(seen) || seen.Generation < work.Generation; {
					seen = next(b, changes)
				}
			}
		})
	}
}

func next(b *testing.B, changes watch.Interface) *workv1.ManifestWork {
	work, ok := (<-changes.ResultChan()).Object.(*workv1.ManifestWork)
	if !ok {
		b.Fatal("the watch has ended")
	}
	return work
}

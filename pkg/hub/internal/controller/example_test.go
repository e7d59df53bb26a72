package controller_test

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

// A labeler gives every ManagedCluster the label "fleet".
type labeler struct {
	client   versioned.Interface
	clusters *controller.Cache[*clusterv1.ManagedCluster]
	*controller.Controller[types.NamespacedName]
}

func newLabeler(client versioned.Interface, informers *controller.Informers) (*labeler, error) {
	l := &labeler{client: client, clusters: informers.ManagedClusters()}
	var err error
	l.Controller, err = controller.New(controller.Config[types.NamespacedName]{
		Name: "labels", Reconcile: l.reconcile,
		Watches: []controller.Watch{controller.On(l.clusters, func(_, cluster *clusterv1.ManagedCluster) {
			if cluster != nil {
				l.Add(controller.KeyOf(cluster))
			}
		})},
	})
	return l, err
}

func (l *labeler) reconcile(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
	cluster, ok := l.clusters.Latest(key)
	if !ok || cluster.Labels["fleet"] != "" {
		return 0, nil
	}
	written, err := l.client.ClusterV1().ManagedClusters().Patch(ctx, key.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"fleet":"main"}}}`), metav1.PatchOptions{})
	if err != nil {
		return 0, fmt.Errorf("label ManagedCluster %s: %w", key.Name, err)
	}
	l.clusters.Wrote(written)
	return 0, nil
}

// A controller is a reconcile function and the caches that it watches. The hub runs the informers
// and the controller; both end with ctx.
func Example() {
	client := versioned.NewForConfigOrDie(&rest.Config{Host: "https://hub.example.com"})
	informers := controller.NewInformers(controller.InformersConfig{Client: client})
	labels, err := newLabeler(client, informers)
	if err != nil {
		fmt.Println(err)
		return
	}
	group, ctx := errgroup.WithContext(context.Background())
	group.Go(func() error { return informers.Run(ctx) })
	group.Go(func() error { return labels.Run(ctx) })
	fmt.Println(group.Wait())
}

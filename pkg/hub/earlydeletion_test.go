package hub_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
)

// TestClusterDeletedEarly: a ManagedCluster that is deleted before a hub has read all works does not keep its
// cluster from getting works, as any cluster without one.
func TestClusterDeletedEarly(t *testing.T) {
	w := newWorld(t)
	clusters := w.Client().ClusterV1().ManagedClusters()
	_, err := clusters.Create(t.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	readWorks := make(chan struct{})
	r := w.startHub(func(c *hub.Config) {
		c.Controllers = []string{hub.ControllerClusters}
		kit.Intercept(c.REST, func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
			if strings.HasSuffix(request.URL.Path, "/manifestworks") {
				select {
				case <-readWorks:
				case <-request.Context().Done():
				}
			}
			return next.RoundTrip(request)
		})
	})
	kit.True(t, "the hub knows the cluster", func() bool { return r.Metric("workwire_hub_clusters_accepted") > 0 })
	kit.NoError(t, clusters.Delete(t.Context(), w.namespace, metav1.DeleteOptions{}))
	kit.True(t, "the hub knows the cluster no more", func() bool { return r.Metric("workwire_hub_clusters", "state=unregistered") > 0 })
	close(readWorks)
	r.AwaitConnected()
	w.startAgent(nil).AwaitConnected(t)
	w.create("work")
	w.Applied(w.works, "work")
}

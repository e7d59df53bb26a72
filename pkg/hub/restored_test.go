package hub_test

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	restclient "k8s.io/client-go/rest"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// TestRestoredWithoutBump: the resource versions of an API that was restored go on from those of the backup. The hub does not wait
// until they have passed what it has seen.
func TestRestoredWithoutBump(t *testing.T) {
	api := kubeapi.New(
		kubeapi.Kind{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace", Cluster: true},
		kubeapi.Kind{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap"},
		kubeapi.Kind{GroupVersionResource: workv1.SchemeGroupVersion.WithResource("manifestworks"), Kind: "ManifestWork", Status: true},
	)
	config := &restclient.Config{Host: "http://api", Transport: api.Via(kubeapi.Faults{}), QPS: -1, ContentConfig: restclient.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	election := leader.NewOptions("hub")
	election.Disabled = true
	h, err := hub.New(hub.Config{
		REST: config, Source: source, Topics: topics, Transport: memory.NewBroker().Client("hub"), Election: election, Controllers: []string{}, Logger: kit.Logger(t),
	})
	kit.NoError(t, err)
	kit.Run(t, "hub", h.Run)

	works := versioned.NewForConfigOrDie(config).WorkV1().ManifestWorks("cluster1")
	create := func(name string) {
		t.Helper()
		_, err := works.Create(t.Context(), &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		kit.NoError(t, err)
	}
	seen := func(name string) {
		t.Helper()
		kit.Eventually(t, "the hub has seen "+name, func() error {
			work, err := works.Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && len(work.Finalizers) == 0 {
				err = errors.New("it has no finalizer")
			}
			return err
		})
	}
	create("before")
	seen("before")
	backup := api.Backup()
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		create(name)
		seen(name)
	}
	api.Restore(backup, false)
	create("after")
	seen("after")
}

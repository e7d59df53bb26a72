package works

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// newCache returns a cache that holds works, of an API server that only lists them.
func newCache(t *testing.T, held ...*workv1.ManifestWork) (*Cache, *prometheus.Registry) {
	t.Helper()
	list := &workv1.ManifestWorkList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}
	for _, work := range held {
		list.Items = append(list.Items, *work)
	}
	data, err := json.Marshal(list)
	kit.NoError(t, err)
	client := versioned.NewForConfigOrDie(&rest.Config{Transport: kit.RoundTripper(func(r *http.Request) (*http.Response, error) {
		response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}}
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") == "true":
			response.StatusCode, response.Body = http.StatusUnprocessableEntity, http.NoBody
		case query.Get("watch") == "true":
			<-r.Context().Done()
			return nil, r.Context().Err()
		default:
			response.Body = io.NopCloser(bytes.NewReader(data))
		}
		return response, nil
	})})
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: slog.New(slog.DiscardHandler)})
	registry := prometheus.NewRegistry()
	c, err := NewCache(informers, registry)
	kit.NoError(t, err)
	kit.Run(t, "informers", informers.Run)
	if !c.WaitForSync(t.Context()) {
		t.Fatal("not synced")
	}
	return c, registry
}

func work(namespace, name, version string) *workv1.ManifestWork {
	return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: version,
	}}
}

func TestLookups(t *testing.T) {
	labelled := work("c2", "of-set", "4")
	labelled.Labels = map[string]string{workv1.ReplicaSetLabelKey: "ns.set"}
	c, registry := newCache(t, work("c1", "a", "1"), work("c1", "b", "2"), labelled)
	if w, ok := c.ByUID("uid-b"); !ok || w.Name != "b" {
		t.Errorf("ByUID: %v, %t", w, ok)
	}
	if _, ok := c.ByUID("uid-x"); ok {
		t.Error("ByUID of an unknown UID")
	}
	if w, ok := c.Get(types.NamespacedName{Namespace: "c2", Name: "of-set"}); !ok || w.UID != "uid-of-set" {
		t.Errorf("Get: %v, %t", w, ok)
	}
	if _, ok := c.Get(types.NamespacedName{Namespace: "c1", Name: "of-set"}); ok {
		t.Error("Get of another namespace")
	}
	names := map[string]bool{}
	for w := range c.OfCluster("c1") {
		names[w.Name] = true
	}
	if !maps.Equal(names, map[string]bool{"a": true, "b": true}) {
		t.Errorf("OfCluster: %v", names)
	}
	for range c.OfCluster("c1") {
		break // stopping early is allowed
	}
	for range c.OfCluster("nowhere") {
		t.Error("works of a cluster that has none")
	}
	if got := c.OfReplicaSet("ns.set"); len(got) != 1 || got[0].Name != "of-set" {
		t.Errorf("OfReplicaSet: %v", got)
	}
	if got := c.OfReplicaSet(""); len(got) > 0 {
		t.Errorf("works of no replica set: %v", got)
	}
	if got := slices.Sorted(c.Clusters()); !slices.Equal(got, []wire.ClusterName{"c1", "c2"}) {
		t.Errorf("Clusters: %v", got)
	}
	kit.Eventually(t, "all works are counted", func() error { // Len may be behind for a moment
		return testutil.GatherAndCompare(registry, strings.NewReader(
			"# HELP workwire_hub_works ManifestWorks on the hub.\n# TYPE workwire_hub_works gauge\nworkwire_hub_works 3\n"))
	})
}

func TestLatestByUID(t *testing.T) {
	c, _ := newCache(t, work("c", "w", "2"))
	c.Wrote(work("c", "w", "3"))
	if w, ok := c.LatestByUID("uid-w"); !ok || w.ResourceVersion != "3" {
		t.Errorf("after a write: %v, %t", w, ok)
	}
	again := work("c", "w", "4")
	again.UID = "another"
	c.Created(again)
	for _, uid := range []types.UID{"uid-w", "uid-x"} {
		if w, ok := c.LatestByUID(uid); ok {
			t.Errorf("of a work that is gone: %v", w)
		}
	}
}

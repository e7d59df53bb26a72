package works

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// newCache makes a cache that holds works without an API server behind it.
func newCache(t *testing.T, held ...*workv1.ManifestWork) (*Cache, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	c, err := New(Config{Logger: slog.New(slog.DiscardHandler), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	for _, work := range held {
		if err := c.informer.GetIndexer().Add(work); err != nil {
			t.Fatal(err)
		}
	}
	return c, registry
}

func work(namespace, name, version string) *workv1.ManifestWork {
	return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: version,
	}}
}

func TestLookups(t *testing.T) {
	c, registry := newCache(t, work("c1", "a", "1"), work("c1", "b", "2"), work("c2", "c", "3"))
	if w, ok := c.Get("uid-b"); !ok || w.Name != "b" {
		t.Errorf("Get: %v, %t", w, ok)
	}
	if _, ok := c.Get("uid-x"); ok {
		t.Error("Get of an unknown UID")
	}
	if w, ok := c.Named(types.NamespacedName{Namespace: "c2", Name: "c"}); !ok || w.UID != "uid-c" {
		t.Errorf("Named: %v, %t", w, ok)
	}
	if _, ok := c.Named(types.NamespacedName{Namespace: "c1", Name: "c"}); ok {
		t.Error("Named of another namespace")
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
	labelled := work("c2", "of-set", "4")
	labelled.Labels = map[string]string{workv1.ReplicaSetLabelKey: "ns.set"}
	_ = c.informer.GetIndexer().Add(labelled)
	if got := slices.Collect(c.OfReplicaSet("ns.set")); len(got) != 1 || got[0] != labelled {
		t.Errorf("OfReplicaSet: %v", got)
	}
	for range c.OfReplicaSet("") {
		t.Error("works of no replica set")
	}
	_ = c.informer.GetIndexer().Delete(labelled)
	if got := slices.Sorted(c.Clusters()); !slices.Equal(got, []wire.ClusterName{"c1", "c2"}) {
		t.Errorf("Clusters: %v", got)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(
		"# HELP workwire_hub_works ManifestWorks on the hub.\n# TYPE workwire_hub_works gauge\nworkwire_hub_works 3\n")); err != nil {
		t.Error(err)
	}
}

func TestLatestKnowsOwnWritesUntilTheInformerDoes(t *testing.T) {
	first, second, third := work("c", "w", "9"), work("c", "w", "10"), work("c", "w", "11")
	c, _ := newCache(t, first)
	latest := func() *workv1.ManifestWork { w, _ := c.Latest("uid-w"); return w }
	if latest() != first {
		t.Error("without writes")
	}
	c.Wrote(third)
	c.Wrote(second) // an answer that was overtaken
	if latest() != third {
		t.Errorf("after the write: %s", latest().ResourceVersion)
	}
	_ = c.informer.GetIndexer().Update(second)
	c.seen(second, false)
	if latest() != third {
		t.Error("the informer is behind the write")
	}
	caughtUp := third.DeepCopy()
	_ = c.informer.GetIndexer().Update(caughtUp)
	c.seen(caughtUp, false)
	if latest() != caughtUp || len(c.written) > 0 {
		t.Error("the informer has caught up with the write")
	}
	c.Wrote(second) // the informer was faster than the answer
	if len(c.written) > 0 {
		t.Error("an old write is remembered")
	}
	c.Wrote(work("c", "w", "12"))
	_ = c.informer.GetIndexer().Delete(caughtUp)
	c.seen(cache.DeletedFinalStateUnknown{Key: "c/w", Obj: caughtUp}, true)
	if _, ok := c.Latest("uid-w"); ok || len(c.written) > 0 {
		t.Error("a write to a work that is gone is remembered")
	}
	c.Wrote(work("c", "w", "13"))
	if len(c.written) > 0 {
		t.Error("a write to a work that was gone before is remembered")
	}
}

func TestSlim(t *testing.T) {
	w := work("c", "w", "1")
	w.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	w.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "long", "mine": "kept"}
	if _, err := slim(w); err != nil || w.ManagedFields != nil || !maps.Equal(w.Annotations, map[string]string{"mine": "kept"}) {
		t.Errorf("%v, %v", w.ObjectMeta, err)
	}
}

func TestReadyTellsWhatToDo(t *testing.T) {
	resource := workv1.Resource("manifestworks")
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "have not been read yet"},
		{apierrors.NewNotFound(resource, ""), "apply deploy/crds"},
		{apierrors.NewForbidden(resource, "", errors.New("no")), "grant get, list and watch on manifestworks"},
		{errors.New("connection refused"), "connection refused"},
		{apierrors.NewResourceExpired("too old"), "have not been read yet"},
	} {
		cache, _ := newCache(t)
		if c.err != nil {
			cache.failed(t.Context(), nil, c.err)
		}
		if err := cache.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("after %v: %v, want %q", c.err, err, c.want)
		}
	}
}

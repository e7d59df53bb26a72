package controller

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

type works = Cache[*workv1.ManifestWork]

var key = types.NamespacedName{Namespace: "c", Name: "w"}

// newWorks returns a cache without an API server behind it, and the time it goes by.
func newWorks(t *testing.T, held ...*workv1.ManifestWork) (*works, *time.Time) {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := CacheOf(NewInformers(InformersConfig{Client: versioned.NewForConfigOrDie(&rest.Config{}), Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)}),
		workv1.SchemeGroupVersion.WithResource("manifestworks"), &workv1.ManifestWork{},
		Codec[*workv1.ManifestWork]{Hold: func(w *workv1.ManifestWork) any { return &heldWork{key: KeyOf(w), ObjectMeta: w.ObjectMeta} }},
		func(client versioned.Interface) listwatch.Client[*workv1.ManifestWorkList] {
			return client.WorkV1().ManifestWorks("")
		})
	for _, w := range held {
		see(t, c, nil, w)
	}
	return c, &now
}

// see has the informer of c see a change.
func see(t *testing.T, c *works, before, after *workv1.ManifestWork) {
	t.Helper()
	var err error
	if after != nil {
		err = c.informer.GetIndexer().Update(after)
	} else {
		err = c.informer.GetIndexer().Delete(before)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.forget(stateOfWork(before), stateOfWork(after))
}

// stateOfWork returns the state of a work, none for nil.
func stateOfWork(w *workv1.ManifestWork) heldObject {
	if w == nil {
		return heldObject{}
	}
	return heldObjectOf(w)
}

func work(uid, version string) *workv1.ManifestWork {
	return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: "w", UID: types.UID(uid), ResourceVersion: version}}
}

// checkLatest compares the latest state with a resource version, "" standing for none, in each way
// to read it.
func checkLatest(t *testing.T, c *works, when, want string) {
	t.Helper()
	got := ""
	if w, ok := c.Latest(key); ok {
		got = w.ResourceVersion
	}
	listed := ""
	for _, w := range c.LatestList(cache.NamespaceIndex, "c") {
		listed += w.ResourceVersion
	}
	if got != want || listed != want {
		t.Errorf("%s: Latest %q, LatestList %q, want %q", when, got, listed, want)
	}
}

func TestUpdatesAreKnownUntilTheInformerCatchesUp(t *testing.T) {
	c, _ := newWorks(t, work("a", "9"))
	checkLatest(t, c, "without writes", "9")
	c.Wrote(work("a", "11"))
	c.Wrote(work("a", "10"))
	checkLatest(t, c, "after a write and an older answer", "11")
	see(t, c, work("a", "9"), work("a", "10"))
	checkLatest(t, c, "while the informer is behind", "11")
	see(t, c, work("a", "10"), work("a", "12"))
	checkLatest(t, c, "when the informer has caught up", "12")
	c.Wrote(work("a", "11"))
	checkLatest(t, c, "after an answer that the informer was faster than", "12")
	c.Wrote(work("a", "14"))
	see(t, c, work("a", "12"), work("a", "11"))
	checkLatest(t, c, "after the API server was restored from a backup", "11")
	c.Wrote(work("a", "13"))
	see(t, c, work("a", "11"), nil)
	checkLatest(t, c, "when the object is gone", "")
	c.Wrote(work("a", "14"))
	checkLatest(t, c, "after a write to an object that is gone", "")
	if len(c.written) > 0 {
		t.Errorf("%d writes are kept", len(c.written))
	}
}

func TestCreationsAreKnownUntilTheyExpire(t *testing.T) {
	c, now := newWorks(t)
	c.Created(work("a", "1"))
	c.Wrote(work("a", "2"))
	checkLatest(t, c, "after create and update", "2")
	see(t, c, nil, work("a", "1"))
	checkLatest(t, c, "when the informer sees the creation", "2")
	see(t, c, work("a", "1"), nil)
	checkLatest(t, c, "when it is deleted", "")

	c.Created(work("b", "5"))
	*now = now.Add(WriteTimeout - 1)
	checkLatest(t, c, "just before it expires", "5")
	*now = now.Add(1)
	checkLatest(t, c, "when it expires", "")
	c.Created(work("c", "6"))
	c.Deleted(work("c", "6"))
	checkLatest(t, c, "when it is deleted here at once", "")
	if len(c.written) != 1 {
		t.Errorf("%d writes are kept, want 1", len(c.written))
	}
}

func TestDeletionsAreKnownUntilTheInformerCatchesUp(t *testing.T) {
	c, now := newWorks(t, work("a", "1"))
	c.Deleted(work("a", "1"))
	checkLatest(t, c, "after the deletion", "")
	see(t, c, work("a", "1"), nil)
	see(t, c, nil, work("b", "3"))
	checkLatest(t, c, "when it was created again", "3")
	c.Deleted(work("b", "3"))
	see(t, c, work("b", "3"), work("c", "5"))
	checkLatest(t, c, "when it was replaced while the watch was away", "5")
	c.Deleted(work("c", "5"))
	*now = now.Add(WriteTimeout)
	checkLatest(t, c, "when the deletion never came", "5")
	c.Deleted(work("d", "6"))
	held := work("c", "7")
	held.DeletionTimestamp = &metav1.Time{Time: *now}
	see(t, c, work("c", "5"), held)
	checkLatest(t, c, "while a finalizer holds it", "7")
}

func TestTrim(t *testing.T) {
	c := &clusterv1.ManagedCluster{}
	c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	c.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "long", "mine": "kept"}
	if trim(c); c.ManagedFields != nil || !maps.Equal(c.Annotations, map[string]string{"mine": "kept"}) {
		t.Errorf("%v", c.ObjectMeta)
	}
}

func TestReadyNamesTheCause(t *testing.T) {
	resource := workv1.Resource("manifestworks")
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, "have not been read yet"},
		{apierrors.NewNotFound(resource, ""), "does not serve manifestworks.work.open-cluster-management.io: apply deploy/crds"},
		{apierrors.NewForbidden(resource, "", errors.New("no")), "grant get, list and watch on manifestworks"},
		{errors.New("connection refused"), "connection refused"},
		{apierrors.NewResourceExpired("too old"), "have not been read yet"},
	} {
		c, _ := newWorks(t)
		if test.err != nil {
			c.informers.observeFailure(resource, test.err)
		}
		if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("after %v: %v, want %q", test.err, err, test.want)
		}
	}
}

func TestOneCachePerResource(t *testing.T) {
	i := NewInformers(InformersConfig{Client: versioned.NewForConfigOrDie(&rest.Config{})})
	caches := func() []any {
		return []any{i.Placements(), i.ManagedClusters(), i.PlacementDecisions(), i.ManifestWorkReplicaSets()}
	}
	if first, second := caches(), caches(); !slices.Equal(first, second) {
		t.Error("a resource has two caches")
	}
}

// heldWork is a work that is dear to read: nobody may.
type heldWork struct {
	metav1.ObjectMeta
	key types.NamespacedName
}

func (h *heldWork) Key() types.NamespacedName    { return h.key }
func (h *heldWork) UID() types.UID               { return h.ObjectMeta.UID }
func (h *heldWork) ResourceVersion() string      { return h.ObjectMeta.ResourceVersion }
func (h *heldWork) Object() *workv1.ManifestWork { panic("the work is read") }

// readWork is a work that has a caller do something when it is read.
type readWork struct {
	heldWork
	read func()
}

func (r *readWork) Object() *workv1.ManifestWork {
	r.read()
	return &workv1.ManifestWork{ObjectMeta: r.ObjectMeta}
}

// TestLatestListWhileTheInformerCatchesUp: a work that was created here is in the list, also if the informer shows it just after it was listed.
func TestLatestListWhileTheInformerCatchesUp(t *testing.T) {
	c, _ := newWorks(t)
	created := work("b", "2")
	created.Name = "created"
	caughtUp := make(chan struct{})
	first := work("a", "1")
	held := &readWork{heldWork: heldWork{key: KeyOf(first), ObjectMeta: first.ObjectMeta}, read: sync.OnceFunc(func() {
		go func() {
			defer close(caughtUp)
			see(t, c, nil, created)
		}()
		select {
		case <-caughtUp:
		case <-time.After(50 * time.Millisecond): // it waits for the list
		}
	})}
	if err := c.informer.GetIndexer().Update(held); err != nil {
		t.Fatal(err)
	}
	c.Created(created)
	if list := c.LatestList(cache.NamespaceIndex, "c"); len(list) != 2 {
		t.Errorf("%d works, want 2", len(list))
	}
	<-caughtUp
}

// TestIdentitiesReadNoObject: what comes and goes is counted, and followed, without reading what is held.
func TestIdentitiesReadNoObject(t *testing.T) {
	c, _ := newWorks(t)
	tr := &tracker[*workv1.ManifestWork]{cache: c, deleted: map[types.UID]bool{}}
	object, err := c.hold(work("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := object.(Held[*workv1.ManifestWork]); !ok {
		t.Fatalf("a work is held as %T", object)
	}
	if allocated := testing.AllocsPerRun(100, func() {
		s := heldObjectOf(object)
		c.forget(heldObject{}, s)
		tr.changed(heldObject{}, s)
		c.forget(s, s)
		tr.changed(s, s)
		c.forget(s, heldObject{})
	}); allocated > 0 {
		t.Errorf("%v allocations for the events of a work that nobody has written", allocated)
	}
	c.forget(heldObject{}, heldObjectOf(object))
	if c.Len() != 1 {
		t.Errorf("%d works", c.Len())
	}
	c.forget(heldObjectOf(cache.DeletedFinalStateUnknown{Key: "c/w", Obj: object}), heldObject{})
	if c.Len() != 0 {
		t.Errorf("%d works after the deletion", c.Len())
	}
}

// TestDeletedIsNotChanged: who deletes an object of the cache leaves it to others who read it.
func TestDeletedIsNotChanged(t *testing.T) {
	held := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace, UID: "u", ResourceVersion: "5"}}
	held.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	c, _ := newWorks(t, held)
	c.Deleted(held)
	if len(held.ManagedFields) != 1 {
		t.Error("the object is changed")
	}
}

package source_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// drain returns the events of a watch up to now, as "TYPE namespace/name".
func drain(w watch.Interface) []string {
	var seen []string
	for {
		synctest.Wait()
		select {
		case event, open := <-w.ResultChan():
			switch object := event.Object.(type) {
			case *workv1.ManifestWork:
				seen = append(seen, string(event.Type)+" "+object.Namespace+"/"+object.Name)
			case *metav1.Status:
				seen = append(seen, string(event.Type)+" "+string(object.Reason))
			}
			if !open {
				return append(seen, "closed")
			}
		default:
			return seen
		}
	}
}

func TestWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.agent("cluster1")
		c := w.client()
		stop := w.run(c)
		works := c.ManifestWorks("cluster1")
		ctx := t.Context()
		start := func(namespace string, opts metav1.ListOptions) watch.Interface {
			t.Helper()
			watching, err := c.ManifestWorks(namespace).Watch(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			return watching
		}
		first := must(t)(works.Create(ctx, configMap("a", "x"), metav1.CreateOptions{}))
		synctest.Wait() // it has its status now
		must(t)(c.ManifestWorks("cluster2").Create(ctx, configMap("b", "x"), metav1.CreateOptions{}))
		yes, no := true, false
		notOlder := metav1.ResourceVersionMatchNotOlderThan
		for name, q := range map[string]struct {
			namespace string
			opts      metav1.ListOptions
			want      string
		}{
			"all there is":        {"", metav1.ListOptions{}, "ADDED cluster1/a, ADDED cluster2/b"},
			"any version":         {"", metav1.ListOptions{ResourceVersion: "0"}, "ADDED cluster1/a, ADDED cluster2/b"},
			"of one cluster":      {"cluster2", metav1.ListOptions{}, "ADDED cluster2/b"},
			"since a version":     {"", metav1.ListOptions{ResourceVersion: first.ResourceVersion}, "MODIFIED cluster1/a, ADDED cluster2/b"},
			"of a name":           {"", metav1.ListOptions{FieldSelector: "metadata.name=b"}, "ADDED cluster2/b"},
			"as a streaming list": {"", metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: notOlder, AllowWatchBookmarks: true}, "ADDED cluster1/a, ADDED cluster2/b, BOOKMARK /"},
			"from now on":         {"", metav1.ListOptions{SendInitialEvents: &no, ResourceVersionMatch: notOlder}, ""},
		} {
			watching := start(q.namespace, q.opts)
			if got := strings.Join(drain(watching), ", "); got != q.want {
				t.Errorf("%s: %q, want %q", name, got, q.want)
			}
			watching.Stop()
			watching.Stop()
			if got := drain(watching); !slices.Equal(got, []string{"closed"}) {
				t.Errorf("%s: after Stop: %v", name, got)
			}
		}

		labelled := start("", metav1.ListOptions{LabelSelector: "app=x"})
		all := start("cluster1", metav1.ListOptions{AllowWatchBookmarks: true})
		short := int64(90)
		timed := start("cluster1", metav1.ListOptions{TimeoutSeconds: &short, SendInitialEvents: &no, ResourceVersionMatch: notOlder})
		drain(all)
		patch := func(text string) {
			t.Helper()
			must(t)(works.Patch(ctx, "a", types.MergePatchType, []byte(text), metav1.PatchOptions{}))
		}
		patch(`{"metadata":{"labels":{"app":"x"}}}`)
		patch(`{"metadata":{"annotations":{"n":"1"}}}`)
		patch(`{"metadata":{"labels":{"app":"y"}}}`)
		if got := strings.Join(drain(labelled), ", "); got != "ADDED cluster1/a, MODIFIED cluster1/a, DELETED cluster1/a" {
			t.Errorf("by label: %s", got)
		}
		if got := strings.Join(drain(all), ", "); got != "MODIFIED cluster1/a, MODIFIED cluster1/a, MODIFIED cluster1/a" {
			t.Errorf("all: %s", got)
		}
		if err := works.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(drain(all), ", "); got != "MODIFIED cluster1/a, DELETED cluster1/a" {
			t.Errorf("a deletion: %s", got)
		}
		time.Sleep(61 * time.Second)
		if got := strings.Join(drain(all), ", "); got != "BOOKMARK /" {
			t.Errorf("after a minute: %s", got)
		}
		drain(timed)
		time.Sleep(30 * time.Second)
		if got := drain(timed); !slices.Equal(got, []string{"closed"}) {
			t.Errorf("after its time: %v", got)
		}
		stop()
		if got := drain(all); len(got) == 0 || got[len(got)-1] != "closed" {
			t.Errorf("after Run: %v", got)
		}
		if _, err := works.Watch(ctx, metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("after Run: %v", err)
		}
	})
}

// TestWatchErrors: Watch returns an error for invalid options.
func TestWatchErrors(t *testing.T) {
	works := offline(t).ManifestWorks("cluster1")
	must(t)(works.Create(t.Context(), configMap("a", "x"), metav1.CreateOptions{}))
	yes := true
	for name, q := range map[string]struct {
		opts metav1.ListOptions
		is   func(error) bool
	}{
		"of the future":      {metav1.ListOptions{ResourceVersion: "99"}, apierrors.IsTimeout},
		"no number":          {metav1.ListOptions{ResourceVersion: "x"}, apierrors.IsBadRequest},
		"bad field":          {metav1.ListOptions{FieldSelector: "spec.x=y"}, apierrors.IsBadRequest},
		"streaming any time": {metav1.ListOptions{SendInitialEvents: &yes}, apierrors.IsInvalid},
	} {
		if _, err := works.Watch(t.Context(), q.opts); !q.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSlowWatch: a reader that is too slow receives an Expired error, and does not delay writers.
func TestSlowWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.client()
		w.run(c)
		works := c.ManifestWorks("cluster1")
		work := must(t)(works.Create(t.Context(), configMap("a", "x"), metav1.CreateOptions{}))
		slow, err := works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: work.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		version := work.ResourceVersion
		for i := range 5000 {
			work.Labels = map[string]string{"n": strconv.Itoa(i)}
			work = must(t)(works.Update(t.Context(), work, metav1.UpdateOptions{}))
		}
		seen := drain(slow)
		if n := len(seen); n > 200 || seen[n-1] != "closed" || seen[n-2] != "ERROR Expired" {
			t.Errorf("%d events, the last ones %v", n, seen[max(0, n-3):])
		}
		if _, err := works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version}); !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch since then: %v", err)
		}
		oldest, _ := strconv.Atoi(work.ResourceVersion)
		watching, err := works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: strconv.Itoa(oldest - 4096)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4096 {
			if event := <-watching.ResultChan(); event.Type != watch.Modified {
				t.Fatalf("event %d of the longest possible watch is %s", i, event.Type)
			}
		}
		if more := drain(watching); len(more) != 0 {
			t.Errorf("and then %v", more)
		}
		watching.Stop()
	})
}

// TestInformer: client-go informers work with a source like with an API server, with streaming and
// with plain lists.
func TestInformer(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming=%v", streaming), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.agent("cluster1")
				c := w.client()
				w.run(c)
				works := c.ManifestWorks("")
				must(t)(c.ManifestWorks("cluster1").Create(t.Context(), configMap("before", "x"), metav1.CreateOptions{}))
				streamed := false
				lw := &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
						return works.List(ctx, opts)
					},
					WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
							if !streaming {
								return nil, apierrors.NewBadRequest("no streaming lists here")
							}
							streamed = true
						}
						return works.Watch(ctx, opts)
					},
				}
				informer := cache.NewSharedIndexInformer(lw, &workv1.ManifestWork{}, 0, cache.Indexers{})
				w.start("informer", func(ctx context.Context) error { informer.RunWithContext(ctx); return nil })
				if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
					t.Fatal("the informer does not sync")
				}
				if streamed != streaming {
					t.Errorf("the informer has streamed its list: %v", streamed)
				}
				after := must(t)(c.ManifestWorks("cluster1").Create(t.Context(), configMap("after", "x"), metav1.CreateOptions{}))
				synctest.Wait()
				for _, name := range []string{"cluster1/before", "cluster1/after"} {
					object, ok, err := informer.GetStore().GetByKey(name)
					if !ok || err != nil || !applied(object.(*workv1.ManifestWork)) {
						t.Errorf("%s in the informer: %v %v %v", name, object, ok, err)
					}
				}
				if err := c.ManifestWorks("cluster1").Delete(t.Context(), after.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if _, ok, _ := informer.GetStore().GetByKey("cluster1/after"); ok {
					t.Error("the deleted work is still in the informer")
				}
			})
		})
	}
}

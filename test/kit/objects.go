package kit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Unique returns prefix with a random suffix: a name that no other test, of this or another package,
// gives to its objects.
func Unique(prefix string) string {
	return prefix + "-" + strings.ToLower(rand.Text()[:8])
}

// ListWatcher is the part of a typed or dynamic client that [Await] uses.
type ListWatcher[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Await watches the object called name until want returns true for it, and returns it. want gets nil
// while there is no such object. Await fails the test, with the object as it was last, after
// [Patience].
//
//	kit.Await(t, client.WorkV1().ManifestWorks(cluster), "web", "is gone",
//		func(work *workv1.ManifestWork) bool { return work == nil })
func Await[T any, P interface {
	*T
	runtime.Object
}, L runtime.Object](t testing.TB, client ListWatcher[L], name, what string, want func(P) bool) P {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var last P
	for {
		options := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
		list, err := client.List(ctx, options)
		if err != nil {
			break
		}
		last = nil
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			if accessor, err := meta.Accessor(item); err == nil && accessor.GetName() == name { // a fake client does not select
				last, _ = item.(P)
			}
			return nil
		})
		if want(last) {
			return last
		}
		accessor, err := meta.ListAccessor(list)
		if err != nil {
			t.Fatal(err)
		}
		options.ResourceVersion = accessor.GetResourceVersion()
		if !awaitChange(ctx, t, client, options) {
			break
		}
	}
	text, _ := json.Marshal(last)
	t.Fatalf("%s: %s: not within %v: %s", name, what, Patience, text)
	return nil
}

// awaitChange waits for one event of a watch, or its end. It returns false when ctx ends.
func awaitChange[L runtime.Object](ctx context.Context, t testing.TB, client ListWatcher[L], options metav1.ListOptions) bool {
	t.Helper()
	changes, err := client.Watch(ctx, options)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		t.Fatalf("watch %s: %v", options.FieldSelector, err)
	}
	defer changes.Stop()
	select {
	case <-changes.ResultChan():
		return true
	case <-ctx.Done():
		return false
	}
}

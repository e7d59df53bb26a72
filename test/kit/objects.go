package kit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Unique returns prefix with a random suffix: a name that no other test, of this or another
// package, gives to its objects.
func Unique(prefix string) string {
	return prefix + "-" + strings.ToLower(rand.Text()[:8])
}

// ListWatcher is the part of a typed or dynamic client that [Await] uses.
type ListWatcher[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Object is a pointer to the type of an object.
type Object[T any] interface {
	*T
	runtime.Object
}

// Await watches the object called name until want returns true for it, and returns it. want gets
// nil while there is no such object. Await fails the test, with the last state of the object, after
// [Patience].
//
//	kit.Await(t, client.WorkV1().ManifestWorks(cluster), "web", "is gone",
//		func(work *workv1.ManifestWork) bool { return work == nil })
func Await[T any, P Object[T], L runtime.Object](t testing.TB, client ListWatcher[L], name, what string, want func(P) bool) P {
	t.Helper()
	return AwaitCheck(t, client, name, what, func(object P) error {
		if want(object) {
			return nil
		}
		text, _ := json.Marshal(object)
		return fmt.Errorf("it is %s", text)
	})
}

// AwaitCheck is like [Await] with a check that returns an error until the object is as wanted.
func AwaitCheck[T any, P Object[T], L runtime.Object](t testing.TB, client ListWatcher[L], name, what string, check func(P) error) P {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for {
		object, last, err := follow(ctx, client, name, check)
		switch {
		case ctx.Err() != nil || err != nil:
			t.Fatalf("%s: %s: not within %v: %v", name, what, Patience, errors.Join(last, err))
		case last == nil:
			return object
		}
	}
}

// follow lists and watches an object until check returns nil, or the watch ends. last is the last
// error of check.
func follow[T any, P Object[T], L runtime.Object](ctx context.Context, client ListWatcher[L], name string, check func(P) error) (object P, last, err error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	list, err := client.List(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if called(item, name) {
			object, _ = item.(P)
		}
		return nil
	})
	if last = check(object); last == nil {
		return object, nil, nil
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, last, err
	}
	options.ResourceVersion = accessor.GetResourceVersion()
	changes, err := client.Watch(ctx, options)
	if err != nil {
		return nil, last, err
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, last, ctx.Err()
		case event, open := <-changes.ResultChan():
			if !open || event.Type == watch.Error {
				return nil, last, nil // list again
			}
			if !called(event.Object, name) {
				continue
			}
			object, _ = event.Object.(P)
			if event.Type == watch.Deleted {
				object = nil
			}
			if last = check(object); last == nil {
				return object, nil, nil
			}
		}
	}
}

// called reports whether an object has this name: fake clients do not select by it.
func called(object runtime.Object, name string) bool {
	accessor, err := meta.Accessor(object)
	return err == nil && accessor.GetName() == name
}

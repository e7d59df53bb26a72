package source_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/source/store/file"
)

// heldStore begins no transaction before held is closed.
type heldStore struct {
	store.Store
	held chan struct{}
}

func (s *heldStore) Update(ctx context.Context, after int64, change store.ChangeFunc) error {
	<-s.held
	return s.Store.Update(ctx, after, change)
}

// TestCallersMemory: a call whose context ends while its change is being stored has returned what it was given: the
// caller may change it, and what is stored is what was given.
func TestCallersMemory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := &heldStore{Store: file.New(filepath.Join(t.TempDir(), "ops.db"))}
		c := w.client(func(c *source.Config) { c.Store = s })
		s.held = make(chan struct{})
		close(s.held)
		w.run(c)
		works := c.ManifestWorks("cluster1")
		work, patch, uid := inCluster("w", "one"), []byte(nil), types.UID("other")
		for _, call := range []struct {
			what   string
			do     func(ctx context.Context) error
			change func()
			want   string
		}{
			{"Apply of a new work", func(ctx context.Context) error {
				work.Labels = map[string]string{"a": "new"}
				_, err := c.Apply(ctx, work)
				return err
			}, func() { work.Labels["a"] = "x" }, "new"},
			{"Apply", func(ctx context.Context) error {
				work.Labels = map[string]string{"a": "applied"}
				_, err := c.Apply(ctx, work)
				return err
			}, func() { work.Labels["a"] = "x" }, "applied"},
			{"Patch", func(ctx context.Context) error {
				patch = []byte(`{"metadata":{"labels":{"a":"patched"}}}`)
				_, err := works.Patch(ctx, "w", types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			}, func() { patch[len(patch)-5] = 'x' }, "patched"},
			{"Update", func(ctx context.Context) error {
				work = must(t)(works.Get(t.Context(), "w", metav1.GetOptions{}))
				work.Labels = map[string]string{"a": "updated"}
				_, err := works.Update(ctx, work, metav1.UpdateOptions{})
				return err
			}, func() { work.Labels["a"] = "x" }, "updated"},
			{"Delete", func(ctx context.Context) error {
				return works.Delete(ctx, "w", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			}, func() { uid = must(t)(works.Get(t.Context(), "w", metav1.GetOptions{})).UID }, "updated"},
		} {
			held := make(chan struct{})
			s.held = held
			time.AfterFunc(20*time.Millisecond, func() { close(held) }) // the race detector sees no order between the caller and the transaction
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if err := call.do(ctx); !apierrors.IsTimeout(err) {
				t.Errorf("%s, while the store is held: %v", call.what, err)
			}
			cancel()
			call.change()
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			got := must(t)(works.Get(t.Context(), "w", metav1.GetOptions{}))
			if got.Labels["a"] != call.want || got.DeletionTimestamp != nil {
				t.Errorf("%s has stored %+v, want label %s", call.what, got.ObjectMeta, call.want)
			}
		}
	})
}

package examples

import (
	"testing"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// A staged work says until when, is applied when the annotation says that it has come, and the Job that pulls its image does not wait for it.
func TestStagedAndPulled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	work := w.place(read(t, "order/staged.yaml"))
	if at, err := workv1.ApplyAtOf(work); err != nil || at.End.IsZero() {
		t.Fatalf("%v, %v", at, err)
	}
	work.SetAnnotations(map[string]string{workv1.ApplyAtAnnotationKey: "2126-11-28T22:00:00Z/2126-11-29T02:00:00Z"})
	staged := w.create(work)
	w.until(staged, "is staged", workIs("Applied", "Unknown", "Staged", "1 of 1 manifests are not applied yet. Staged until 2126-11-28T22:00:00Z"))
	w.until(w.apply("order/pull-image.yaml"), "is applied", applied)
}

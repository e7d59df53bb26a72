package applied

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestDueAt(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for _, test := range []struct {
		name      string
		since     float64
		last      float64
		notBefore float64
		want      float64
	}{
		{"quiet since", 0, 0, -1, 1},
		{"others came", 0, 5, -1, 6},
		{"others keep coming", 0, 59.5, -1, 60},
		{"long ago", 0, 100, -1, 60},
		{"failed", 0, 0, 4, 4},
		{"failed before it is due", 0, 5, 2, 6},
		{"failed when it was late", 0, 100, 130, 130},
	} {
		d := &draft{since: at(test.since), notBefore: at(test.notBefore)}
		if got := d.dueAt(at(test.last), time.Second); !got.Equal(at(test.want)) {
			t.Errorf("%s: due after %v, want %v s", test.name, got.Sub(start), test.want)
		}
	}
}

func TestDraftsWaitLongerAfterFailures(t *testing.T) {
	now := time.Now()
	d := &draft{}
	var waits []time.Duration
	for range 12 {
		d.failed(now)
		waits = append(waits, d.notBefore.Sub(now))
	}
	if waits[0] != minDraftDelay || waits[1] != 2*minDraftDelay || waits[11] != maxDraftDelay {
		t.Errorf("waits %v", waits)
	}
}

func TestMayWait(t *testing.T) {
	ref := func(name string) object.Ref {
		return object.Ref{GroupVersionResource: configMaps, Namespace: "shop", Name: name}
	}
	res := func(name string, uid types.UID, digest string) Resource {
		return Resource{Ref: ref(name), UID: uid, FieldsDigest: digest}
	}
	now := metav1.Now()
	a, b := res("a", "1", "U1"), res("b", "2", "U2")
	for _, test := range []struct {
		name     string
		recorded []Resource
		intended []object.Ref
		change   func(*workv1.AppliedManifestWork)
		want     []Resource
		may      bool
	}{
		{"new objects", nil, []object.Ref{ref("a"), ref("b")}, nil, []Resource{a, b}, true},
		{"one more", []Resource{a}, []object.Ref{ref("a"), ref("b")}, nil, []Resource{a, b}, true},
		{"one that was there before it was intended", []Resource{a}, []object.Ref{ref("b")}, nil, []Resource{a, b}, true},
		{"transitions alone", []Resource{a}, nil, nil, []Resource{a}, true},
		{"not intended", nil, []object.Ref{ref("a")}, nil, []Resource{a, b}, false},
		{"another version of it was intended", nil, []object.Ref{{GroupVersionResource: configMaps.GroupResource().WithVersion("v2"), Namespace: "shop", Name: "a"}}, nil, []Resource{a}, true},
		{"no longer there", []Resource{a, b}, []object.Ref{ref("a"), ref("b")}, nil, []Resource{a}, false},
		{"created again", []Resource{a}, []object.Ref{ref("a")}, nil, []Resource{res("a", "3", "U1")}, false},
		{"written with other fields", []Resource{a}, []object.Ref{ref("a")}, nil, []Resource{res("a", "1", "U9")}, false},
		{"being deleted", nil, []object.Ref{ref("a")}, func(w *workv1.AppliedManifestWork) { w.DeletionTimestamp = &now }, []Resource{a}, false},
		{"being evicted", nil, []object.Ref{ref("a")}, func(w *workv1.AppliedManifestWork) { w.Status.EvictionStartTime = &now }, []Resource{a}, false},
		{"intent that cannot be read", nil, []object.Ref{ref("a")}, func(w *workv1.AppliedManifestWork) { w.Annotations[IntentAnnotation] = "{" }, []Resource{a}, false},
	} {
		intent, err := encodeIntent(test.intended)
		if err != nil {
			t.Fatal(err)
		}
		amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{IntentAnnotation: intent}}}
		amw.Status.AppliedResources = statusOf(test.recorded)
		if test.change != nil {
			test.change(amw)
		}
		if got := mayWait(amw, content{list: statusOf(test.want)}); got != test.may {
			t.Errorf("%s: may wait: %v, want %v", test.name, got, test.may)
		}
	}
}

func TestRemoveWaitsForTheWrite(t *testing.T) {
	s := newDrafts(time.Nanosecond)
	s.put("web", "1", content{transitions: "one"}, nil, time.Now().Add(-time.Minute))
	d := s.beginWrite("web", time.Now())
	if d == nil || s.beginWrite("web", time.Now()) != nil {
		t.Fatal("not one write at a time")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.remove(ended, "web", "1"); err == nil {
		t.Error("a draft that is being written was removed")
	}
	// The echo of the write is held back; what came after it is not.
	for _, version := range []string{"7", "9", "8"} {
		if !s.hold("web", version) {
			t.Errorf("version %s is not held", version)
		}
	}
	if s.hold("other", "7") || s.hold("web", "") {
		t.Error("what cannot be the write is held")
	}
	if missed, _ := s.endWrite("web", d, "8", time.Now()); missed != "9" {
		t.Errorf("missed %q", missed)
	}
	if left, err := s.remove(t.Context(), "web", "1"); left != nil || err != nil {
		t.Errorf("%+v is left: %v", left, err)
	}

	s.put("web", "1", content{transitions: "two"}, nil, time.Now().Add(-time.Minute))
	d = s.beginWrite("web", time.Now())
	s.hold("web", "11")
	if missed, failures := s.endWrite("web", d, "", time.Now()); missed != "11" || failures != 1 {
		t.Errorf("missed %q after %d failures", missed, failures)
	}
	if s.beginWrite("web", time.Now()) != nil {
		t.Error("a write that has just failed is repeated at once")
	}
	s.drop("web", "2") // a successor
	if left, err := s.remove(t.Context(), "web", "1"); err != nil || left == nil || left.transitions != "two" {
		t.Errorf("%+v is left after a failure: %v", left, err)
	}
}

func TestDraftOfAPredecessor(t *testing.T) {
	s := newDrafts(time.Second)
	s.put("web", "1", content{transitions: "one"}, nil, time.Now())
	if d, err := s.remove(t.Context(), "web", "2"); d != nil || err != nil {
		t.Errorf("the successor has the draft %+v: %v", d, err)
	}
	if names := s.end(); len(names) > 0 {
		t.Errorf("drafts of %v are left", names)
	}
}

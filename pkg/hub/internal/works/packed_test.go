package works

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// decoded returns a work as a client decodes it.
func decoded(t testing.TB, text string) *workv1.ManifestWork {
	t.Helper()
	work := &workv1.ManifestWork{}
	if err := json.Unmarshal([]byte(text), work); err != nil {
		t.Fatal(err)
	}
	return work
}

// texts are works; the first one makes the dictionaries.
var texts = []string{
	`{"metadata":{"name":"a","uid":"1","labels":{"x":"y"}},"spec":{"workload":{"manifests":[{"kind":"ConfigMap","data":{"n":1.0,"m":[]}}, {"b" : 2,
		"a":"\u003c é"}]},"deleteOption":{"propagationPolicy":"Orphan","ttlSecondsAfterFinished":0}},"status":{"conditions":[{"type":"Applied","status":"True",
		"reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}],"resourceStatus":{"manifests":[{"resourceMeta":{"ordinal":0,"kind":"ConfigMap"},
		"conditions":[{"type":"Applied","status":"False","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}],
		"statusFeedback":{"values":[{"name":"n","fieldValue":{"type":"Integer","integer":3}},{"name":"j","fieldValue":{"type":"JsonRaw","jsonRaw":"{}"}}]}}]}}}`,
	`{"metadata":{"name":"b"},"spec":{"workload":{"manifests":[{}]},"executor":{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"n","name":"s"}}},
		"manifestConfigs":[{"resourceIdentifier":{"group":"apps","resource":"deployments","name":"d","namespace":"n"},"feedbackRules":[{"type":"WellKnownStatus"}],
		"updateStrategy":{"type":"ServerSideApply","serverSideApply":{"force":true}}}]}}`,
	`{"metadata":{"name":"c"},"spec":{}}`,
	`{"metadata":{"name":"d"},"spec":{"workload":{"manifests":[]}},"status":{"resourceStatus":{}}}`,
}

func TestUnpackReturnsWhatWasPacked(t *testing.T) {
	for _, text := range texts {
		want, work := decoded(t, text), decoded(t, text)
		pack(work)
		if contentOf(work) == nil {
			t.Fatalf("not packed: %s", text)
		}
		pack(work)
		held := work.DeepCopy()
		got := Unpack(work)
		if len(want.Spec.Workload.Manifests) == 0 { // the API server stores no difference
			want.Spec.Workload.Manifests = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("unpacked\n%+v\nwant\n%+v", got, want)
		}
		if !reflect.DeepEqual(UnpackStatus(work).Status, want.Status) {
			t.Errorf("status\n%+v\nwant\n%+v", UnpackStatus(work).Status, want.Status)
		}
		if !reflect.DeepEqual(work, held) {
			t.Error("Unpack has changed the packed work")
		}
		if !reflect.DeepEqual(work.ObjectMeta, want.ObjectMeta) || !reflect.DeepEqual(work.Status.Conditions, want.Status.Conditions) ||
			!reflect.DeepEqual(work.Spec.DeleteOption, want.Spec.DeleteOption) {
			t.Errorf("the packed work misses more than manifests: %+v", work)
		}
		if Unpack(want) != want || UnpackStatus(want) != want {
			t.Error("a work that is not packed is copied")
		}
	}
}

func TestPackedWorkCannotBeSent(t *testing.T) {
	work := decoded(t, texts[0])
	pack(work)
	if data, err := json.Marshal(work); !errors.Is(err, errPacked) {
		t.Errorf("encoded: %s, %v", data, err)
	}
}

func TestEqualSpecs(t *testing.T) {
	base := decoded(t, texts[0])
	for _, c := range []struct {
		name   string
		change func(*workv1.ManifestWork)
		equal  bool
	}{
		{"nothing", func(*workv1.ManifestWork) {}, true},
		{"status", func(w *workv1.ManifestWork) { w.Status = workv1.ManifestWorkStatus{} }, true},
		{"labels", func(w *workv1.ManifestWork) { w.Labels = nil }, true},
		{"a space", func(w *workv1.ManifestWork) { w.Spec.Workload.Manifests[1].Raw = []byte(`{"b":2,"a":"< é"}`) }, false},
		{"one more", func(w *workv1.ManifestWork) {
			w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(`{}`)}})
		}, false},
		{"delete option", func(w *workv1.ManifestWork) { w.Spec.DeleteOption.TTLSecondsAfterFinished = ptr.To(int64(1)) }, false},
		{"executor", func(w *workv1.ManifestWork) { w.Spec.Executor = &workv1.ManifestWorkExecutor{} }, false},
		{"configs", func(w *workv1.ManifestWork) { w.Spec.ManifestConfigs = make([]workv1.ManifestConfigOption, 1) }, false},
	} {
		changed := base.DeepCopy()
		c.change(changed)
		for range 4 { // either packed or not
			if got := equalSpecs(base, changed); got != c.equal {
				t.Errorf("%s: equal is %t", c.name, got)
			}
			base, changed = changed, base
			pack(base)
		}
		base = decoded(t, texts[0])
	}
}

func BenchmarkPack(b *testing.B) {
	for b.Loop() {
		work := decoded(b, texts[0])
		pack(work)
	}
}

func BenchmarkUnpack(b *testing.B) {
	work := decoded(b, texts[0])
	pack(work)
	for b.Loop() {
		Unpack(work)
	}
}

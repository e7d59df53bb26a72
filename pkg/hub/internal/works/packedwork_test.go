package works

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// more are works with other heads than those of texts.
var more = []string{
	`{"kind":"ManifestWork","apiVersion":"v1","metadata":{"name":"n","namespace":"c","uid":"u","resourceVersion":"7","generation":3,"creationTimestamp":"2026-01-02T03:04:05Z",
		"deletionTimestamp":"2026-01-02T03:04:06+02:00","deletionGracePeriodSeconds":0,"labels":{"a":"b","c":""},"annotations":{"d":"é\u0000"},
		"finalizers":["f","g"],"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"p","controller":true}],"generateName":"n-"},
		"status":{"conditions":[{"type":"Applied","status":"True","observedGeneration":3,"lastTransitionTime":"2026-01-02T03:04:05Z","reason":"","message":"m"}],
		"delivery":{"generation":3,"acceptedTime":"2026-01-02T03:04:05.123456Z","readyTime":"2026-01-02T03:04:05.000001Z"}}}`,
	`{"metadata":{"name":"n","labels":{},"annotations":{},"finalizers":[]},"status":{"conditions":[],"delivery":{}}}`,
	`{"metadata":{"name":"n","creationTimestamp":null,"generation":-1},"status":{"conditions":[{"type":"T","lastTransitionTime":null}]}}`,
}

func TestHeldWorkIsWhatWasHeld(t *testing.T) {
	for _, text := range append(more, texts...) {
		want := decoded(t, text)
		pack(want)
		w, ok := hold(decoded(t, text)).(*packedWork)
		if !ok {
			t.Errorf("not held: %s", text)
			continue
		}
		forgetRecent(w)
		got := w.Object()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("held\n%+v\nwant\n%+v", got, want)
		}
		m, err := meta.Accessor(w)
		if err != nil || m.GetName() != want.Name || m.GetNamespace() != want.Namespace || m.GetUID() != want.UID || w.UID() != want.UID || m.GetResourceVersion() != want.ResourceVersion {
			t.Errorf("identity %+v, %v", m, err)
		}
	}
}

// forgetRecent makes w forget what it remembers.
func forgetRecent(w *packedWork) {
	for w.recent.Value() != nil {
		runtime.GC()
	}
}

func TestWorkThatCannotBeHeldStaysWhole(t *testing.T) {
	fraction := decoded(t, strings.Replace(more[0], "05Z", "05.5Z", 1))
	utc := decoded(t, more[0])
	utc.CreationTimestamp.Time = time.Unix(0, 0).In(time.FixedZone("x", 3600))
	managed := decoded(t, more[0])
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	for _, work := range []*workv1.ManifestWork{fraction, utc, managed} {
		if got := hold(work); got != any(work) {
			t.Errorf("held: %+v", got)
		}
	}
}

func TestUsersShareAWork(t *testing.T) {
	w := hold(decoded(t, more[0])).(*packedWork)
	first := w.Object()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if w.Object() != first {
				t.Error("a copy")
			}
		})
	}
	group.Wait()
	runtime.KeepAlive(first)
}

// TestWhatIsKeptOfAWorkIsSmall: tables keep the UID and the resource version of works that have
// changed since.
func TestWhatIsKeptOfAWorkIsSmall(t *testing.T) {
	live := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const many, size = 50, 100_000
	content := make([]byte, size)
	holdOne := func(i int) *packedWork {
		_, _ = rand.Read(content)
		work := decoded(t, more[0])
		work.UID, work.ResourceVersion, work.Namespace = types.UID(fmt.Sprint("uid-", i)), fmt.Sprint(i), fmt.Sprint("cluster-", i)
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: kruntime.RawExtension{Raw: content}}}
		return hold(work).(*packedWork)
	}
	var kept []string
	before := live()
	for i := range many {
		w := holdOne(i)
		forgetRecent(w)
		work := w.Object()
		kept = append(kept, string(w.UID()), string(work.UID), work.ResourceVersion, work.Namespace)
	}
	if grown := live() - before; grown > many*size/2 {
		t.Errorf("%d works of %d bytes, of which nothing but names is kept, take %d bytes", many, size, grown)
	}
	runtime.KeepAlive(kept)
}

func TestKnownTextsAreBounded(t *testing.T) {
	var k knownTexts
	for i := range maxKnown + 10 {
		s := fmt.Sprint("text ", i)
		n, ok := k.number(s)
		if ok != (i < maxKnown) || ok && k.text(n) != s {
			t.Fatalf("text %d: %d, %t", i, n, ok)
		}
		if k.canonical(s) != s {
			t.Fatal("not the string")
		}
	}
	if _, ok := k.number(strings.Repeat("x", maxKnownText+1)); ok {
		t.Error("a long text is kept")
	}
	if n, ok := k.number("text 1"); !ok || n != 1 {
		t.Error("a full table has forgotten a text")
	}
}

// FuzzHold holds whatever an API server may send.
func FuzzHold(f *testing.F) {
	for _, text := range append(more, texts...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, work := &workv1.ManifestWork{}, &workv1.ManifestWork{}
		if strings.Contains(strings.ToLower(string(data)), "selflink") { // API servers send none
			return
		}
		if json.Unmarshal(data, whole) != nil || json.Unmarshal(data, work) != nil {
			return
		}
		w, ok := hold(work).(*packedWork)
		if !ok {
			return
		}
		forgetRecent(w)
		want, err := json.Marshal(whole)
		if err != nil {
			return
		}
		got, err := json.Marshal(Unpack(w.Object()))
		if err != nil || string(got) != string(want) {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
	})
}

// TestIdentityCostsNothing: events of works that nobody asks for are followed by their identities.
func TestIdentityCostsNothing(t *testing.T) {
	h := hold(decoded(t, more[0])).(*packedWork)
	forgetRecent(h)
	if allocated := testing.AllocsPerRun(100, func() { _, _, _ = h.Key(), h.UID(), h.ResourceVersion() }); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
	if h.recent.Value() != nil {
		t.Error("the work was read")
	}
}

func TestCodecTrims(t *testing.T) {
	for name, trimmed := range map[string]func(*workv1.ManifestWork) *workv1.ManifestWork{
		"held":    func(w *workv1.ManifestWork) *workv1.ManifestWork { return codec.Hold(w).(*packedWork).Object() },
		"written": func(w *workv1.ManifestWork) *workv1.ManifestWork { codec.Pack(w); return w },
	} {
		w := decoded(t, more[0])
		w.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "long", "mine": "kept"}
		if w = trimmed(w); !maps.Equal(w.Annotations, map[string]string{"mine": "kept"}) || contentOf(w) == nil {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

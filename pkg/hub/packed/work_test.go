package packed

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

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
		Pack(want)
		w, ok := Hold(decoded(t, text)).(*Work)
		if !ok {
			t.Errorf("not held: %s", text)
			continue
		}
		forget(w)
		got := w.Packed()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("held\n%+v\nwant\n%+v", got, want)
		}
		m, err := meta.Accessor(w)
		if err != nil || m.GetName() != want.Name || m.GetNamespace() != want.Namespace || m.GetUID() != want.UID || w.UID() != want.UID || m.GetResourceVersion() != want.ResourceVersion {
			t.Errorf("identity %+v, %v", m, err)
		}
	}
}

// forget makes w forget what it remembers.
func forget(w *Work) {
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
		if got := Hold(work); got != metav1.ObjectMetaAccessor(work) {
			t.Errorf("held: %+v", got)
		}
	}
}

func TestUsersShareAWork(t *testing.T) {
	w := Hold(decoded(t, more[0])).(*Work)
	first := w.Packed()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if w.Packed() != first {
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
	const works, size = 50, 100_000
	content := make([]byte, size)
	hold := func(i int) *Work {
		_, _ = rand.Read(content)
		work := decoded(t, more[0])
		work.UID, work.ResourceVersion, work.Namespace = types.UID(fmt.Sprint("uid-", i)), fmt.Sprint(i), fmt.Sprint("cluster-", i)
		work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: kruntime.RawExtension{Raw: content}}}
		return Hold(work).(*Work)
	}
	var kept []string
	before := live()
	for i := range works {
		w := hold(i)
		forget(w)
		work := w.Packed()
		kept = append(kept, string(w.UID()), string(work.UID), work.ResourceVersion, work.Namespace)
	}
	if grown := live() - before; grown > works*size/2 {
		t.Errorf("%d works of %d bytes, of which nothing but names is kept, take %d bytes", works, size, grown)
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
		w, ok := Hold(work).(*Work)
		if !ok {
			return
		}
		forget(w)
		want, err := json.Marshal(whole)
		if err != nil {
			return
		}
		got, err := json.Marshal(Unpack(w.Packed()))
		if err != nil || string(got) != string(want) {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
	})
}

package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// manifests returns ConfigMaps with these values.
func manifests(values ...string) (list []workv1.Manifest) {
	for i, value := range values {
		raw := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","namespace":"n"},"data":{"k":%q,"n":"12345678901234567890 <&>"}}`, i, value)
		list = append(list, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}})
	}
	return list
}

// randomBundle returns a bundle with few different parts, so that two of them share much.
func randomBundle(r *rand.Rand) *wire.Bundle {
	b := &wire.Bundle{}
	for range 1 + r.IntN(6) {
		value := []string{"a", "b", "ü\u2028", "null", strings.Repeat("m", 300)}[r.IntN(5)]
		b.Manifests = append(b.Manifests, manifests("a", "b", value)[r.IntN(3)])
	}
	for range r.IntN(4) {
		b.ManifestConfigs = append(b.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: []string{"a", "b"}[r.IntN(2)], Namespace: "n"},
		})
	}
	if r.IntN(2) == 0 {
		b.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	}
	if r.IntN(2) == 0 {
		b.Executer = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: "ServiceAccount",
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "n", Name: "e"}}}
	}
	return b
}

func specOf(b *wire.Bundle) *wire.Spec {
	return &wire.Spec{
		UID: "u", Generation: 4, Source: "harbor", Cluster: "quay-7", Action: wire.Update, SourceIdentity: "i", Bundle: b,
		Meta: metav1.ObjectMeta{Name: "lamp", Namespace: "quay-7", UID: "u", Generation: 4},
	}
}

// dataOf returns the data of the event of a spec.
func dataOf(t testing.TB, b *wire.Bundle) []byte {
	t.Helper()
	e, err := wire.Encode(specOf(b), time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	return e.Data()
}

// deltaOf returns b as it was received as its difference from base, and the size of the data.
func deltaOf(t testing.TB, b, base *wire.Bundle) (d *wire.SpecDelta, size int) {
	t.Helper()
	d, err := wire.NewSpecDelta(specOf(b), dataOf(t, b), dataOf(t, base))
	if err != nil {
		t.Fatal(err)
	}
	e, err := wire.Encode(d, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	message, err := wire.Decode(e)
	if err != nil {
		t.Fatal(err)
	}
	received, ok := message.(*wire.SpecDelta)
	if hash, _ := wire.ContentHash(base); !ok || received.Base != hash || !wire.IsSignable(e) || wire.ContentHashOf(e) != received.Of.ContentHash {
		t.Fatalf("received %+v", message)
	}
	return received, len(e.Data())
}

// Each spec is the same after it was sent as its difference from another one as if it had been sent
// whole.
func TestSpecDelta(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 6))
	for i := range 500 {
		base, next := randomBundle(r), randomBundle(r)
		whole, err := wire.Encode(specOf(next), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		want, err := wire.Decode(whole)
		if err != nil {
			t.Fatal(err)
		}
		d, _ := deltaOf(t, next, base)
		before, _ := json.Marshal(base)
		got, err := d.Apply(base)
		if err != nil {
			t.Fatalf("run %d: %v\nbase  %s\ndelta %+v", i, err, before, d.Delta)
		}
		if diff := cmp.Diff(want, wire.Message(got)); diff != "" {
			t.Fatalf("run %d: %s", i, diff)
		}
		if after, _ := json.Marshal(base); string(after) != string(before) {
			t.Fatal("the base has changed")
		}
	}
}

// Texts that repeat themselves, with characters of several bytes, are the same after they were sent as their difference.
func TestDeltaOfRepetitions(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 6))
	text := func() string {
		var b strings.Builder
		for range r.IntN(40) {
			b.WriteString([]string{"a", "é", "ü\u2028", "😀", strings.Repeat("ab", 40), strings.Repeat("é", 33), "0123456789abcdef0123456789abcdef"}[r.IntN(7)])
		}
		return b.String()
	}
	for i := range 3000 {
		base, next := &wire.Bundle{Manifests: manifests(text(), text())}, &wire.Bundle{Manifests: manifests(text(), text())}
		d, _ := deltaOf(t, next, base)
		if _, err := d.Apply(base); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
}

// A small change of 500 manifests costs itself, also if others move because of it.
func TestSpecDeltaIsSmall(t *testing.T) {
	values := make([]string, 500)
	for i := range values {
		values[i] = fmt.Sprintf("%d-%s", i, strings.Repeat("x", 800))
	}
	base := &wire.Bundle{Manifests: manifests(values...)}
	for name, change := range map[string]func([]workv1.Manifest) []workv1.Manifest{
		"nothing": func(list []workv1.Manifest) []workv1.Manifest { return list },
		"one": func(list []workv1.Manifest) []workv1.Manifest {
			return append(list[:250:250], append(manifests("y"), list[251:]...)...)
		},
		"one less":       func(list []workv1.Manifest) []workv1.Manifest { return append(list[:250:250], list[251:]...) },
		"one more":       func(list []workv1.Manifest) []workv1.Manifest { return append(manifests("y"), list...) },
		"first and last": func(list []workv1.Manifest) []workv1.Manifest { return append(list[499:], list[:499]...) },
	} {
		d, size := deltaOf(t, &wire.Bundle{Manifests: change(base.Manifests)}, base)
		if size > 600 || d.NewBytes() > 150 {
			t.Errorf("%s: %d bytes, %d of them new, %d parts", name, size, d.NewBytes(), len(d.Parts))
		}
	}
}

// What does not fit the base, or has another result than the event says, is refused.
func TestSpecDeltaRefused(t *testing.T) {
	base, next := &wire.Bundle{Manifests: manifests("a", "b", "c")}, &wire.Bundle{Manifests: manifests("a", "changed", "c")}
	valid, _ := deltaOf(t, next, base)
	if _, err := valid.Apply(&wire.Bundle{Manifests: manifests("a", "b", "other")}); !errors.Is(err, wire.ErrOtherResult) {
		t.Errorf("applied to another spec: %v", err)
	}
	size := len(dataOf(t, base))
	bomb := make([]wire.DeltaPart, 1<<16)
	bomb[0] = wire.DeltaPart{Count: size}
	for i := 1; i < len(bomb); i++ {
		bomb[i] = wire.DeltaPart{Skip: -size, Count: size}
	}
	for name, test := range map[string]struct {
		parts []wire.DeltaPart
		want  string
	}{
		"beyond the end": {[]wire.DeltaPart{{Skip: size - 1, Count: 2}}, fmt.Sprintf("part 0 is 2 bytes from %d of %d", size-1, size)},
		"negative":       {[]wire.DeltaPart{{Skip: -1, Count: 1}}, "part 0 is 1 bytes from -1 of"},
		"nothing":        {[]wire.DeltaPart{{Count: 1}, {}}, "part 1 is 0 bytes from 1 of"},
		"far away":       {[]wire.DeltaPart{{Count: 9}, {Skip: int(^uint(0) >> 1), Count: 1}}, "part 1 is 1 bytes from -"},
		"overflow":       {[]wire.DeltaPart{{Skip: 1, Count: int(^uint(0) >> 1)}}, fmt.Sprint("of ", size)},
		"too large":      {bomb, "larger than 1048576 bytes"},
		"another spec":   {[]wire.DeltaPart{{Count: size}}, "another hash"},
	} {
		d := *valid
		d.Parts = test.parts
		if got, err := d.Apply(base); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v, want %q", name, got, err, test.want)
		}
	}
	large := &wire.Bundle{Manifests: manifests(strings.Repeat("x", 1<<20))}
	if _, err := wire.NewSpecDelta(specOf(large), dataOf(t, large), dataOf(t, base)); err == nil || !strings.Contains(err.Error(), "too large for a delta") {
		t.Errorf("a spec that is too large: %v", err)
	}
	if _, err := wire.NewSpecDelta(specOf(base), []byte("{\"manifests\":[\"\xff\"]}"), dataOf(t, base)); err == nil || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("a spec that is not UTF-8: %v", err)
	}
}

func TestSpecDeltaNeeds(t *testing.T) {
	base, next := &wire.Bundle{Manifests: manifests("a")}, &wire.Bundle{Manifests: manifests("b")}
	valid, _ := deltaOf(t, next, base)
	now := metav1.Now()
	for name, change := range map[string]func(*wire.SpecDelta){
		"a base":         func(d *wire.SpecDelta) { d.Base = "" },
		"a content hash": func(d *wire.SpecDelta) { d.Of.ContentHash = "" },
		"parts":          func(d *wire.SpecDelta) { d.Parts = nil },
		"a uid":          func(d *wire.SpecDelta) { d.Of.UID = "" },
		"an update":      func(d *wire.SpecDelta) { d.Of.Action = wire.Create },
		"no deletion":    func(d *wire.SpecDelta) { d.Of.DeletionTimestamp = &now },
		"no bundle":      func(d *wire.SpecDelta) { d.Of.Bundle = base },
	} {
		broken := *valid
		change(&broken)
		if _, err := wire.Encode(&broken, time.Now()); err == nil || !strings.Contains(err.Error(), "spec delta of work") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// FuzzSpecDelta: whatever change arrives, the result is an error or a valid spec of bounded size with the
// content hash that the event promises.
func FuzzSpecDelta(f *testing.F) {
	base := &wire.Bundle{Manifests: manifests("a", "b"), ManifestConfigs: []workv1.ManifestConfigOption{{}}}
	d, _ := deltaOf(f, &wire.Bundle{Manifests: manifests("a", "c")}, base)
	valid, err := json.Marshal(d.Parts)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid, d.Of.ContentHash)
	for _, parts := range []string{`[]`, `[{"count":1}]`, `[{"skip":1,"count":2},{"skip":-3,"count":2}]`, `[{"text":"{}"}]`, `[{"text":"{\"manifests\":[1]}"}]`} {
		f.Add([]byte(parts), d.Of.ContentHash)
	}
	f.Fuzz(func(t *testing.T, parts []byte, hash string) {
		received := &wire.SpecDelta{Of: d.Of}
		received.Of.ContentHash = hash
		if json.Unmarshal(parts, &received.Parts) != nil {
			t.Skip()
		}
		got, err := received.Apply(base)
		if err != nil {
			return
		}
		if err := got.Bundle.Validate(); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(got.Bundle)
		if err != nil || len(data) > 2<<20 {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
	})
}

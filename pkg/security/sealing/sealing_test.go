package sealing_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

const secret = "correct-horse-battery"

func newKey(t testing.TB) *sealing.Key {
	t.Helper()
	key, err := sealing.NewKey()
	kit.NoError(t, err)
	return key
}

func write(t testing.TB, path string, data []byte) string {
	t.Helper()
	kit.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func keyFile(t testing.TB, key *sealing.Key) string {
	t.Helper()
	data, err := key.PEM()
	kit.NoError(t, err)
	return write(t, filepath.Join(t.TempDir(), "unseal.key"), data)
}

func secretOf(string) []byte { return bytes.Repeat([]byte{7}, 32) }

// sealerTo returns a Sealer for cluster c1 with this key.
func sealerTo(t testing.TB, key *sealing.Key) *sealing.Sealer {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "c1.pub"), key.Public().PEM())
	sealer, err := sealing.NewSealer(sealing.SealerConfig{Dir: dir, Secret: secretOf, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	return sealer
}

func unsealerOf(t testing.TB, keys ...*sealing.Key) *sealing.Unsealer {
	t.Helper()
	var files []string
	for _, key := range keys {
		files = append(files, keyFile(t, key))
	}
	unsealer, err := sealing.NewUnsealer(sealing.UnsealerConfig{Files: files, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	return unsealer
}

// event returns the spec of a work with a Secret for a cluster.
func event(t testing.TB, cluster wire.ClusterName) cloudevents.Event {
	t.Helper()
	raw := []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"n"},"stringData":{"k":"` + secret + `"}}`)
	e, err := wire.Encode(&wire.Spec{
		UID: "11111111-1111-4111-8111-111111111111", Generation: 3, Source: "hub1", Cluster: cluster, Action: wire.Update, SourceIdentity: "m1",
		Meta:   metav1.ObjectMeta{Name: "w", Namespace: string(cluster)},
		Bundle: &wire.Bundle{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}},
	}, time.Now())
	kit.NoError(t, err)
	return e
}

func reason(err error) sealing.Reason {
	var failure *sealing.OpenError
	if errors.As(err, &failure) {
		return failure.Reason
	}
	return ""
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	key, other := newKey(t), newKey(t)
	plain := event(t, "c1")
	sealed := plain.Clone()
	sealer := sealerTo(t, key)
	kit.NoError(t, sealer.Seal(&sealed))
	if bytes.Contains(sealed.Data(), []byte(secret)) || sealed.DataContentType() != wire.SealedContentType || !wire.IsSealed(sealed.Data()) {
		t.Fatalf("data of type %s is not sealed: %.80q", sealed.DataContentType(), sealed.Data())
	}
	if wire.ContentHashOf(sealed) == wire.ContentHashOf(plain) {
		t.Error("the content hash is not masked: who guesses the data can check the guess")
	}
	if got := sealer.ContentHash("c1", "11111111-1111-4111-8111-111111111111", 3, wire.ContentHashOf(plain)); got != wire.ContentHashOf(sealed) {
		t.Errorf("ContentHash returns %s, the event has %s", got, wire.ContentHashOf(sealed))
	}
	if _, err := wire.Decode(sealed); !errors.Is(err, wire.ErrSealed) {
		t.Errorf("Decode of sealed data returns %v", err)
	}
	for name, keys := range map[string][]*sealing.Key{"the key": {key}, "a former key": {other, key}} {
		opened, err := unsealerOf(t, keys...).Open(sealed)
		if err != nil || !bytes.Equal(opened.Data(), plain.Data()) {
			t.Errorf("%s: opened %q, %v", name, opened.Data(), err)
		}
		if _, err := wire.Decode(opened); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := unsealerOf(t, other).Open(sealed); reason(err) != sealing.UnknownKey {
		t.Errorf("without the key: %v", err)
	}
	var none *sealing.Unsealer
	if _, err := none.Open(sealed); reason(err) != sealing.UnknownKey {
		t.Errorf("without any key: %v", err)
	}
}

// TestMoved: sealed data opens only in the event that it was made for.
func TestMoved(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	sealed := event(t, "c1")
	kit.NoError(t, sealerTo(t, key).Seal(&sealed))
	unsealer := unsealerOf(t, key)
	for name, change := range map[string]func(*cloudevents.Event){
		"uid":        func(e *cloudevents.Event) { e.SetExtension("resourceid", "22222222-2222-4222-8222-222222222222") },
		"generation": func(e *cloudevents.Event) { e.SetExtension("resourceversion", "4") },
		"cluster":    func(e *cloudevents.Event) { e.SetExtension("clustername", "c2") },
		"source":     func(e *cloudevents.Event) { e.SetSource("hub2") },
		"type": func(e *cloudevents.Event) {
			e.SetType(strings.Replace(e.Type(), "update_request", "create_request", 1))
		},
		"a byte": func(e *cloudevents.Event) {
			data := bytes.Clone(e.Data())
			data[len(data)-1] ^= 1
			kit.NoError(t, e.SetData(wire.SealedContentType, data))
		},
		"the encapsulated key": func(e *cloudevents.Event) {
			data := bytes.Clone(e.Data())
			data[40] ^= 1
			kit.NoError(t, e.SetData(wire.SealedContentType, data))
		},
		"the end": func(e *cloudevents.Event) {
			kit.NoError(t, e.SetData(wire.SealedContentType, e.Data()[:60]))
		},
		"no box": func(e *cloudevents.Event) { kit.NoError(t, e.SetData(wire.SealedContentType, e.Data()[:27])) },
		"no key": func(e *cloudevents.Event) { kit.NoError(t, e.SetData(wire.SealedContentType, e.Data()[:12])) },
	} {
		moved := sealed.Clone()
		change(&moved)
		if opened, err := unsealer.Open(moved); reason(err) != sealing.Invalid || bytes.Contains(opened.Data(), []byte(secret)) {
			t.Errorf("%s: opens, or fails with %v", name, err)
		}
	}
	retyped := sealed.Clone() // the content type is not signed, so nobody may go by it
	retyped.SetDataContentType("application/json")
	if _, err := unsealer.Open(retyped); err != nil {
		t.Errorf("another content type: %v", err)
	}
}

// TestWhoGetsClear: what happens to a spec, by the file of its cluster.
func TestWhoGetsClear(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file     []byte // nil: none
		required []wire.ClusterName
		want     string
	}{
		"no file":                    {nil, nil, "clear"},
		"no file, required":          {nil, []wire.ClusterName{"c2", "c1"}, "no_key"},
		"no file, required for all":  {nil, []wire.ClusterName{sealing.AllClusters}, "no_key"},
		"no file, another required":  {nil, []wire.ClusterName{"c2"}, "clear"},
		"file":                       {newKey(t).Public().PEM(), nil, "sealed"},
		"file that is not valid":     {[]byte("key"), nil, "no_key"},
		"empty file":                 {[]byte{}, nil, "no_key"},
		"the private key by mistake": {must(newKey(t).PEM()), nil, "no_key"},
	} {
		dir := t.TempDir()
		if c.file != nil {
			write(t, filepath.Join(dir, "c1.pub"), c.file)
		}
		registry := prometheus.NewRegistry()
		sealer, err := sealing.NewSealer(sealing.SealerConfig{
			Dir: dir, Required: c.required, Secret: secretOf, Registerer: registry, Logger: kit.Logger(t),
		})
		kit.NoError(t, err)
		e := event(t, "c1")
		err = sealer.Seal(&e)
		var noKey *sealing.NoKeyError
		if got := errors.As(err, &noKey); got != (c.want == "no_key") || wire.IsSealed(e.Data()) != (c.want == "sealed") {
			t.Errorf("%s: sealed %v, error %v", name, wire.IsSealed(e.Data()), err)
		}
		if n := kit.Gather(t, registry).Sum("workwire_source_sealed_specs_total", "result="+c.want); n != 1 {
			t.Errorf("%s: %v specs counted as %s", name, n, c.want)
		}
	}
	var none *sealing.Sealer
	e := event(t, "c1")
	kit.NoError(t, none.Seal(&e))
	if wire.IsSealed(e.Data()) || none.ContentHash("c1", "u", 1, "h") != "h" {
		t.Error("without a Sealer, something is sealed")
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// TestKeyFilesChange: a new key is used and reported; a key that is damaged, not readable or removed stays in use,
// so that nothing goes out in clear by mistake.
func TestKeyFilesChange(t *testing.T) {
	t.Parallel()
	first, second, third := newKey(t), newKey(t), newKey(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "c1.pub")
	sealer, err := sealing.NewSealer(sealing.SealerConfig{Dir: dir, Secret: secretOf, Interval: time.Millisecond, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	changed := make(chan wire.ClusterName, 10)
	kit.Run(t, "sealer", func(ctx context.Context) error {
		sealer.Run(ctx, func(c wire.ClusterName) { changed <- c })
		return nil
	})
	opens := func(key *sealing.Key) {
		t.Helper()
		e := event(t, "c1")
		kit.NoError(t, sealer.Seal(&e))
		if _, err := unsealerOf(t, key).Open(e); err != nil {
			t.Error(err)
		}
	}
	write(t, filepath.Join(dir, "README"), []byte("not a key"))
	write(t, filepath.Join(dir, "Not A Cluster.pub"), first.Public().PEM())
	replace(t, path, first.Public().PEM())
	if got := <-changed; got != "c1" {
		t.Errorf("the key of %s changed", got)
	}
	opens(first)
	replace(t, path, append([]byte("# the second key\n"), second.Public().PEM()...))
	<-changed
	opens(second)
	replace(t, path, []byte("damaged"))
	kit.True(t, "the damaged file is noticed", func() bool { return sealer.Fault("c1") != nil })
	opens(second)
	repair := kit.Unreadable(t, path, third.Public().PEM())
	kit.True(t, "the unreadable file is noticed", func() bool { return errors.Is(sealer.Fault("c1"), syscall.EISDIR) })
	opens(second)
	repair()
	kit.Receive(t, "the key of the file that is readable again", changed)
	opens(third)
	kit.Unreadable(t, path, nil)
	kit.True(t, "the unreadable file is noticed", func() bool { return sealer.Fault("c1") != nil })
	kit.NoError(t, os.Remove(path))
	kit.True(t, "the removal is noticed", func() bool { return sealer.Removed("c1") })
	opens(third)
}

// replace replaces a file as a whole.
func replace(t testing.TB, path string, data []byte) {
	t.Helper()
	kit.NoError(t, os.Rename(write(t, path+".new", data), path))
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	private, public := must(key.PEM()), key.Public().PEM()
	again, err := sealing.ParseKey(private)
	if err != nil || again.Public().ID != key.Public().ID {
		t.Errorf("a private key is read as %v, %v", again, err)
	}
	read, err := sealing.ParsePublicKey(public)
	if err != nil || read.ID != key.Public().ID {
		t.Errorf("a public key is read as %v, %v", read.ID, err)
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "the other half": public, "two": append(bytes.Clone(private), private...),
		"a short key": pem.EncodeToMemory(&pem.Block{Type: "WORKWIRE UNSEALING KEY", Bytes: []byte(secret)}),
	} {
		if _, err := sealing.ParseKey(data); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("private key from %s: %v", name, err)
		}
	}
	if _, err := sealing.ParsePublicKey(private); err == nil || !strings.Contains(err.Error(), "private") {
		t.Errorf("a private key as public one: %v", err)
	}
}

// TestProtect: what a state file holds opens with any key of the agent, under its own name only.
func TestProtect(t *testing.T) {
	t.Parallel()
	first, second := newKey(t), newKey(t)
	box, err := unsealerOf(t, first).Protect("a", []byte(secret))
	kit.NoError(t, err)
	if bytes.Contains(box, []byte(secret)) || bytes.Contains(box, []byte(base64.StdEncoding.EncodeToString([]byte(secret)))) {
		t.Error("it is in clear")
	}
	for name, c := range map[string]struct {
		keys []*sealing.Key
		name string
		data []byte
		ok   bool
	}{
		"itself":        {[]*sealing.Key{first}, "a", box, true},
		"a former key":  {[]*sealing.Key{second, first}, "a", box, true},
		"another key":   {[]*sealing.Key{second}, "a", box, false},
		"another name":  {[]*sealing.Key{first}, "b", box, false},
		"the end lacks": {[]*sealing.Key{first}, "a", box[:len(box)-1], false},
		"hardly a byte": {[]*sealing.Key{first}, "a", box[:1], false},
	} {
		plain, err := unsealerOf(t, c.keys...).Reveal(c.name, c.data)
		if (err == nil) != c.ok || c.ok && string(plain) != secret {
			t.Errorf("%s: %q, %v", name, plain, err)
		}
	}
}

// FuzzOpen: no data opens but what was sealed for this very event.
func FuzzOpen(f *testing.F) {
	key := newKey(f)
	sealed := event(f, "c1")
	kit.NoError(f, sealerTo(f, key).Seal(&sealed))
	unsealer := unsealerOf(f, key)
	f.Add(sealed.Data(), "c1", "3")
	f.Add(sealed.Data(), "c2", "3")
	f.Add(sealed.Data()[:27], "c1", "3")
	f.Add([]byte("sealed/v1:"), "c1", "3")
	f.Add([]byte("sealed/v1:0123456789abcdef:"), "c1", "")
	f.Add([]byte(`{"manifests":[]}`), "c1", "3")
	f.Fuzz(func(t *testing.T, data []byte, cluster, generation string) {
		e := sealed.Clone()
		_ = e.SetData(wire.SealedContentType, data)
		e.SetExtension("clustername", cluster)
		e.SetExtension("resourceversion", generation)
		opened, err := unsealer.Open(e)
		same := bytes.Equal(data, sealed.Data()) && cluster == "c1" && generation == "3"
		if (err == nil) != same {
			t.Fatalf("opens %v: %q, error %v", same, opened.Data(), err)
		}
		if err != nil && reason(err) == "" {
			t.Fatalf("error %T is no OpenError", err)
		}
	})
}

func bench(b *testing.B) (cloudevents.Event, *sealing.Sealer, *sealing.Unsealer) {
	key := newKey(b)
	e := event(b, "c1")
	raw := []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"k":"` + strings.Repeat("x", 4000) + `"}}`)
	kit.NoError(b, e.SetData("application/json", append(append([]byte(`{"manifests":[`), raw...), "]}"...)))
	return e, sealerTo(b, key), unsealerOf(b, key)
}

func BenchmarkSeal(b *testing.B) {
	e, sealer, _ := bench(b)
	b.ReportAllocs()
	for b.Loop() {
		sealed := e
		kit.NoError(b, sealer.Seal(&sealed))
	}
}

func BenchmarkOpen(b *testing.B) {
	e, sealer, unsealer := bench(b)
	kit.NoError(b, sealer.Seal(&e))
	b.ReportAllocs()
	for b.Loop() {
		_, err := unsealer.Open(e)
		kit.NoError(b, err)
	}
}

func BenchmarkProtect(b *testing.B) {
	e, _, unsealer := bench(b)
	b.ReportAllocs()
	for b.Loop() {
		_, err := unsealer.Protect("a", e.Data())
		kit.NoError(b, err)
	}
}

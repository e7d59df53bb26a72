package inbox

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/google/go-cmp/cmp"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/test/kit"
)

// TestSealedAtRest: a spec that arrived sealed is not in clear on disk, and is read with the key only.
func TestSealedAtRest(t *testing.T) {
	t.Parallel()
	unsealer := func() *sealing.Unsealer {
		key, err := sealing.NewKey()
		kit.NoError(t, err)
		data, err := key.PEM()
		kit.NoError(t, err)
		path := filepath.Join(t.TempDir(), "unseal.key")
		kit.NoError(t, os.WriteFile(path, data, 0o600))
		u, err := sealing.NewUnsealer(sealing.UnsealerConfig{Files: []string{path}})
		kit.NoError(t, err)
		return u
	}
	own, other := unsealer(), unsealer()
	entry := Entry{Key: Key{"hub", "uid"}, Cluster: "quay", Generation: 2, Meta: metav1.ObjectMeta{Name: "a"}, Sealed: true}
	entry.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"k":"hidden"}}`)}}}
	data, err := entry.encode(own)
	if err != nil || bytes.Contains(data, []byte("hidden")) {
		t.Fatalf("stored as %s, %v", data, err)
	}
	back, err := decode(data, own)
	if err != nil || !back.Sealed || !bytes.Contains(back.Spec.Workload.Manifests[0].Raw, []byte("hidden")) {
		t.Errorf("read as %+v, %v", back, err)
	}
	for name, unseal := range map[string]*sealing.Unsealer{"another key": other, "no key": nil} {
		if _, err := decode(data, unseal); err == nil {
			t.Errorf("%s reads it", name)
		}
	}
	if _, err := entry.encode(nil); err == nil {
		t.Error("without a key it is stored")
	}
}

// FuzzRecord: what is read from the disk is a work that could have come from an event, and is
// written as it was read.
func FuzzRecord(f *testing.F) {
	entry := Entry{Key: Key{"hub", "uid"}, Cluster: "quay", Generation: 2, Meta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"b": "c"}}}
	entry.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)}}}
	dead := entry
	dead.Deleting = &metav1.Time{}
	refused := Entry{Key: entry.Key, Cluster: "quay", Meta: entry.Meta, Refusal: &Refusal{Generation: 3, Message: "no kind"}, Trace: "{}"}
	held := Entry{Key: entry.Key, Cluster: "quay", Meta: entry.Meta, SourceIdentity: "one", ContentHash: "h", Hold: &Hold{Reason: "r", Generation: 4}}
	for _, e := range []*Entry{&entry, &dead, &refused, &held} {
		data, err := e.encode(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"source":"hub","uid":"u","cluster":"c","metadata":{"name":"n"},"bundle":{"manifests":[7]}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decode(data, nil)
		if err != nil {
			return
		}
		if e.Source == "" || e.UID == "" || e.Cluster == "" || e.Meta.Name == "" || e.Generation < 0 {
			t.Fatalf("decode takes a work without identity: %+v", e)
		}
		if !e.HasSpec() && e.Deleting == nil && e.Refusal == nil && e.Hold == nil {
			t.Fatalf("decode takes a work without a spec: %+v", e)
		}
		again, err := e.encode(nil)
		if err != nil {
			t.Fatalf("encode of what was decoded: %v", err)
		}
		back, err := decode(again, nil)
		if err != nil {
			t.Fatalf("decode of what was encoded: %v", err)
		}
		a, _ := json.Marshal([]any{e, e.Spec, e.Sealed})
		b, _ := json.Marshal([]any{back, back.Spec, back.Sealed})
		if diff := cmp.Diff(string(a), string(b)); diff != "" {
			t.Fatalf("differs after a round trip (-want +got):\n%s", diff)
		}
	})
}

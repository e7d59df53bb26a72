package source

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// FuzzDecodeRecord: every record of a state file is decoded or refused, without a panic.
func FuzzDecodeRecord(f *testing.F) {
	f.Add("u", []byte(`{"since":3,"sequence":4,"work":{"metadata":{"name":"w","namespace":"c","uid":"u","generation":3}}}`))
	f.Add("u", []byte(`{"sequence":4,"session":"b","previous":{"sequence":9,"session":"a"},"work":{"metadata":{"name":"w","namespace":"c","uid":"u"}}}`))
	f.Add("u", []byte(`{"work":null}`))
	f.Add("u", []byte(`{"work":{"metadata":{"uid":"other"}}}`))
	f.Add("", []byte(`{`))
	f.Fuzz(func(t *testing.T, uid string, data []byte) {
		r, err := decodeRecord(uid, data)
		if err != nil {
			return
		}
		if r.work == nil || r.work.UID != types.UID(uid) || r.work.Name == "" {
			t.Fatalf("a record without identity: %+v", r)
		}
		again, err := json.Marshal(newRecordJSON(r))
		if err != nil {
			t.Skip() // a manifest that is JSON to one reader only
		}
		second, err := decodeRecord(uid, again)
		if err != nil || !equality.Semantic.DeepEqual(r.work.ObjectMeta, second.work.ObjectMeta) || r.firstGeneration != second.firstGeneration || r.sequences != second.sequences || r.relabeled != second.relabeled {
			t.Fatalf("written and read again it differs: %v", err)
		}
	})
}

// FuzzPatch: every patch returns either a work or an error.
func FuzzPatch(f *testing.F) {
	f.Add(string(types.MergePatchType), []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	f.Add(string(types.MergePatchType), []byte(`[]`))
	f.Add(string(types.JSONPatchType), []byte(`[{"op":"copy","from":"/spec","path":"/spec/workload"}]`))
	f.Add(string(types.JSONPatchType), []byte(`[{"op":"remove","path":"/metadata"}]`))
	f.Add(string(types.StrategicMergePatchType), []byte(`{"spec":{"workload":{"$patch":"delete"}}}`))
	f.Add(string(types.StrategicMergePatchType), []byte(`{"$retainKeys":["spec"]}`))
	old := &workv1.ManifestWork{}
	old.Name, old.Namespace = "w", "cluster1"
	old.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
	old.Spec.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`)
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		patch, err := newPatch(types.PatchType(kind), data)
		if err != nil {
			return
		}
		next, err := applyPatch(old, patch, "Strict")
		if (next == nil) == (err == nil) {
			t.Fatalf("%v, %v", next, err)
		}
	})
}

// FuzzManifest: a valid manifest has one normalized form.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"kind":"Namespace", "apiVersion":"v1","metadata":{"name":"<n>"},"x":1e400}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n"}} {}`))
	f.Add([]byte(`null`))
	f.Add([]byte("{\"apiVersion\":\"v1\",\"kind\":\"\xff\",\"metadata\":{\"name\":\"n\"}}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		spec := workv1.ManifestWorkSpec{}
		spec.Workload.Manifests = make([]workv1.Manifest, 1)
		spec.Workload.Manifests[0].Raw = raw
		normalizeManifests(&spec)
		if len(validateSpec(&spec, field.NewPath("spec"))) > 0 {
			return
		}
		first := string(spec.Workload.Manifests[0].Raw)
		normalizeManifests(&spec)
		if second := string(spec.Workload.Manifests[0].Raw); first != second {
			t.Fatalf("%q becomes %q", first, second)
		}
		if !json.Valid([]byte(first)) {
			t.Fatalf("%q is no JSON", first)
		}
	})
}

// FuzzParseContinue: every token is of a page or refused, and a token of ours is read as written.
func FuzzParseContinue(f *testing.F) {
	f.Add("")
	f.Add("!")
	f.Add(continueToken{7, "cluster1", "w"}.encode())
	f.Fuzz(func(t *testing.T, text string) {
		token, err := parseContinue(text)
		if err != nil || text == "" {
			if token != (continueToken{}) {
				t.Fatalf("%+v with %v", token, err)
			}
			return
		}
		if again, err := parseContinue(token.encode()); err != nil && token.Version >= 0 || err == nil && again != token {
			t.Fatalf("%+v is read as %+v, %v", token, again, err)
		}
	})
}

package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// nested returns JSON of this depth.
func nested(depth int) string {
	return strings.Repeat(`{"a":[`, depth/2) + strings.Repeat("]}", depth/2)
}

func TestTooDeep(t *testing.T) {
	for text, want := range map[string]bool{
		"":                           false,
		nested(MaxManifestDepth):     false,
		nested(MaxManifestDepth + 2): true,
		`{"a":"` + strings.Repeat(`[\"{`, 1000) + `"}`:                      false,
		`[` + strings.Repeat(`"\\",[],{},`, 1000) + `1]`:                    false,
		`{"a":"\\"}` + strings.Repeat("[", MaxManifestDepth):                false,
		`{"a":"\\"` + strings.Repeat("[", MaxManifestDepth):                 true,
		strings.Repeat("]", 1000) + strings.Repeat("[", MaxManifestDepth-1): false,
	} {
		if got := TooDeep([]byte(text)); got != want {
			t.Errorf("%.40s…: too deep %v, want %v", text, got, want)
		}
	}
}

// FuzzTooDeep: for JSON, the answer is that of a decoder.
func FuzzTooDeep(f *testing.F) {
	f.Add([]byte(`{"a":[{}],"b":"\"[\\"}`))
	f.Add([]byte(nested(6)))
	f.Fuzz(func(t *testing.T, text []byte) {
		const limit = 3
		if !json.Valid(text) {
			return
		}
		deepest, depth := 0, 0
		decoder := json.NewDecoder(strings.NewReader(string(text)))
		for {
			token, err := decoder.Token()
			if err != nil {
				break
			}
			if delim, ok := token.(json.Delim); ok && (delim == '{' || delim == '[') {
				depth++
				deepest = max(deepest, depth)
			} else if ok {
				depth--
			}
		}
		if _, got := nesting(text, limit); got != (deepest > limit) {
			t.Errorf("%q: too deep %v, but its depth is %d", text, got, deepest)
		}
	})
}

// TestLimits: messages beyond the limits are refused when they are decoded; of a work, its identity
// is known then.
func TestLimits(t *testing.T) {
	manifest := workv1.Manifest{}
	manifest.Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`)
	bundle := &Bundle{}
	for range MaxManifests {
		bundle.Manifests = append(bundle.Manifests, manifest)
	}
	if err := bundle.Validate(); err != nil {
		t.Errorf("the maximum of manifests: %v", err)
	}
	bundle.Manifests = append(bundle.Manifests, manifest)
	if err := bundle.Validate(); err == nil || !strings.Contains(err.Error(), "5001 manifests exceed the limit of 5000; split the work") {
		t.Errorf("too many manifests: %v", err)
	}

	resync := &SpecResync{Agent: "a", Cluster: "c", Versions: make([]SpecVersion, MaxResyncEntries)}
	for i := range resync.Versions {
		resync.Versions[i] = SpecVersion{UID: "u", Generation: 1}
	}
	decode := func() error {
		e, err := Encode(resync, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		_, err = Decode(e)
		return err
	}
	if err := decode(); err != nil {
		t.Errorf("the longest list: %v", err)
	}
	resync.Versions = append(resync.Versions, resync.Versions[:3]...)
	if err := decode(); err == nil || !strings.Contains(err.Error(), "more than 100000 entries") {
		t.Errorf("a longer list: %v", err)
	}

	spec := &Spec{UID: "u", Source: "hub1", Cluster: "c", Action: Create, Generation: 1, Bundle: &Bundle{Manifests: []workv1.Manifest{manifest}}}
	e, err := Encode(spec, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetData("application/json", json.RawMessage(`{"manifests":`+nested(maxDepth)+`}`)); err != nil {
		t.Fatal(err)
	}
	_, err = Decode(e)
	var failure *DecodeError
	if !errors.As(err, &failure) || failure.Spec == nil || failure.Spec.UID != "u" || !strings.Contains(err.Error(), "nested deeper than 1000 levels") {
		t.Errorf("deep data: %v", err)
	}
}

// TestTimesOutsideOfJSON: a message with a time that JSON cannot hold is refused, whole or as a delta: what stores it
// would not read it again.
func TestTimesOutsideOfJSON(t *testing.T) {
	type object = map[string]any
	for at, want := range map[string]bool{
		"9999-12-31T23:59:59-01:00": false, "9999-12-31T23:59:59Z": true,
		"0000-01-01T00:00:00+01:00": false, "0000-01-01T00:00:00Z": true,
	} {
		conditions := []object{{"type": "A", "lastTransitionTime": at}}
		data := []object{{"conditions": conditions}, {"resourceStatus": []object{{"conditions": conditions}}}}
		for _, data := range data {
			e, err := Encode(&Status{UID: "u", Agent: "a", Cluster: "c", Action: Update}, time.Now())
			if err == nil {
				err = setData(&e, data)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Decode(e); (err == nil) != want {
				t.Errorf("a status with %v: %v", data, err)
			}
		}
		text, _ := json.Marshal(object{"conditions": conditions})
		d := &StatusDelta{Of: Status{UID: "u", Hash: hexSHA256(text)}, Delta: Delta{Base: "b", Parts: []DeltaPart{{Text: string(text)}}}}
		if _, err := d.Apply(&workv1.ManifestWorkStatus{}); (err == nil) != want {
			t.Errorf("the delta %s: %v", text, err)
		}
		for _, meta := range []object{{"creationTimestamp": at}, {"deletionTimestamp": at}, {"managedFields": []object{{"time": at}}}} {
			text, _ := json.Marshal(meta)
			if _, err := (extensions{extMetadata: string(text)}).metadata(&metav1.ObjectMeta{}); (err == nil) != want {
				t.Errorf("metadata %s: %v", text, err)
			}
		}
	}
}

func TestSequenceTime(t *testing.T) {
	now := time.UnixMilli(1_790_000_000_123)
	if id := (&Sequence{}).Next(now); !id.Time().Equal(now) || !id.Credible() {
		t.Errorf("the time of %d is %s, want %s", id, id.Time(), now)
	}
	for year, want := range map[int]bool{2011: true, 2062: true, 2064: false, 2079: false} {
		at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		if id := SequenceID((at.UnixMilli() - sequenceEpoch) << sequenceTimeBit); id.Credible() != want {
			t.Errorf("an id of the year %d is credible: %v", year, id.Credible())
		}
	}
}

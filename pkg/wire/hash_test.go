package wire_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

func sum(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

func TestStatusHash(t *testing.T) {
	one := workv1.ManifestWorkStatus{
		Conditions: []metav1.Condition{condition(t, "Applied", 3, "07:08", "AppliedManifestWorkComplete", "a < b & c")},
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
			ResourceMeta: workv1.ManifestResourceMeta{Ordinal: 0, Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Name: "lamp", Namespace: "pier"},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				{Name: "n", Value: workv1.FieldValue{Type: workv1.Integer, Integer: ptr(int64(9007199254740993))}}}},
		}}},
	}
	for name, tc := range map[string]struct {
		status workv1.ManifestWorkStatus
		sorted string // by hand
	}{
		"empty": {workv1.ManifestWorkStatus{}, `{"resourceStatus":{}}`},
		"one": {one, `{"conditions":[{"lastTransitionTime":"2031-03-04T05:07:08Z","message":"a \u003c b \u0026 c","observedGeneration":3,` +
			`"reason":"AppliedManifestWorkComplete","status":"True","type":"Applied"}],` +
			`"resourceStatus":{"manifests":[{"conditions":null,"resourceMeta":{"group":"","kind":"ConfigMap","name":"lamp","namespace":"pier",` +
			`"ordinal":0,"resource":"configmaps","version":"v1"},` +
			`"statusFeedback":{"values":[{"fieldValue":{"integer":9007199254740993,"type":"Integer"},"name":"n"}]}}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wire.StatusHash(&tc.status)
			if err != nil || got != sum(tc.sorted) {
				t.Errorf("StatusHash = %s, %v; want %s", got, err, sum(tc.sorted))
			}
		})
	}
}

// TestStatusHashOfFixtures: the hashes in the fixtures were computed by another JSON library.
func TestStatusHashOfFixtures(t *testing.T) {
	for name, message := range messages(t) {
		status, ok := message.(*wire.Status)
		if !ok {
			continue
		}
		if got, err := wire.StatusHash(&status.Status); err != nil || got != fixture(t, name).properties["ce-statushash"] {
			t.Errorf("%s: StatusHash = %s, %v; want %s", name, got, err, fixture(t, name).properties["ce-statushash"])
		}
	}
}

// TestStatusHashKnowsEveryField fills statuses at random and compares with the slow way, through a
// map. A field that is new in the API and missing in the hash fails here.
func TestStatusHashKnowsEveryField(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var status workv1.ManifestWorkStatus
		fill(random, reflect.ValueOf(&status).Elem())
		status.ObservedGeneration = 0 // the hub's, and not in the hash
		got, err := wire.StatusHash(&status)
		if err != nil {
			t.Fatal(err)
		}
		if want := sum(slowSorted(t, &status)); got != want {
			t.Fatalf("StatusHash of %+v = %s, want %s", status, got, want)
		}
	}
}

// fill sets every field below v to something that JSON shows.
func fill(random *rand.Rand, v reflect.Value) {
	if t, ok := v.Addr().Interface().(*metav1.Time); ok {
		*t = metav1.Unix(random.Int64N(1<<32), 0)
		t.Time = t.In(time.UTC)
		return
	}
	if v.Type() == reflect.TypeFor[*workv1.DeliveryStatus]() {
		return // the hub's, and not in the hash
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(random, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), random.IntN(3), 4))
		for i := range v.Len() {
			fill(random, v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(random, v.Elem())
	case reflect.String:
		v.SetString([]string{"a", "ä\x80", "<\"&>", "\u2028"}[random.IntN(4)])
	case reflect.Int64, reflect.Int32:
		v.SetInt(1 + random.Int64N(1<<30))
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("a status has a field of kind " + v.Kind().String() + ": teach the test to fill it")
	}
}

func slowSorted(t *testing.T, status *workv1.ManifestWorkStatus) string {
	t.Helper()
	plain, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(plain))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		t.Fatal(err)
	}
	sorted, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(sorted)
}

// TestStatusHashAllocates holds the hash to one encoding: it is computed for every status that is
// set, changed or not.
func TestStatusHashAllocates(t *testing.T) {
	status := statusOf(2)
	got := testing.AllocsPerRun(100, func() {
		if _, err := wire.StatusHash(&status); err != nil {
			t.Fatal(err)
		}
	})
	if got > 30 {
		t.Errorf("StatusHash of 2 manifests allocates %v times, want at most 30", got)
	}
}

package compress

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// object is a ConfigMap as an agent's watch shows it, without managedFields.
func object(i int) map[string]any {
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings-%d","namespace":"shop","uid":"%08x-0d3e-4d5c-9d3b-%012x",
		"resourceVersion":"%d","creationTimestamp":"2026-01-01T00:%02d:00Z","labels":{"workwire.dev/agent":"0123456789abcdef"},
		"ownerReferences":[{"apiVersion":"work.open-cluster-management.io/v1",
		"kind":"AppliedManifestWork","name":"%064x-shop-%d","uid":"%08x-7a1b-4c2d-8e3f-%012x"}]},"data":{"colour":"blue"}}`,
		i, i*7919, i*104729, 1000+i, i%60, 7, i, i*6151, i*12289)
	return decoded(text)
}

func decoded(text string) map[string]any {
	var content map[string]any
	if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
		panic(err)
	}
	return content
}

func TestCodecRoundTrip(t *testing.T) {
	texts := []string{
		`{}`,
		`{"a":null}`,
		`{"integer":1,"float":1.0,"large":9223372036854775807,"small":-9223372036854775808,"tiny":1e-300}`,
		`{"yes":true,"no":false,"empty":"","list":[],"map":{},"nested":[[{"a":[1,2.5,null,"x"]}]]}`,
		`{"text":"é ✓ \u0000 \" \\ \n"}`,
		`{"long":"` + strings.Repeat("0123456789abcdef", 20_000) + `"}`,
	}
	for _, first := range texts {
		var codec Codec
		for _, text := range append([]string{first}, texts...) {
			want := decoded(text)
			data, err := codec.Encode(want)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			codec.Decode(data, &got)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("after %.40s: encoded %.80v, got %.80v", first, want, got)
			}
		}
	}
}

// A small first value is no worse for the ones that follow than one of their kind.
func TestFirstValueOfAnotherSize(t *testing.T) {
	var codec, after Codec
	if _, err := after.Encode(map[string]any{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		want, err := codec.Encode(object(i))
		if err != nil {
			t.Fatal(err)
		}
		got, err := after.Encode(object(i))
		if err != nil || got != want {
			t.Errorf("object %d takes %d bytes, and %d without a small value before it: %v", i, len(got), len(want), err)
		}
	}
}

func TestCodecEncodesStructs(t *testing.T) {
	when := metav1.NewTime(time.Unix(1_700_000_000, 0))
	number, text := int64(3), "ready"
	want := workv1.ManifestWorkStatus{
		Conditions: []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, LastTransitionTime: when, Reason: "R", Message: "m", ObservedGeneration: 2}},
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
			ResourceMeta: workv1.ManifestResourceMeta{Ordinal: 1, Kind: "Deployment", Name: "a"},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				{Name: "n", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &number}},
				{Name: "s", Value: workv1.FieldValue{Type: workv1.String, String: &text}},
			}},
			Conditions: []metav1.Condition{},
		}}},
	}
	var codec Codec
	data, err := codec.Encode(&want)
	if err != nil {
		t.Fatal(err)
	}
	var got workv1.ManifestWorkStatus
	codec.Decode(data, &got)
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("encoded %+v, got %+v", want, got)
	}
}

func TestCodecRefusesWhatIsNoJSON(t *testing.T) {
	var codec Codec
	if _, err := codec.Encode(map[string]any{"f": func() {}}); err == nil {
		t.Error("a function was encoded")
	}
}

func TestDecodePanicsOnForeignData(t *testing.T) {
	var codec Codec
	if _, err := codec.Encode(object(0)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("data that the codec did not encode was decoded")
		}
	}()
	var got map[string]any
	codec.Decode("not encoded data", &got)
}

func TestObjectsOfAKindBecomeSmall(t *testing.T) {
	var codec Codec
	total := 0
	for i := range 100 {
		data, err := codec.Encode(object(i))
		if err != nil {
			t.Fatal(err)
		}
		total += len(data)
	}
	// As JSON without white space it is 560 bytes, as maps 2,900.
	if average := total / 100; average > 160 {
		t.Errorf("a ConfigMap takes %d bytes, want at most 160", average)
	}
}

func TestCodecIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var codec Codec
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 50 {
				want := object(worker*1000 + i)
				data, err := codec.Encode(want)
				if err != nil {
					t.Error(err)
					return
				}
				var got map[string]any
				codec.Decode(data, &got)
				if !reflect.DeepEqual(got, want) {
					t.Errorf("encoded %v, got %v", want, got)
					return
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkEncode(b *testing.B) {
	var codec Codec
	content := object(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := codec.Encode(content); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	var codec Codec
	data, err := codec.Encode(object(1))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var content map[string]any
		codec.Decode(data, &content)
	}
}

package controller

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kjson "sigs.k8s.io/json"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit/storedwork"
)

// decoderOf returns a decoder of a stream.
func decoderOf(stream string) *eventDecoder[*workv1.ManifestWork] {
	body := io.NopCloser(iotest.OneByteReader(strings.NewReader(stream)))
	return &eventDecoder[*workv1.ManifestWork]{body: body, events: newDecoder(body)}
}

const (
	added = `{"type":"ADDED","object":{"kind":"ManifestWork","apiVersion":"work.open-cluster-management.io/v1","metadata":{"name":"w","resourceVersion":"7"},` +
		`"spec":{"workload":{"manifests":[{"kind":"ConfigMap","data":{"n":1.0}}]}}}}`
	expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}`
)

func TestDecodeEvents(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		want         []watch.EventType
		err          error
	}{
		{"lines", added + "\n" + strings.Replace(added, "ADDED", "BOOKMARK", 1) + "\n", []watch.EventType{watch.Added, watch.Bookmark}, io.EOF},
		{"blank lines", "\n" + added + "\n\n\n" + added + "\n\n", []watch.EventType{watch.Added, watch.Added}, io.EOF},
		{"an event of several lines", strings.ReplaceAll(added, ",", ",\n") + "\n", []watch.EventType{watch.Added}, io.EOF},
		{"the type at the end", strings.Replace(added, `{"type":"ADDED",`, "{", 1)[:len(added)-len(`"type":"ADDED",`)-1] + `,"type":"MODIFIED"}` + "\n", []watch.EventType{watch.Modified}, io.EOF},
		{"an error", expired + "\n", []watch.EventType{watch.Error}, io.EOF},
		{"cut off", added[:50], nil, io.ErrUnexpectedEOF},
		{"nothing", "", nil, io.EOF},
		{"another type", strings.Replace(added, "ADDED", "OTHER", 1) + "\n", nil, nil},
		{"no object", `{"type":"ADDED"}` + "\n", nil, nil},
		{"an error without an object", `{"type":"ERROR"}` + "\n", nil, nil},
		{"not an event", "7\n", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decoderOf(c.stream)
			var got []watch.EventType
			for {
				eventType, object, err := d.Decode()
				if err != nil {
					if c.err != nil && !errors.Is(err, c.err) {
						t.Errorf("ends with %v, want %v", err, c.err)
					}
					break
				}
				got = append(got, eventType)
				if work, ok := object.(*workv1.ManifestWork); ok {
					if work.Name != "w" || string(work.Spec.Workload.Manifests[0].Raw) != `{"kind":"ConfigMap","data":{"n":1.0}}` && !strings.Contains(c.stream, ",\n") || work.Kind != "" {
						t.Errorf("work %+v", work)
					}
				} else if !apierrors.IsResourceExpired(apierrors.FromObject(object)) {
					t.Errorf("error %+v", object)
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("events %v, want %v", got, c.want)
			}
			d.Close()
		})
	}
}

// FuzzDecodeEvent compares with the decoder of client-go, which parses an event more often.
func FuzzDecodeEvent(f *testing.F) {
	for _, seed := range []string{
		added, expired, `{"object":{"status":"x"},"type":"ADDED"}`, `{"type":"DELETED","object":` + storedwork.Work(1, 2, 3) + "}",
		`{"type":"ADDED","object":{"metadata":null,"spec":{"deleteOption":null,"workload":{"manifests":[null,{},7]}},"status":{"conditions":[{"lastTransitionTime":null}]}}}`,
		`{"type":"ADDED","object":null,"other":[{}]}`, `{"type":"MODIFIED","object":{"METADATA":{"name":"x"},"metadata":{"generation":1e2}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		eventType, object, err := decodeEvent[*workv1.ManifestWork](newDecoder(bytes.NewReader(data)))
		if err != nil || !jsontext.Value(data).IsValid() { // several values, or a name twice
			return
		}
		var event metav1.WatchEvent
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &event); err != nil || event.Type != string(eventType) {
			t.Fatalf("event of type %q: want type %q: %v", eventType, event.Type, err)
		}
		var want runtime.Object = &workv1.ManifestWork{}
		if eventType == watch.Error {
			want = &metav1.Status{}
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(event.Object.Raw, want); err != nil {
			t.Fatalf("client-go refuses the object: %v", err)
		}
		if work, ok := want.(*workv1.ManifestWork); ok {
			work.TypeMeta = metav1.TypeMeta{}
		}
		if !reflect.DeepEqual(object, want) {
			t.Errorf("decoded %+v, want %+v", object, want)
		}
	})
}

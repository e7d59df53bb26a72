package controller

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// decoderOf returns a decoder of a stream.
func decoderOf(stream string) *workDecoder {
	body := io.NopCloser(strings.NewReader(stream))
	return &workDecoder{body: body, lines: bufio.NewReaderSize(body, 16)}
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

// FuzzDecodeEvent compares with what decodes type and object one after the other.
func FuzzDecodeEvent(f *testing.F) {
	f.Add([]byte(added))
	f.Add([]byte(expired))
	f.Add([]byte(`{"object":{"status":"x"},"type":"ADDED"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		eventType, object, err := decodeEvent(data)
		if err != nil {
			return
		}
		var event metav1.WatchEvent
		if err := json.Unmarshal(data, &event); err != nil {
			return // keys in other case
		}
		if (eventType == watch.Error) != (reflect.TypeOf(object) == reflect.TypeOf(&metav1.Status{})) {
			t.Errorf("%s with a %T", eventType, object)
		}
	})
}

package controller

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	listed = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[` +
		`{"kind":"PartialObjectMetadata","metadata":{"name":"a","namespace":"n","uid":"1","resourceVersion":"7","managedFields":[{"fieldsV1":{"f:metadata":{"name":"x"}}}]},"spec":{"name":"z"}},` +
		`{"metadata":{"uid":"2","resourceVersion":"8","name":"b","labels":{"]":"}"}}}]}` + "\n"
	listedNone = `{"items":[],"metadata":{"resourceVersion":"9"}}`
)

func TestReadListing(t *testing.T) {
	for text, want := range map[string]map[types.NamespacedName]version{
		listed: {
			{Namespace: "n", Name: "a"}: {uid: "1", resourceVersion: "7"},
			{Name: "b"}:                 {uid: "2", resourceVersion: "8"},
		},
		listedNone: {},
		`{"items":null,"metadata":{"resourceVersion":"9"}}`: {},
	} {
		l, err := readListing(strings.NewReader(text))
		if err != nil || l.resourceVersion != "9" || !maps.Equal(l.objects, want) {
			t.Errorf("%s: %+v, %v", text, l, err)
		}
		for end := range len(strings.TrimSpace(text)) {
			if l, err := readListing(strings.NewReader(text[:end])); err == nil {
				t.Errorf("the part %q is taken for a list: %+v", text[:end], l)
			}
		}
	}
	for _, text := range []string{
		`{"items":[],"metadata":{"resourceVersion":"9","continue":"x"}}`, `{"items":[]}`, `{"items":{},"metadata":{"resourceVersion":"9"}}`,
		`[]`, `null`, `{"metadata":{"resourceVersion":"9"},"items":[{}]}`, `{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}}]}`,
		`{"metadata":{"resourceVersion":"9"}}`, `{"kind":"Status","metadata":{},"status":"Failure"}`,
	} {
		if l, err := readListing(strings.NewReader(text)); err == nil {
			t.Errorf("%s is taken for a list: %+v", text, l)
		}
	}
}

// FuzzReadListing compares what is read with what the Kubernetes library decodes.
func FuzzReadListing(f *testing.F) {
	for _, text := range []string{listed, listedNone, listed[:len(listed)/2], `{"items":[{}]}`, `{"metadata":{"resourceVersion":"9","continue":"x"},"items":[]}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := readListing(strings.NewReader(text))
		if err != nil {
			return
		}
		if l.resourceVersion == "" {
			t.Errorf("%s: no resource version", text)
		}
		var whole metav1.PartialObjectMetadataList
		if json.NewDecoder(strings.NewReader(text)).Decode(&whole) != nil {
			return
		}
		if len(l.objects) > len(whole.Items) {
			t.Errorf("%s: %d objects of %d", text, len(l.objects), len(whole.Items))
		}
	})
}

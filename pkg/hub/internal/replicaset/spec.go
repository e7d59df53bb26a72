package replicaset

import (
	"bytes"
	"encoding/json"
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/works"
)

// hasTemplate reports whether work has the template of the set, or what overrides make of it. Of works that have one spec, one is
// unpacked.
func (in input) hasTemplate(work *workv1.ManifestWork) bool {
	if in.overriding != nil {
		return in.overriding.has(work)
	}
	template, key := &in.set.Spec.ManifestWorkTemplate, works.SpecKey(work)
	if key == "" {
		return sameSpec(&work.Spec, template)
	}
	if !apiequality.Semantic.DeepEqual(work.Spec.DeleteOption, template.DeleteOption) { // not part of the key
		return false
	}
	same, known := in.compared[key]
	if !known {
		same = sameSpec(&works.Unpack(work).Spec, template)
		in.compared[key] = same
	}
	return same
}

// sameSpec reports whether a work with this spec has the template. It ignores
// metadata.creationTimestamp in manifests, since Go programs write it as null in all metadata. The
// API server returns sorted keys, so that equal manifests are mostly equal bytes.
func sameSpec(spec, template *workv1.ManifestWorkSpec) bool {
	if len(spec.Workload.Manifests) != len(template.Workload.Manifests) {
		return false
	}
	for i := range spec.Workload.Manifests {
		if !sameManifest(spec.Workload.Manifests[i].Raw, template.Workload.Manifests[i].Raw) {
			return false
		}
	}
	a, b := *spec, *template
	a.Workload.Manifests, b.Workload.Manifests = nil, nil
	return apiequality.Semantic.DeepEqual(&a, &b)
}

func sameManifest(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	const key = "creationTimestamp"
	if !bytes.Contains(a, []byte(key)) && !bytes.Contains(b, []byte(key)) {
		return false
	}
	left, errLeft := withoutTimestamps(a)
	right, errRight := withoutTimestamps(b)
	return errLeft == nil && errRight == nil && reflect.DeepEqual(left, right)
}

// withoutTimestamps decodes a manifest and removes all metadata.creationTimestamp, including those
// of nested templates.
func withoutTimestamps(manifest []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(manifest))
	decoder.UseNumber()
	var object any
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	strip(object)
	return object, nil
}

func strip(value any) {
	switch value := value.(type) {
	case map[string]any:
		if metadata, ok := value["metadata"].(map[string]any); ok {
			delete(metadata, "creationTimestamp")
		}
		for _, inner := range value {
			strip(inner)
		}
	case []any:
		for _, inner := range value {
			strip(inner)
		}
	}
}

package replicaset

import (
	"bytes"
	"encoding/json"
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/compress"
)

// comparison is of a spec of works, by [works.SpecKey], with a template.
type comparison struct {
	spec      compress.Data
	abandoned bool // the one that the set has gone back from
}

// hasTemplate reports whether work has the template that clusters receive, or what overrides make of it.
func (in input) hasTemplate(work *workv1.ManifestWork) bool { return in.has(work, in.set, false) }

// hasAbandoned reports whether work has the template that the set has gone back from, or what overrides make of it.
func (in input) hasAbandoned(work *workv1.ManifestWork) bool {
	return in.revisions.Served != 0 && in.own != nil && in.has(work, in.own, true)
}

// has reports whether work has the template of a set, or what overrides make of it. Of works that have one spec, one is unpacked, and
// the template is rendered for it.
func (in input) has(work *workv1.ManifestWork, set *workv1alpha1.ManifestWorkReplicaSet, abandoned bool) bool {
	template, compared, c := &set.Spec.ManifestWorkTemplate, in.compared, comparison{works.SpecKey(work), abandoned}
	if !apiequality.Semantic.DeepEqual(work.Spec.DeleteOption, template.DeleteOption) { // not part of the key
		return false
	}
	if in.overriding != nil {
		compared = in.overriding.of(work.Namespace).compared
	}
	if same, known := compared[c]; known {
		return same
	}
	var err error
	switch {
	case in.overriding == nil:
	case abandoned:
		template, err = in.overriding.render(template, work.Namespace)
	default:
		template, err = in.overriding.specOf(work.Namespace)
	}
	same := err == nil && sameSpec(&works.Unpack(work).Spec, template)
	if in.overriding != nil && len(compared) >= maxCompared {
		clear(compared)
	}
	if c.spec != "" {
		compared[c] = same
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

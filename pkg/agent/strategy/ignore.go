package strategy

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// ignoring is what the ignoreFields of a manifest come to.
type ignoring struct {
	// present are the fields that are sent only when the object is created; nil if
	// there are none.
	present *fieldSelection
	// rest is the manifest without them.
	rest *unstructured.Unstructured
	// hash of it, as the annotation config-spec-hash has it.
	hash string
}

// selections compiles ignoreFields once for each strategy of a spec.
type selections map[*workv1.UpdateStrategy]selection

type selection struct {
	present *fieldSelection
	err     error
}

func (s selections) of(strategy *workv1.UpdateStrategy) (*fieldSelection, error) {
	known, ok := s[strategy]
	if !ok {
		known.present, known.err = selectPresent(strategy.ServerSideApply.IgnoreFields)
		s[strategy] = known
	}
	return known.present, known.err
}

// selectPresent gives the fields of OnSpokePresent; nil if there are none. Those of
// OnSpokeChange are part of the manifest like any other, and not looked at: that
// there is such an entry is all that matters.
func selectPresent(entries []workv1.IgnoreField) (*fieldSelection, error) {
	var present *fieldSelection
	seen := map[workv1.IgnoreFieldsCondition]bool{}
	for i := range entries {
		condition := entries[i].Condition
		if condition == "" {
			condition = workv1.IgnoreFieldsConditionOnSpokePresent
		}
		if seen[condition] {
			return nil, fmt.Errorf("ignoreFields has more than one entry with condition %s; put their fields into one", condition)
		}
		seen[condition] = true
		switch condition {
		case workv1.IgnoreFieldsConditionOnSpokePresent:
			var err error
			if present, err = compileFields(&entries[i]); err != nil {
				return nil, err
			}
		case workv1.IgnoreFieldsConditionOnSpokeChange:
		default:
			return nil, fmt.Errorf("ignoreFields has condition %q: it must be %s or %s", condition,
				workv1.IgnoreFieldsConditionOnSpokePresent, workv1.IgnoreFieldsConditionOnSpokeChange)
		}
	}
	return present, nil
}

// ignore evaluates the selected fields for one manifest, which is given as it is
// in the spec.
func ignore(from *workv1.Manifest, desired *unstructured.Unstructured, present *fieldSelection) (*ignoring, error) {
	content, err := decode(from)
	if err != nil {
		return nil, err
	}
	dropNullTimestamps(content)
	if content, err = present.remove(content, false); err != nil {
		return nil, err
	}
	rest := &unstructured.Unstructured{Object: content}
	result := &ignoring{present: present, rest: rest, hash: specHash(rest)}
	if _, err := clean(rest); err != nil {
		return nil, err
	}
	// Whatever was selected, it stays this object.
	rest.SetGroupVersionKind(desired.GroupVersionKind())
	if _, ok := content["metadata"].(map[string]any); !ok {
		content["metadata"] = map[string]any{}
	}
	rest.SetName(desired.GetName())
	rest.SetNamespace(desired.GetNamespace())
	return result, nil
}

// specHash is the hash that other agents for ManifestWorks compute too: an object
// that one of them applied is not applied once more.
func specHash(manifest *unstructured.Unstructured) string {
	sum := md5.Sum(fmt.Appendf(nil, "%v", manifest)) // tells manifests apart, guards nothing
	return hex.EncodeToString(sum[:])
}

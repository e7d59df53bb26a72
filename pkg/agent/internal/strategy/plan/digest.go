package plan

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/fields"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// The first letter of a digest is the strategy of the write.
const (
	updated = "U"
	created = "C" // CreateOnly
	applied = "A"
)

// FieldsDigest returns what an agent has to know after a restart about the last write of a
// manifest, given the object as it is since: by which strategy it was written, which fields it
// declared, and which values the API server did not store. A change of other values does not change
// it, unless there are ignoreFields, so that it is kept in the AppliedManifestWork without a request of
// its own. Digests of several manifests for one object are separated by commas.
func FieldsDigest(m *strategy.Manifest, live *unstructured.Unstructured) string {
	digest := declaredDigest(m)
	if m.Strategy == workv1.UpdateStrategyTypeUpdate {
		if undone := rulesFor(m, live).Undone(m.Desired, live); undone != "" {
			digest += "-" + undone[:8]
		}
	}
	return digest
}

// declaredDigest is the part of the digest that depends on the manifest alone.
func declaredDigest(m *strategy.Manifest) string {
	switch {
	case m.Strategy == workv1.UpdateStrategyTypeCreateOnly:
		return created
	case m.Strategy != workv1.UpdateStrategyTypeServerSideApply:
		shape := rulesFor(m, m.Desired).Shape(m.Desired)
		return updated + shape[:min(8, len(shape))]
	case m.Ignored != nil:
		return applied + m.Ignored.Digest[:8] // of values too: the hash in the object's annotation may miss a change
	default:
		return applied + fields.Digest([]string{m.Manager(), fields.AppliedShape(m.Desired)})[:8]
	}
}

// KeptDigest is FieldsDigest for an object that was not written.
func KeptDigest(m *strategy.Manifest, s State) string {
	if digest := s.recordedDigest(m); digest != "" {
		return digest
	}
	return FieldsDigest(m, s.Live.Object)
}

// recordedDigest returns the digest in FieldsDigest of a manifest that declared the same fields as
// m, "" if there is none.
func (s *State) recordedDigest(m *strategy.Manifest) string {
	declared := declaredDigest(m)
	for digest := range strings.SplitSeq(s.FieldsDigest, ",") {
		if before, _, _ := strings.Cut(digest, "-"); before == declared {
			return digest
		}
	}
	return ""
}

// wasApplied reports whether the manifest that was last written to the live object declared the
// same fields. If that manifest is not known, the digest says so.
func (s *State) wasApplied(m *strategy.Manifest) bool {
	if s.Previous != nil && s.Previous.Strategy == m.Strategy && s.Previous.FieldManager == m.FieldManager {
		return s.Previous.Hash == m.Hash
	}
	return s.recordedDigest(m) != ""
}

// wasStored reports whether the live object is what the API server made of this manifest.
func (s *State) wasStored(m *strategy.Manifest) bool {
	if s.Previous != nil {
		return sameWrite(m, s.Previous)
	}
	return slices.Contains(strings.Split(s.FieldsDigest, ","), FieldsDigest(m, s.Live.Object))
}

// wasUpdated reports whether the object may have fields that the agent wrote other than by
// server-side apply.
func (s *State) wasUpdated() bool {
	if s.Previous != nil && s.Previous.Strategy != workv1.UpdateStrategyTypeReadOnly {
		return s.Previous.Strategy != workv1.UpdateStrategyTypeServerSideApply
	}
	return strings.Contains(s.FieldsDigest, updated) || strings.Contains(s.FieldsDigest, created)
}

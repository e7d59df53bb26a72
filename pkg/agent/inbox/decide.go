package inbox

import (
	"bytes"
	"maps"
	"reflect"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Verdict is what an event means for what is held (docs/protocol.md, Ordering).
type Verdict int

// The verdicts. The first four change what is held, see [Verdict.Changes].
const (
	// Added: the work was not known and is held from now on.
	Added Verdict = iota + 1
	// Replaced: the spec takes the place of the one held.
	Replaced
	// Deletion: the work is to be deleted from now on.
	Deletion
	// Refused: the spec could not be decoded; what was in force stays so.
	Refused
	// Same: the event says what is held already.
	Same
	// Older: the event is of a generation before the one held, and is dropped.
	Older
	// Late: the work is being deleted, which no spec takes back.
	Late
	// Unknown: a deletion of a work that is not held. The source is to be
	// answered that it is gone.
	Unknown
	// Nameless: an event that could not be decoded and does not say which work
	// it is about; there is no one to answer.
	Nameless
)

var verdictNames = [...]string{"", "added", "replaced", "deletion", "refused", "same", "older", "late", "unknown", "nameless"}

// String gives a word in lower case, for logs and metrics.
func (v Verdict) String() string {
	if v <= 0 || int(v) >= len(verdictNames) {
		return "invalid"
	}
	return verdictNames[v]
}

// Changes reports whether the verdict changes what is held.
func (v Verdict) Changes() bool { return v >= Added && v <= Refused }

// Decide says what the event in means for held, the work of the same source and
// UID, nil when there is none. It never gives Refused or Nameless: see
// [DecideRefusal].
func Decide(held *Entry, in *wire.Spec) Verdict {
	if in.IsDeletion() {
		switch {
		case held == nil:
			return Unknown
		case held.Deleting != nil && held.Generation == in.Generation:
			return Same
		default:
			return Deletion
		}
	}
	switch {
	case held == nil:
		return Added
	case held.Deleting != nil:
		return Late
	case in.Generation != 0 && in.Generation < held.seen():
		return Older
	case held.Refusal == nil && held.Generation == in.Generation && same(held, in):
		return Same
	default:
		return Replaced
	}
}

// DecideRefusal says what an undecodable spec means for held, the work it names,
// nil when there is none.
func DecideRefusal(held *Entry, in Refusal) Verdict {
	switch {
	case held == nil:
		return Refused
	case held.Deleting != nil:
		return Late
	case in.Generation != 0 && in.Generation < held.seen():
		return Older
	case held.Refusal != nil && *held.Refusal == in:
		return Same
	default:
		return Refused
	}
}

// same reports whether in would change nothing of held but the generation.
func same(held *Entry, in *wire.Spec) bool {
	if !in.NoMetadata {
		meta := heldMeta(held, in)
		if !maps.Equal(meta.Labels, held.Meta.Labels) || !maps.Equal(meta.Annotations, held.Meta.Annotations) {
			return false
		}
	}
	spec := in.Bundle.WorkSpec()
	return sameManifests(held.Spec.Workload.Manifests, spec.Workload.Manifests) &&
		reflect.DeepEqual(held.Spec.DeleteOption, spec.DeleteOption) &&
		reflect.DeepEqual(held.Spec.ManifestConfigs, spec.ManifestConfigs) &&
		reflect.DeepEqual(held.Spec.Executor, spec.Executor)
}

func sameManifests(a, b []workv1.Manifest) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].Raw, b[i].Raw) {
			return false
		}
	}
	return true
}

package inbox

import (
	"bytes"
	"maps"
	"reflect"
	"slices"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Verdict is the effect of an event on a work (docs/protocol.md, Ordering).
type Verdict int

// The verdicts. The first six change the work, see [Verdict.Changes].
const (
	// Added: the work is new.
	Added Verdict = iota + 1
	// Replaced: the work has a new spec.
	Replaced
	// Deletion: the work must be deleted.
	Deletion
	// Refused: the spec could not be decoded; the spec in force stays.
	Refused
	// Held: the source does not know the work, and its identity has changed. The work stays.
	Held
	// Kept: the source knows a held work again, with an older spec. The spec in force stays.
	Kept
	// Disowned: the source does not know the work. [Inbox.DecideDisowned] decides.
	Disowned
	// Early: the deletion follows a spec that the agent lacks, and is put off.
	Early
	// Same: the event equals the work.
	Same
	// Older: the event has an older generation than the work, or than its deletion that was carried out, and is ignored.
	Older
	// Late: the work is being deleted, which a spec cannot undo.
	Late
	// Unknown: the deletion of a work that is not held. Report to the source that it is deleted.
	Unknown
	// Full: the agent holds as much of the source as it may, and refusals besides; nothing is recorded.
	Full
	// Nameless: the event could not be decoded and does not identify a work, so there is nothing to
	// report on.
	Nameless
)

var verdictNames = [...]string{"", "added", "replaced", "deletion", "refused", "held", "kept", "disowned", "early", "same", "older", "late", "unknown", "full", "nameless"}

// String returns the verdict in lower case, for logs and metrics.
func (v Verdict) String() string {
	if v <= 0 || int(v) >= len(verdictNames) {
		return "invalid"
	}
	return verdictNames[v]
}

// Changes reports whether the verdict changes the work.
func (v Verdict) Changes() bool { return v >= Added && v <= Kept }

// Decide returns the effect of the event in on held, the work with the same source and UID, or nil.
// It does not return Refused or Nameless, see [DecideRefusal], nor Early or Full.
func Decide(held *Entry, in *wire.Spec) Verdict {
	if in.IsDeletion() {
		switch {
		case held == nil:
			return Unknown
		case held.Deleting != nil && held.Generation == in.Generation:
			return Same
		case held.Deleting != nil || !in.NoMetadata || recorded(held, in):
			return Deletion
		case held.Hold != nil:
			return Same
		case identityChanged(held, in):
			return Held
		default:
			return Disowned
		}
	}
	older := in.Generation != 0 && in.Generation < latestGeneration(held) && !in.Authoritative
	switch {
	case held == nil:
		return Added
	case held.Deleting != nil:
		return Late
	case older && held.Hold != nil:
		return Kept
	case older:
		return Older
	case held.Hold == nil && held.Refusal == nil && held.Generation == in.Generation && held.Sealed == in.Sealed && same(held, in):
		return Same
	default:
		return Replaced
	}
}

// recorded reports whether a deletion without metadata is one that the source has recorded. A source that announces no identity says by the
// action which is which; ours publishes again, by the same action, what it does not know any more.
func recorded(held *Entry, in *wire.Spec) bool {
	return in.Action == wire.Delete && in.SourceIdentity == "" && held.SourceIdentity == ""
}

// DecideRefusal returns the effect of a spec that could not be decoded on held, the work that it
// identifies, or nil. An authoritative spec counts although its generation is older.
func DecideRefusal(held *Entry, in Refusal, authoritative bool) Verdict {
	switch {
	case held == nil:
		return Refused
	case held.Deleting != nil:
		return Late
	case in.Generation != 0 && in.Generation < latestGeneration(held) && !authoritative:
		return Older
	case held.Hold == nil && held.Refusal != nil && *held.Refusal == in:
		return Same
	default:
		return Refused
	}
}

// same reports whether in changes nothing of held except for the generation.
func same(held *Entry, in *wire.Spec) bool {
	if !in.NoMetadata {
		meta := heldMeta(held, in)
		if !maps.Equal(meta.Labels, held.Meta.Labels) || !maps.Equal(meta.Annotations, held.Meta.Annotations) {
			return false
		}
	}
	spec := in.Bundle.WorkSpec()
	sameManifest := func(a, b workv1.Manifest) bool { return bytes.Equal(a.Raw, b.Raw) }
	return slices.EqualFunc(held.Spec.Workload.Manifests, spec.Workload.Manifests, sameManifest) &&
		reflect.DeepEqual(held.Spec.DeleteOption, spec.DeleteOption) &&
		reflect.DeepEqual(held.Spec.ManifestConfigs, spec.ManifestConfigs) &&
		reflect.DeepEqual(held.Spec.Executor, spec.Executor)
}

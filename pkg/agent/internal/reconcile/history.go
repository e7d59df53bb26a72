package reconcile

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/pods"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/runtime/logging"
)

// history is what the reconciles of one name leave to the next one. The worker that holds the name
// owns it.
type history struct {
	// spec is the work that was reconciled last, nil after a start.
	spec *inbox.Entry
	// applied maps each object to the work whose spec it was last applied from. Nil means spec, for
	// all of its manifests. See lastApplied.
	applied map[object.Ref]*inbox.Entry
	// failures holds the manifests of spec that could not be applied, by index; failing, what was
	// logged about the other failures of a reconcile.
	failures map[int]*failure
	failing  logging.Repeated
	// pods holds what is known of the pods of workloads that are not ready.
	pods map[object.Ref]pods.Known
	// warnings holds what the last writes of manifests were warned of.
	warnings map[warned][]string
	repairs  repairs
	// deniedReads holds the objects of manifests that the executor may get and not write, by index.
	deniedReads map[int]deniedRead
	// lastRemovals holds what became of the objects that were to be removed since spec, or the deletion of the AppliedManifestWork
	// lastRemovalsOf, if that is not empty.
	lastRemovals   map[object.Ref]*lastRemoval
	lastRemovalsOf types.UID
	// digest is that of spec, if its manifests have an order.
	digest specDigest
	// cycle says by which works the work depends on itself; empty if it does not.
	cycle string
	// expressions is what is known of those of the spec that was reconciled last.
	expressions expressions
	// marks is the backoff of marking the AppliedManifestWork for eviction.
	marks backoff
}

func (h *history) isZero() bool {
	return h.spec == nil && h.applied == nil && h.failures == nil && !h.failing.Failing() && h.warnings == nil && h.pods == nil &&
		h.repairs.count == 0 && h.repairs.objects == nil && h.deniedReads == nil && h.lastRemovals == nil &&
		h.expressions.of == nil && h.digest.of == nil && h.cycle == "" &&
		h.marks.failures == 0
}

// reset forgets everything that is about the manifests of the spec before.
func (h *history) reset() {
	h.failures, h.repairs = nil, repairs{last: h.repairs.last}
}

// left returns the resources without those of which only the intent is known, and that are known to be gone.
func (h *history) left(resources []applied.Resource) []applied.Resource {
	return slices.DeleteFunc(resources, func(res applied.Resource) bool {
		last := h.lastRemovals[res.Ref]
		return last != nil && last.outcome.Gone && res.UID == ""
	})
}

// lastApplied finds the manifests that were last applied for a work. The history keeps only the
// specs that contain them, which the inbox holds in memory anyway; a spec is parsed again only when
// the work has another one now.
type lastApplied struct {
	history *history
	entry   *inbox.Entry
	current []strategy.Manifest // of entry
	parse   func(*inbox.Entry) []strategy.Manifest
	parsed  map[*inbox.Entry]map[object.Ref]*strategy.Manifest // filled on demand
}

// newLastApplied returns the lastApplied of a reconcile of entry, whose manifests are current.
func newLastApplied(h *history, entry *inbox.Entry, current []strategy.Manifest, parse func(*inbox.Entry) []strategy.Manifest) *lastApplied {
	return &lastApplied{history: h, entry: entry, current: current, parse: parse, parsed: map[*inbox.Entry]map[object.Ref]*strategy.Manifest{}}
}

// manifest returns the manifest last applied to ref, nil if it is not known.
func (l *lastApplied) manifest(ref object.Ref) *strategy.Manifest {
	if spec := l.spec(ref); spec != nil {
		return l.manifests(spec)[ref]
	}
	return nil
}

// spec returns the work whose spec has the manifest last applied to ref, or nil.
func (l *lastApplied) spec(ref object.Ref) *inbox.Entry {
	h := l.history
	if h.applied != nil {
		return h.applied[ref]
	}
	if h.spec == nil || l.manifests(h.spec)[ref] == nil {
		return nil
	}
	return h.spec
}

// manifests returns the valid manifests of spec by object.
func (l *lastApplied) manifests(spec *inbox.Entry) map[object.Ref]*strategy.Manifest {
	if known, ok := l.parsed[spec]; ok {
		return known
	}
	manifests := l.current
	if spec != l.entry {
		manifests = l.parse(spec)
	}
	byRef := make(map[object.Ref]*strategy.Manifest, len(manifests))
	for i := range manifests {
		if m := &manifests[i]; m.Err == nil {
			byRef[m.Ref] = m
		}
	}
	l.parsed[spec] = byRef
	return byRef
}

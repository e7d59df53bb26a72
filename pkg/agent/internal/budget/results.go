package budget

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

// Kind is what was evaluated.
type Kind int8

// Kinds.
const (
	IgnoreFields Kind = iota
	ConditionRules
	FeedbackRules
)

// Key names a result of a work.
type Key struct {
	Manifest int32
	Kind     Kind
}

// State is that of the object on which expressions were evaluated; the zero State for a manifest.
type State struct {
	UID     types.UID
	Version string
}

// result is a kept one.
type result struct {
	State
	value    any
	size     int // bytes
	before   int // steps that were left
	steps    int
	exceeded bool
}

// Results are what the expressions of the spec of one work resulted in, in reconciles that had the turn. The worker
// that holds the work owns them. The zero Results are empty.
type Results struct {
	kept map[Key]result
}

// IsZero reports whether there are none.
func (r *Results) IsZero() bool { return len(r.kept) == 0 }

// Drop forgets the results of a work of source.
func (a *Accounts) Drop(source wire.SourceID, r *Results) {
	for _, k := range r.kept {
		a.room(source, -k.size)
	}
	r.kept = nil
}

// room takes room for results of a source, and reports whether there was.
func (a *Accounts) room(source wire.SourceID, bytes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	used := a.kept[source] + bytes
	if used > maxKept {
		return false
	}
	if a.kept[source] = used; used == 0 {
		delete(a.kept, source)
	}
	return true
}

// Kept returns a result that is kept. It counts the steps that it took, and is the one that would come out now: results do
// not depend on what is kept.
func (b *Budget) Kept(key Key, state State) (value any, ok bool) {
	if b == nil || b.results == nil {
		return nil, false
	}
	k, ok := b.results.kept[key]
	if !ok || k.State != state || key.Kind != IgnoreFields && state.Version == "" || k.before != b.left && (k.exceeded || k.steps > b.left) {
		return nil, false
	}
	b.left -= k.steps
	return k.value, true
}

// Keeps reports whether results are kept.
func (b *Budget) Keeps() bool {
	return b != nil && b.results != nil && b.turn && !b.deferred && !b.late
}

// Keep keeps a result if b keeps results and the source has room. before is what Left was.
func (b *Budget) Keep(key Key, state State, before int, value any, size int) {
	if !b.Keeps() {
		return
	}
	const overhead = 200
	size += overhead
	if old, ok := b.results.kept[key]; ok {
		b.accounts.room(b.source, -old.size)
		delete(b.results.kept, key)
	}
	if !b.accounts.room(b.source, size) {
		return
	}
	if b.results.kept == nil {
		b.results.kept = map[Key]result{}
	}
	b.results.kept[key] = result{State: state, value: value, size: size, before: before, steps: before - b.left, exceeded: b.left == 0}
}

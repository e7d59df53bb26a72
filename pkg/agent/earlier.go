package agent

import (
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
)

// earlier gives the manifests that were last applied with success for a work. What
// is remembered from one pass to the next is the specs that they stand in, which
// the inbox holds anyway; they are read again only when a spec has changed. The
// worker that does the pass owns it.
type earlier struct {
	memory  *memory
	entry   *inbox.Entry
	current []strategy.Manifest // of entry
	parse   func(*inbox.Entry) []strategy.Manifest
	parsed  map[*inbox.Entry]map[object.Ref]*strategy.Manifest // filled when asked for
}

// newEarlier is for a pass over entry, whose manifests are read already.
func newEarlier(m *memory, entry *inbox.Entry, manifests []strategy.Manifest, parse func(*inbox.Entry) []strategy.Manifest) *earlier {
	return &earlier{memory: m, entry: entry, current: manifests, parse: parse, parsed: map[*inbox.Entry]map[object.Ref]*strategy.Manifest{}}
}

// manifest gives the one last applied to ref, nil if that is not known.
func (e *earlier) manifest(ref object.Ref) *strategy.Manifest {
	if spec := e.spec(ref); spec != nil {
		return e.manifests(spec)[ref]
	}
	return nil
}

// spec gives the spec in which the manifest last applied to ref stands, or nil.
func (e *earlier) spec(ref object.Ref) *inbox.Entry {
	m := e.memory
	if m.applied != nil {
		return m.applied[ref]
	}
	if m.spec == nil || e.manifests(m.spec)[ref] == nil {
		return nil
	}
	return m.spec
}

func (e *earlier) manifests(spec *inbox.Entry) map[object.Ref]*strategy.Manifest {
	if known, ok := e.parsed[spec]; ok {
		return known
	}
	manifests := e.current
	if spec != e.entry {
		manifests = e.parse(spec)
	}
	e.parsed[spec] = byRef(manifests)
	return e.parsed[spec]
}

// byRef leaves out what can not be applied.
func byRef(manifests []strategy.Manifest) map[object.Ref]*strategy.Manifest {
	found := make(map[object.Ref]*strategy.Manifest, len(manifests))
	for i := range manifests {
		if m := &manifests[i]; m.Err == nil {
			found[m.Ref] = m
		}
	}
	return found
}

package inbox

import "github.com/workwire/workwire/pkg/wire"

// maxPast is how many deleted works are remembered.
const maxPast = 1_000

// past remembers the works that were deleted last, with the generation of their deletion: a spec from before the deletion may arrive after it, late, or
// from a hub that has taken over and does not know yet that the work is deleted. It is in memory only.
type past struct {
	deletions map[Key]wire.Generation
	order     []Key // of deletions, oldest first
}

// add notes that a work is deleted.
func (p *past) add(key Key, deletion wire.Generation) {
	if _, known := p.deletions[key]; !known {
		p.order = append(p.order, key)
	}
	if p.deletions == nil {
		p.deletions = map[Key]wire.Generation{}
	}
	p.deletions[key] = deletion
	if len(p.order) > maxPast {
		delete(p.deletions, p.order[0])
		p.order = p.order[1:]
	}
}

// has reports whether in, a spec of a work that is not held, is from before the deletion of that work. One that answers a question counts: the
// source has been restored, or has the work again. Other sources than Workwire's may not hear a question that follows.
func (p *past) has(in *wire.Spec) bool {
	deletion, known := p.deletions[Key{in.Source, in.UID}]
	return known && in.Generation < deletion && in.Action != wire.ResyncResponse && in.SourceIdentity != ""
}

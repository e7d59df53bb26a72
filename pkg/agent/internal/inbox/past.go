package inbox

import "github.com/workwire/workwire/pkg/wire"

// maxPast is how many deleted works are remembered, in memory only.
const maxPast = 1_000

// pastWork is a work that was deleted.
type pastWork struct {
	deletion wire.Generation
	asked    uint64 // how often its source had been asked for all works, see [Inbox.Expect]
	expected bool   // its source was asked for it since
}

// questions returns how often source was asked for all works. b.mu must be held.
func (b *Inbox) questions(source wire.SourceID) uint64 { return b.asked[source] + b.asked[""] }

// Expect notes that source, all if it is empty, is asked for works, all if there are none: its answer counts, also of a work that was deleted.
func (b *Inbox) Expect(source wire.SourceID, works []wire.SpecVersion) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if works == nil {
		b.asked[source]++
	}
	for i := range works {
		key := Key{source, works[i].UID}
		if past, known := b.past.Get(key); known {
			p := past.(pastWork)
			p.expected = true
			b.past.Add(key, p)
		}
	}
}

// isPast reports whether in, a spec of a work that is not held, is from before the deletion of that work: it may arrive late, or from a hub that
// has taken over and does not know yet that the work is deleted. One that answers a question that was asked since counts: the source has been restored,
// or has the work again. One that answers an earlier question precedes a deletion that was carried out already. Other sources than Workwire's may not hear a
// question that follows.
func (b *Inbox) isPast(in *wire.Spec) bool {
	past, known := b.past.Get(Key{in.Source, in.UID})
	if !known || in.SourceIdentity == "" {
		return false
	}
	p := past.(pastWork)
	return in.Generation < p.deletion && (in.Action != wire.ResyncResponse || !p.expected && b.questions(in.Source) == p.asked)
}

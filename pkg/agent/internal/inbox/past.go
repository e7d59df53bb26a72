package inbox

import "github.com/workwire/workwire/pkg/wire"

// maxPast is how many deleted works are remembered, in memory only.
const maxPast = 1_000

// isPast reports whether in, a spec of a work that is not held, is from before the deletion of that work: it may arrive late, or from a hub that
// has taken over and does not know yet that the work is deleted. One that answers a question counts: the source has been restored, or has the
// work again. Other sources than Workwire's may not hear a question that follows.
func (b *Inbox) isPast(in *wire.Spec) bool {
	deletion, known := b.past.Get(Key{in.Source, in.UID})
	return known && in.Generation < deletion.(wire.Generation) && in.Action != wire.ResyncResponse && in.SourceIdentity != ""
}

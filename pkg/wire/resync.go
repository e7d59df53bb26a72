package wire

import (
	"encoding/json"
	"iter"

	"k8s.io/apimachinery/pkg/types"
)

// WorkVersion is the version of a work that a source has.
type WorkVersion struct {
	UID        types.UID
	Generation Generation
	Deleting   bool
}

// Answer returns what a source must send (docs/protocol.md, Spec resync): send contains the works
// to send, in the order of works; gone contains the works that the agent holds and the source does
// not have, to be answered with a deletion. works are all works of this source for the requesting
// cluster. It costs O(n) for n listed works and works.
func (r *SpecResync) Answer(works iter.Seq[WorkVersion]) (send []types.UID, gone []SpecVersion) {
	held := make(map[types.UID]Generation, len(r.Versions))
	for _, h := range r.Versions {
		held[h.UID] = h.Generation
	}
	known := make(map[types.UID]struct{}, len(r.Versions))
	for work := range works {
		known[work.UID] = struct{}{}
		have, holds := held[work.UID]
		if !holds || work.Deleting || work.Generation == 0 || work.Generation > have {
			send = append(send, work.UID)
		}
	}
	for _, h := range r.Versions {
		if _, ok := known[h.UID]; !ok {
			gone = append(gone, h)
		}
	}
	return send, gone
}

// Overrule returns the listed works that the source must send again as authoritative: those that
// the agent holds at a higher generation than own returns, and those that it holds at an equal
// generation with other content than hash returns. Entries without a hash and works for which own
// returns false are not among them. hash is called for equal generations only. It costs O(n) for n
// listed works.
func (r *SpecResync) Overrule(own func(types.UID) (Generation, bool), hash func(types.UID) string) (send []types.UID) {
	for _, h := range r.Versions {
		generation, ok := own(h.UID)
		if ok && h.ContentHash != "" && (h.Generation > generation || h.Generation == generation && h.ContentHash != hash(h.UID)) {
			send = append(send, h.UID)
		}
	}
	return send
}

// Answer returns the works whose statuses an agent must send (docs/protocol.md, Status resync): the
// listed works that have another hash, or all if the list is empty. hash returns the hash of a work
// of the requesting source, and false for other works. all contains the UIDs of all works of that
// source, and is only used for an empty list.
func (r *StatusResync) Answer(hash func(types.UID) (string, bool), all iter.Seq[types.UID]) (send []types.UID) {
	if len(r.Hashes) == 0 {
		for uid := range all {
			send = append(send, uid)
		}
		return send
	}
	for _, have := range r.Hashes {
		if current, ok := hash(have.UID); ok && current != have.Hash {
			send = append(send, have.UID)
		}
	}
	return send
}

// Split splits r into requests whose data is at most limit bytes long, 0 for no limit. This does
// not change the answers, since works that are not listed are not answered (docs/protocol.md,
// Limits). A request for everything is returned unchanged. An entry that exceeds limit is returned
// in its own request.
func (r *StatusResync) Split(limit int) []*StatusResync {
	if limit <= 0 || len(r.Hashes) == 0 {
		return []*StatusResync{r}
	}
	around := len(`{"statusHashes":[]}`)
	if r.Reply {
		around += len(`,"reply":true`)
	}
	var parts []*StatusResync
	start, size := 0, around
	cut := func(end int) {
		part := *r
		part.Hashes = r.Hashes[start:end]
		parts = append(parts, &part)
		start, size = end, around
	}
	for i := range r.Hashes {
		data, _ := json.Marshal(&r.Hashes[i]) // two strings: it cannot fail
		entry := len(data) + len(",")
		if size+entry > limit && i > start {
			cut(i)
		}
		size += entry
	}
	cut(len(r.Hashes))
	return parts
}

package wire

import (
	"encoding/json"
	"iter"

	"k8s.io/apimachinery/pkg/types"
)

// WorkVersion is what a source knows of one of its works when it answers a spec
// resync.
type WorkVersion struct {
	UID        types.UID
	Generation Generation
	Deleting   bool
}

// Answer decides what a source owes the agent (docs/protocol.md, Spec resync):
// send lists the works to send, in the order of works; gone lists what the agent
// holds and the source does not have, to be answered by a deletion. works are
// all works of the asking cluster that belong to this source. It costs one pass
// over both.
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

// Answer decides which statuses an agent owes the source (docs/protocol.md,
// Status resync): the listed works that the agent holds with another hash, or,
// when the list is empty, all of them. hash gives the hash of a work that belongs
// to the asking source, and false for a work that does not; all gives the UIDs of
// all works of that source and is called only for an empty list.
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

// Split cuts r into requests whose data is at most limit bytes each, 0 meaning
// no limit. A status resync may be cut because a work that is not listed is not
// answered (docs/protocol.md, Limits). A request that asks for everything comes
// back as it is, and an entry that alone exceeds limit stands alone.
func (r *StatusResync) Split(limit int) []*StatusResync {
	if limit <= 0 || len(r.Hashes) == 0 {
		return []*StatusResync{r}
	}
	const around = len(`{"statusHashes":[]}`)
	var parts []*StatusResync
	start, size := 0, around
	cut := func(end int) {
		parts = append(parts, &StatusResync{Source: r.Source, Cluster: r.Cluster, Hashes: r.Hashes[start:end]})
		start, size = end, around
	}
	for i := range r.Hashes {
		entry := jsonSize(&r.Hashes[i]) + len(",")
		if size+entry > limit && i > start {
			cut(i)
		}
		size += entry
	}
	cut(len(r.Hashes))
	return parts
}

// jsonSize is the length of v as JSON; v is one of the plain structs of this
// package, which always marshal.
func jsonSize(v any) int {
	data, err := json.Marshal(v)
	if err != nil {
		return 0
	}
	return len(data)
}

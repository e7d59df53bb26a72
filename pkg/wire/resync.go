package wire

import (
	"encoding/json"
	"iter"
	"slices"

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
	if len(r.Hashes) == 0 && r.Buckets == nil {
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

// HeldSpec is the version of a spec that an agent holds, or of a work that it is deleting.
type HeldSpec struct {
	SpecVersion
	Deleting bool
}

// DifferingSpecs returns what the agent lists in the partial spec resync request that answers r, a
// request with Buckets: works that it holds in another version than r lists or that r leaves out,
// and listed works that it does not hold, with generation 0. held are all works of the source that
// the agent holds; a work that the agent keeps although the source does not know it is not among
// them. A work that the agent is deleting may be left out by r. It costs O(n) for n listed works
// and held ones.
func (r *StatusResync) DifferingSpecs(held iter.Seq[HeldSpec]) (differing []SpecVersion) {
	if r.Buckets == nil {
		return nil
	}
	named := make(map[int]struct{}, len(r.Buckets.Indices))
	for _, i := range r.Buckets.Indices {
		named[i] = struct{}{}
	}
	listed := make(map[types.UID]*StatusVersion, len(r.Hashes))
	for i := range r.Hashes {
		listed[r.Hashes[i].UID] = &r.Hashes[i]
	}
	for have := range held {
		if _, ok := named[Bucket(have.UID, r.Buckets.Count)]; !ok {
			continue
		}
		want := listed[have.UID]
		delete(listed, have.UID)
		if want == nil && !have.Deleting || want != nil && have.differs(want) {
			differing = append(differing, have.SpecVersion)
		}
	}
	for uid := range listed {
		differing = append(differing, SpecVersion{UID: uid})
	}
	return differing
}

// differs reports whether the agent should hold another spec than h.
func (h *HeldSpec) differs(want *StatusVersion) bool {
	if h.Deleting || want.Deleting {
		return h.Deleting != want.Deleting
	}
	return h.Generation != want.Generation || want.ContentHash != "" && h.ContentHash != want.ContentHash
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
	if r.Buckets != nil {
		return r.splitBuckets(limit)
	}
	var parts []*StatusResync
	for _, hashes := range splitList(r.Hashes, limit-around) {
		part := *r
		part.Hashes = hashes
		parts = append(parts, &part)
	}
	return parts
}

// splitBuckets splits a request with Buckets so that each part lists all works of the buckets that
// it names. A bucket that is too large by itself is split into two: bucket i of n has the works of
// the buckets i and n+i of 2n.
func (r *StatusResync) splitBuckets(limit int) []*StatusResync {
	if encodedSize(r.Hashes)+len(`{"statusHashes":[],"buckets":{"count":,"indices":[]}}`)+10*(1+len(r.Buckets.Indices)) <= limit {
		return []*StatusResync{r}
	}
	count, indices := r.Buckets.Count, r.Buckets.Indices
	var halves [2]Buckets
	switch {
	case len(indices) > 1:
		middle := len(indices) / 2
		halves[0], halves[1] = Buckets{count, indices[:middle]}, Buckets{count, indices[middle:]}
	case len(r.Hashes) > 1 && count <= maxBucketCount/2:
		halves[0], halves[1] = Buckets{2 * count, indices}, Buckets{2 * count, []int{count + indices[0]}}
	default:
		return []*StatusResync{r}
	}
	var parts []*StatusResync
	for i := range halves {
		half := *r
		half.Buckets, half.Hashes = &halves[i], nil
		for _, version := range r.Hashes {
			if slices.Contains(halves[i].Indices, Bucket(version.UID, halves[i].Count)) {
				half.Hashes = append(half.Hashes, version)
			}
		}
		parts = append(parts, half.splitBuckets(limit)...)
	}
	return parts
}

// Split splits a partial request into requests whose data is at most limit bytes long, 0 for no
// limit. An entry that exceeds limit is returned in its own request.
func (r *SpecResync) Split(limit int) []*SpecResync {
	if limit <= 0 || !r.Partial {
		return []*SpecResync{r}
	}
	var parts []*SpecResync
	for _, versions := range splitList(r.Versions, limit-len(`{"resourceVersions":[],"partial":true}`)) {
		part := *r
		part.Versions = versions
		parts = append(parts, &part)
	}
	return parts
}

// splitList splits entries into lists whose JSON is at most limit bytes long. An entry that exceeds
// limit is in its own list.
func splitList[T any](entries []T, limit int) (parts [][]T) {
	start, size := 0, 0
	for i := range entries {
		entry := encodedSize(entries[i : i+1])
		if size+entry > limit && i > start {
			parts = append(parts, entries[start:i])
			start, size = i, 0
		}
		size += entry
	}
	return append(parts, entries[start:])
}

// encodedSize returns the size of the JSON of entries with a comma after each.
func encodedSize[T any](entries []T) (size int) {
	for i := range entries {
		data, _ := json.Marshal(&entries[i]) // texts and numbers: it cannot fail
		size += len(data) + len(",")
	}
	return size
}

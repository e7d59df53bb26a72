package wire

import (
	"fmt"
	"iter"
	"slices"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"
)

// StatusResync requests the statuses that the source lacks, from one agent or all
// (docs/protocol.md, Status resync).
type StatusResync struct {
	// Source is the requesting source: the event's `source`; required.
	Source SourceID
	// Cluster is the requested cluster; empty for all.
	Cluster ClusterName
	// Hashes lists the statuses that the source has; empty requests everything, unless Buckets is
	// set. Works that a non-empty list does not contain are not sent.
	Hashes []StatusVersion
	// Buckets is set if Hashes lists all works of these buckets, with the specs that the agent
	// should hold (docs/protocol.md, Digest).
	Buckets *Buckets
	// SourceIdentity is like that of a [Spec].
	SourceIdentity string
	// Accepts is what the source can read.
	Accepts Accepts
	// Reply reports whether the source sends the request because the agent has asked for specs, so
	// that the agent must not ask for specs because of it.
	Reply bool
}

// NoStatus is a hash that no status has: it requests the status of a work whatever it is, also of a
// work that the source does not know.
const NoStatus = "none"

// StatusVersion is the hash of a status that a source has.
type StatusVersion struct {
	UID  types.UID `json:"resourceID"`
	Hash string    `json:"statusHash"`
	// Generation, ContentHash and Deleting describe the spec that the agent should hold, in a
	// request with Buckets. The hash is empty if the source does not know it.
	Generation  Generation `json:"resourceVersion,omitempty"`
	ContentHash string     `json:"contentHash,omitempty"`
	Deleting    bool       `json:"deleting,omitempty"`
}

// Buckets names some of Count buckets, see [Bucket].
type Buckets struct {
	Count   int   `json:"count"`
	Indices []int `json:"indices"`
}

// validate returns an error if b names no possible buckets. A nil b is valid.
func (b *Buckets) validate() error {
	if b == nil {
		return nil
	}
	if b.Count < 1 || b.Count > maxBucketCount || len(b.Indices) == 0 {
		return fmt.Errorf("%d of %d buckets: want at least one, of 1 to %d", len(b.Indices), b.Count, maxBucketCount)
	}
	for _, i := range b.Indices {
		if i < 0 || i >= b.Count {
			return fmt.Errorf("bucket %d: want 0 to %d", i, b.Count-1)
		}
	}
	return nil
}

type statusResyncData struct {
	StatusHashes []StatusVersion `json:"statusHashes"`
	Reply        bool            `json:"reply,omitempty"`
	Buckets      *Buckets        `json:"buckets,omitempty"`
}

func (r *StatusResync) eventType() (EventType, error) {
	if r.Source == "" {
		return EventType{}, fmt.Errorf("status resync request: source is required")
	}
	if err := r.Buckets.validate(); err != nil {
		return EventType{}, fmt.Errorf("status resync request: %w", err)
	}
	return EventType{Data: ManifestBundles, Subresource: SubresourceStatus, Action: ResyncRequest}, nil
}

func (r *StatusResync) encode(e *cloudevents.Event) error {
	setSender(e, string(r.Source), r.Cluster, r.Source)
	setText(e, extSourceIdentity, r.SourceIdentity)
	setText(e, extAccepts, r.Accepts.String())
	return setData(e, statusResyncData{StatusHashes: orEmpty(r.Hashes), Reply: r.Reply, Buckets: r.Buckets})
}

func decodeStatusResync(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	var data statusResyncData
	if err := decodeData(e, &data, "list of status hashes"); err != nil {
		return nil, err
	}
	if err := data.Buckets.validate(); err != nil {
		return nil, err
	}
	for i := range data.StatusHashes {
		if err := checkVersion(i, data.StatusHashes[i].UID, data.StatusHashes[i].Hash, data.StatusHashes[i].ContentHash); err != nil {
			return nil, err
		}
	}
	identity, err := x.shaped(extSourceIdentity, memoryIdentityShape)
	if err != nil {
		return nil, err
	}
	return &StatusResync{
		Source:         SourceID(e.Source()),
		Cluster:        ClusterName(x.text(extClusterName)),
		Hashes:         data.StatusHashes,
		Buckets:        data.Buckets,
		SourceIdentity: identity,
		Accepts:        ParseAccepts(x.text(extAccepts)),
		Reply:          data.Reply,
	}, nil
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

// differs reports whether the agent should hold another spec than h.
func (h *HeldSpec) differs(want *StatusVersion) bool {
	if h.Deleting || want.Deleting {
		return h.Deleting != want.Deleting
	}
	return h.Generation != want.Generation || want.ContentHash != "" && h.ContentHash != want.ContentHash
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

package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Digest tells a source in short what an agent holds of it, so that both notice what messages were
// lost (docs/protocol.md, Digest).
type Digest struct {
	// Agent is the client id of the agent: the event's `source`; required.
	Agent string
	// Cluster is the cluster of the agent; required.
	Cluster ClusterName
	// Source is the source of the works; required.
	Source SourceID
	// Buckets are the digests of the works by [Bucket]; 1 to [MaxDigestBuckets].
	Buckets []BucketDigest
	// Expires is when the broker may drop the digest; zero: never.
	Expires time.Time
}

const (
	// MaxDigestBuckets is the maximum number of buckets of a [Digest].
	MaxDigestBuckets = 64
	// worksPerBucket is the number of works from which a digest has another bucket.
	worksPerBucket = 16
	// maxBucketCount bounds [Buckets].Count.
	maxBucketCount = 1 << 30
)

// BucketDigest is the sum of the digests of all works of a bucket, in any order. Sums wrap around.
type BucketDigest struct {
	// Works is the sum of [SpecDigest] and [StatusDigest] of the works.
	Works uint64
	// Contents is the sum of [ContentDigest] of the works.
	Contents uint64
}

// Add adds the digest of a work.
func (b *BucketDigest) Add(work BucketDigest) {
	b.Works += work.Works
	b.Contents += work.Contents
}

// digestData is the data of a [Digest]: 16 hexadecimal digits for each bucket.
type digestData struct {
	Works    []string `json:"works"`
	Contents []string `json:"contents"`
}

func (d *Digest) eventType() (EventType, error) {
	if d.Agent == "" || d.Cluster == "" || d.Source == "" {
		return EventType{}, fmt.Errorf("digest: agent, cluster and source are required")
	}
	if n := len(d.Buckets); n < 1 || n > MaxDigestBuckets {
		return EventType{}, fmt.Errorf("digest: %d buckets: want 1 to %d", n, MaxDigestBuckets)
	}
	return EventType{Data: Digests, Subresource: SubresourceStatus, Action: Update}, nil
}

func (d *Digest) encode(e *cloudevents.Event) error {
	setSender(e, d.Agent, d.Cluster, d.Source)
	setExpiry(e, d.Expires)
	return setData(e, digestDataOf(d.Buckets))
}

func decodeDigest(e cloudevents.Event, x extensions, _ Action) (Message, error) {
	var data digestData
	if err := decodeData(e, &data, "digest"); err != nil {
		return nil, err
	}
	d := &Digest{Agent: e.Source(), Cluster: ClusterName(x.text(extClusterName)), Source: SourceID(x.text(extOriginalSource)), Expires: x.expiry()}
	if d.Cluster == "" || d.Source == "" {
		return nil, errors.New("clustername and originalsource are required")
	}
	var err error
	d.Buckets, err = data.buckets()
	return d, err
}

func digestDataOf(buckets []BucketDigest) digestData {
	var data digestData
	for _, b := range buckets {
		data.Works = append(data.Works, fmt.Sprintf("%016x", b.Works))
		data.Contents = append(data.Contents, fmt.Sprintf("%016x", b.Contents))
	}
	return data
}

func (d digestData) buckets() ([]BucketDigest, error) {
	if n := len(d.Works); n == 0 || n > MaxDigestBuckets || n != len(d.Contents) {
		return nil, fmt.Errorf("%d buckets of works and %d of contents: want equally many, 1 to %d", len(d.Works), len(d.Contents), MaxDigestBuckets)
	}
	buckets := make([]BucketDigest, len(d.Works))
	var errs [2]error
	for i := range buckets {
		buckets[i].Works, errs[0] = parseDigest(d.Works[i])
		buckets[i].Contents, errs[1] = parseDigest(d.Contents[i])
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("bucket %d: %w", i, err)
		}
	}
	return buckets, nil
}

func parseDigest(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0, fmt.Errorf("digest %.20q: want 16 hexadecimal digits", text)
	}
	return n, nil
}

// WorkDigest is the digest of one work.
type WorkDigest struct {
	UID types.UID
	BucketDigest
}

// SpecDigest returns the digest of the generation of a work that an agent holds, or of the deletion
// with this generation (docs/protocol.md, Digest).
func SpecDigest(uid types.UID, generation Generation, deleting bool) uint64 {
	var buffer [128]byte
	text := append(append(buffer[:0], "spec\n"...), uid...)
	text = strconv.AppendInt(append(text, '\n'), int64(generation), 10)
	if deleting {
		text = append(text, "\ndeleting"...)
	}
	return digest64(text)
}

// ContentDigest returns the digest of the [ContentHash] of a work's spec; 0 for none.
func ContentDigest(uid types.UID, hash string) uint64 { return hashDigest("content\n", uid, hash) }

// StatusDigest returns the digest of the [StatusHash] of a work that the agent has sent, or that
// the source has stored; 0 for none and for the hash of an empty status.
func StatusDigest(uid types.UID, hash string) uint64 {
	if hash == emptyStatusHash {
		return 0
	}
	return hashDigest("status\n", uid, hash)
}

func hashDigest(kind string, uid types.UID, hash string) uint64 {
	if hash == "" {
		return 0
	}
	var buffer [192]byte
	text := append(append(buffer[:0], kind...), uid...)
	return digest64(append(append(text, '\n'), hash...))
}

// digest64 returns the first eight bytes of the SHA-256.
func digest64(text []byte) uint64 {
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:8])
}

var emptyStatusHash = func() string {
	hash, _ := StatusHash(&workv1.ManifestWorkStatus{}) // no text: it cannot fail
	return hash
}()

// Bucket returns the bucket of a work, of count buckets: the 64-bit FNV-1a hash of the UID modulo
// count.
func Bucket(uid types.UID, count int) int {
	hash := uint64(14695981039346656037)
	for i := range len(uid) {
		hash = (hash ^ uint64(uid[i])) * 1099511628211
	}
	return int(hash % uint64(count))
}

// NewBuckets returns the digests of all works by bucket. Their number grows with that of the works:
// a power of two, at most [MaxDigestBuckets].
func NewBuckets(works []WorkDigest) []BucketDigest {
	count := 1
	for count < MaxDigestBuckets && count*worksPerBucket < len(works) {
		count *= 2
	}
	buckets := make([]BucketDigest, count)
	for i := range works {
		buckets[Bucket(works[i].UID, count)].Add(works[i].BucketDigest)
	}
	return buckets
}

package wire_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestDigestValues: the numbers are those of docs/protocol.md, so that other programs can compute
// them.
func TestDigestValues(t *testing.T) {
	const uid = types.UID("11111111-2222-3333-4444-555555555555")
	empty, err := wire.StatusHash(&workv1.ManifestWorkStatus{})
	kit.NoError(t, err)
	for name, c := range map[string]struct{ got, want uint64 }{
		"a generation":            {wire.SpecDigest(uid, 7, false), 0xf39b1abc888feddb},
		"a deletion":              {wire.SpecDigest(uid, 7, true), 0xe45f57f140fa9b1e},
		"a content hash":          {wire.ContentDigest(uid, strings.Repeat("a", 64)), 0x47795a3c8895d8d1},
		"a status":                {wire.StatusDigest(uid, strings.Repeat("a", 64)), 0x2fd6196b1589c16a},
		"no content hash":         {wire.ContentDigest(uid, ""), 0},
		"no status":               {wire.StatusDigest(uid, ""), 0},
		"an empty status is none": {wire.StatusDigest(uid, empty), 0},
		"the bucket":              {uint64(wire.Bucket(uid, 64)), 57},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#016x, want %#016x", name, c.got, c.want)
		}
	}
	all := []uint64{wire.SpecDigest(uid, 7, false), wire.SpecDigest(uid, 8, false), wire.SpecDigest(uid, 7, true), wire.SpecDigest("other", 7, false),
		wire.ContentDigest(uid, "a"), wire.StatusDigest(uid, "a"), wire.StatusDigest(uid, "b"), wire.StatusDigest("other", "a")}
	slices.Sort(all)
	if len(slices.Compact(all)) != 8 {
		t.Errorf("two digests are equal: %x", all)
	}
}

func TestNewBuckets(t *testing.T) {
	for works, want := range map[int]int{0: 1, 1: 1, 16: 1, 17: 2, 32: 2, 33: 4, 1000: 64, 100_000: 64} {
		list := make([]wire.WorkDigest, works)
		for i := range list {
			list[i] = wire.WorkDigest{UID: types.UID(fmt.Sprint(i)), BucketDigest: wire.BucketDigest{Works: rand.Uint64(), Contents: 1}}
		}
		buckets := wire.NewBuckets(list)
		var sum wire.BucketDigest
		for _, b := range buckets {
			sum.Add(b)
		}
		if len(buckets) != want || sum.Contents != uint64(works) {
			t.Errorf("%d works: %d buckets with %d works, want %d", works, len(buckets), sum.Contents, want)
		}
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if diff := cmp.Diff(buckets, wire.NewBuckets(list)); diff != "" {
			t.Errorf("%d works: the order counts:\n%s", works, diff)
		}
	}
}

func exampleDigest() *wire.Digest {
	return &wire.Digest{Agent: "cluster1-agent", Cluster: "cluster1", Source: "hub1", Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Buckets: []wire.BucketDigest{{Works: 1, Contents: 1 << 63}, {}}}
}

func TestDigestEvent(t *testing.T) {
	e, err := wire.Encode(exampleDigest(), time.Now())
	kit.NoError(t, err)
	if want := `{"works":["0000000000000001","0000000000000000"],"contents":["8000000000000000","0000000000000000"]}`; string(e.Data()) != want {
		t.Errorf("data %s, want %s", e.Data(), want)
	}
	if e.Type() != "dev.workwire.v1alpha1.digests.status.update_request" || e.Extensions()["expirytime"] == nil {
		t.Errorf("event %s", e)
	}
	got, err := wire.Decode(e)
	kit.NoError(t, err)
	if diff := cmp.Diff(wire.Message(exampleDigest()), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, data := range map[string]string{
		"no buckets":       `{"works":[],"contents":[]}`,
		"unequal":          `{"works":["0000000000000001"],"contents":[]}`,
		"short":            `{"works":["1"],"contents":["1"]}`,
		"no digits":        `{"works":["000000000000000g"],"contents":["0000000000000000"]}`,
		"a sign":           `{"works":["+000000000000001"],"contents":["0000000000000000"]}`,
		"too many buckets": `{"works":["` + strings.Repeat(`0000000000000000","`, 64) + `0000000000000000"],"contents":[]}`,
		"no JSON":          `works`,
	} {
		kit.NoError(t, e.SetData("application/json", []byte(data)))
		if _, err := wire.Decode(e); err == nil {
			t.Errorf("%s: %s was accepted", name, data)
		}
	}
	for name, change := range map[string]func(*wire.Digest){
		"no source":  func(d *wire.Digest) { d.Source = "" },
		"no agent":   func(d *wire.Digest) { d.Agent = "" },
		"no buckets": func(d *wire.Digest) { d.Buckets = nil },
	} {
		d := exampleDigest()
		change(d)
		if _, err := wire.Encode(d, time.Now()); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

// TestDifferingSpecs is the table of what an agent asks for after a digest that differed.
func TestDifferingSpecs(t *testing.T) {
	version := func(generation wire.Generation, hash string) wire.SpecVersion {
		return wire.SpecVersion{UID: "w", Generation: generation, ContentHash: hash}
	}
	for name, c := range map[string]struct {
		held   []wire.HeldSpec
		listed []wire.StatusVersion
		want   []wire.SpecVersion
	}{
		"equal":                     {[]wire.HeldSpec{{version(2, "a"), false}}, []wire.StatusVersion{{UID: "w", Generation: 2, ContentHash: "a"}}, nil},
		"the agent lacks it":        {nil, []wire.StatusVersion{{UID: "w", Generation: 2}}, []wire.SpecVersion{version(0, "")}},
		"the source lacks it":       {[]wire.HeldSpec{{version(2, "a"), false}}, nil, []wire.SpecVersion{version(2, "a")}},
		"older":                     {[]wire.HeldSpec{{version(1, "a"), false}}, []wire.StatusVersion{{UID: "w", Generation: 2}}, []wire.SpecVersion{version(1, "a")}},
		"newer":                     {[]wire.HeldSpec{{version(3, "a"), false}}, []wire.StatusVersion{{UID: "w", Generation: 2}}, []wire.SpecVersion{version(3, "a")}},
		"other content":             {[]wire.HeldSpec{{version(2, "a"), false}}, []wire.StatusVersion{{UID: "w", Generation: 2, ContentHash: "b"}}, []wire.SpecVersion{version(2, "a")}},
		"content not known":         {[]wire.HeldSpec{{version(2, "a"), false}}, []wire.StatusVersion{{UID: "w", Generation: 2}}, nil},
		"the agent has no hash":     {[]wire.HeldSpec{{version(2, ""), false}}, []wire.StatusVersion{{UID: "w", Generation: 2, ContentHash: "b"}}, []wire.SpecVersion{version(2, "")}},
		"a deletion was lost":       {[]wire.HeldSpec{{version(2, "a"), false}}, []wire.StatusVersion{{UID: "w", Generation: 3, Deleting: true}}, []wire.SpecVersion{version(2, "a")}},
		"being deleted":             {[]wire.HeldSpec{{version(3, "a"), true}}, []wire.StatusVersion{{UID: "w", Generation: 3, Deleting: true}}, nil},
		"the last status was lost":  {nil, []wire.StatusVersion{{UID: "w", Generation: 3, Deleting: true}}, []wire.SpecVersion{version(0, "")}},
		"deleted at the agent only": {[]wire.HeldSpec{{version(3, "a"), true}}, []wire.StatusVersion{{UID: "w", Generation: 3}}, []wire.SpecVersion{version(3, "a")}},
		"forgotten by the source while being deleted": {[]wire.HeldSpec{{version(3, "a"), true}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &wire.StatusResync{Source: "hub1", Hashes: c.listed, Buckets: &wire.Buckets{Count: 1, Indices: []int{0}}}
			if diff := cmp.Diff(c.want, r.DifferingSpecs(slices.Values(c.held))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			r.Buckets = nil
			if got := r.DifferingSpecs(slices.Values(c.held)); got != nil {
				t.Errorf("without buckets: %v", got)
			}
			other := 1 - wire.Bucket("w", 2)
			r.Hashes, r.Buckets = nil, &wire.Buckets{Count: 2, Indices: []int{other}}
			if got := r.DifferingSpecs(slices.Values(c.held)); got != nil {
				t.Errorf("of another bucket: %v", got)
			}
		})
	}
	r := &wire.StatusResync{Source: "hub1", Buckets: &wire.Buckets{Count: 1, Indices: []int{0}}}
	if got := r.Answer(nil, slices.Values([]types.UID{"w"})); got != nil {
		t.Errorf("an empty list of buckets requests all statuses: %v", got)
	}
}

// TestSplitBuckets: each part lists all works of its buckets, and no other; together they have all.
func TestSplitBuckets(t *testing.T) {
	for _, works := range []int{0, 1, 40, 1000} {
		for _, limit := range []int{0, 1, 500, 5000, 128 << 10} {
			r := &wire.StatusResync{Source: "hub1", Cluster: "c", Buckets: &wire.Buckets{Count: 4, Indices: []int{0, 3}}}
			in := map[types.UID]bool{}
			var held []wire.HeldSpec
			for i := range works {
				uid := types.UID(fmt.Sprint("uid-", i))
				held = append(held, wire.HeldSpec{SpecVersion: wire.SpecVersion{UID: uid, Generation: 1}})
				if b := wire.Bucket(uid, 4); b == 0 || b == 3 {
					in[uid] = true
					r.Hashes = append(r.Hashes, wire.StatusVersion{UID: uid, Hash: strings.Repeat("a", 64), Generation: 1, ContentHash: strings.Repeat("b", 64)})
				}
			}
			seen := map[types.UID]bool{}
			for _, part := range r.Split(limit) {
				e, err := wire.Encode(part, time.Now())
				kit.NoError(t, err)
				if limit > 0 && len(e.Data()) > limit && len(part.Hashes) > 1 {
					t.Errorf("%d works, limit %d: a part of %d bytes", works, limit, len(e.Data()))
				}
				for _, version := range part.Hashes {
					if seen[version.UID] {
						t.Errorf("%s is listed twice", version.UID)
					}
					seen[version.UID] = true
				}
				for i := range held {
					held[i].ContentHash = strings.Repeat("b", 64)
				}
				if got := part.DifferingSpecs(slices.Values(held)); got != nil {
					t.Fatalf("%d works, limit %d: %d works differ, though all are equal", works, limit, len(got))
				}
			}
			if !maps.Equal(seen, in) {
				t.Errorf("%d works, limit %d: %d of %d works are listed", works, limit, len(seen), len(in))
			}
		}
	}
}

func TestSplitPartialSpecResync(t *testing.T) {
	r := &wire.SpecResync{Agent: "a", Cluster: "c", Partial: true}
	for i := range 100 {
		r.Versions = append(r.Versions, wire.SpecVersion{UID: types.UID(fmt.Sprint("uid-", i)), Generation: 1})
	}
	var all []wire.SpecVersion
	parts := r.Split(1000)
	for _, part := range parts {
		e, err := wire.Encode(part, time.Now())
		kit.NoError(t, err)
		if len(e.Data()) > 1000 || !part.Partial {
			t.Errorf("a part of %d bytes", len(e.Data()))
		}
		all = append(all, part.Versions...)
	}
	if diff := cmp.Diff(r.Versions, all); diff != "" || len(parts) < 4 {
		t.Errorf("%d parts:\n%s", len(parts), diff)
	}
	if r.Partial = false; len(r.Split(1000)) != 1 {
		t.Error("a request that asks for what it does not list was split")
	}
}

func BenchmarkWorkDigest(b *testing.B) {
	hash := strings.Repeat("a", 64)
	for b.Loop() {
		_ = wire.SpecDigest("11111111-2222-3333-4444-555555555555", 7, false) + wire.StatusDigest("11111111-2222-3333-4444-555555555555", hash)
	}
}

// FuzzDigest: data of digests and of requests by bucket is either refused, or survives a round
// trip and can be answered.
func FuzzDigest(f *testing.F) {
	digest, err := wire.Encode(exampleDigest(), time.Now())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(digest.Type(), digest.Data())
	for _, m := range []wire.Message{
		&wire.StatusResync{Source: "hub1", Hashes: []wire.StatusVersion{{UID: "w", Hash: "a", Generation: 1, ContentHash: "b", Deleting: true}},
			Buckets: &wire.Buckets{Count: 64, Indices: []int{3, 17}}},
		&wire.SpecResync{Agent: "a", Cluster: "c", Partial: true, Versions: []wire.SpecVersion{{UID: "w"}}},
	} {
		e, err := wire.Encode(m, time.Now())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(e.Type(), e.Data())
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		e := cloudevents.New()
		e.SetID("1")
		e.SetType(kind)
		e.SetSource("agent")
		e.SetExtension("clustername", "c")
		e.SetExtension("originalsource", "hub1")
		_ = e.SetData("application/json", data)
		m, err := wire.Decode(e)
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *wire.StatusResync:
			m.DifferingSpecs(slices.Values([]wire.HeldSpec{{SpecVersion: wire.SpecVersion{UID: "w", Generation: 1}}}))
			if m.Buckets != nil && len(m.Hashes) < 100 {
				m.Split(100)
			}
		case *wire.SpecResync:
			m.Split(100)
		case *wire.Digest:
			again, err := wire.Encode(m, time.Now())
			kit.NoError(t, err)
			got, err := wire.Decode(again)
			kit.NoError(t, err)
			if diff := cmp.Diff(wire.Message(m), got); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

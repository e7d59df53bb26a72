package wire_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

func TestSpecResyncAnswer(t *testing.T) {
	works := []wire.WorkVersion{
		{UID: "older", Generation: 3}, {UID: "equal", Generation: 3}, {UID: "newer", Generation: 3},
		{UID: "unversioned"}, {UID: "deleting", Generation: 3, Deleting: true},
	}
	have := func(list ...wire.SpecVersion) *wire.SpecResync { return &wire.SpecResync{Versions: list} }
	for name, tc := range map[string]struct {
		request *wire.SpecResync
		send    []types.UID
		gone    []wire.SpecVersion
	}{
		"empty list": {have(), []types.UID{"older", "equal", "newer", "unversioned", "deleting"}, nil},
		"full list": {have(wire.SpecVersion{UID: "older", Generation: 4}, wire.SpecVersion{UID: "equal", Generation: 3},
			wire.SpecVersion{UID: "newer", Generation: 2}, wire.SpecVersion{UID: "unversioned"}, wire.SpecVersion{UID: "deleting", Generation: 3}),
			[]types.UID{"newer", "unversioned", "deleting"}, nil},
		"one that is unknown": {have(wire.SpecVersion{UID: "ghost", Generation: 7}, wire.SpecVersion{UID: "equal", Generation: 3}),
			[]types.UID{"older", "newer", "unversioned", "deleting"}, []wire.SpecVersion{{UID: "ghost", Generation: 7}}},
		"held without version": {have(wire.SpecVersion{UID: "equal"}), []types.UID{"older", "equal", "newer", "unversioned", "deleting"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			send, gone := tc.request.Answer(slices.Values(works))
			if diff := cmp.Diff(tc.send, send); diff != "" {
				t.Errorf("send differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.gone, gone); diff != "" {
				t.Errorf("gone differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSpecResyncOverrule(t *testing.T) {
	own := map[types.UID]wire.Generation{"w": 3}
	for name, tc := range map[string]struct {
		listed   wire.SpecVersion
		overrule bool
		hashed   bool // the source's hash was needed
	}{
		"same":                          {wire.SpecVersion{UID: "w", Generation: 3, ContentHash: "own"}, false, true},
		"other content":                 {wire.SpecVersion{UID: "w", Generation: 3, ContentHash: "other"}, true, true},
		"no hash":                       {wire.SpecVersion{UID: "w", Generation: 3}, false, false},
		"higher":                        {wire.SpecVersion{UID: "w", Generation: 4, ContentHash: "own"}, true, false},
		"higher without hash":           {wire.SpecVersion{UID: "w", Generation: 4}, false, false},
		"lower: Answer sends it anyway": {wire.SpecVersion{UID: "w", Generation: 2, ContentHash: "other"}, false, false},
		"unknown":                       {wire.SpecVersion{UID: "ghost", Generation: 3, ContentHash: "other"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			hashed := false
			got := (&wire.SpecResync{Versions: []wire.SpecVersion{tc.listed}}).Overrule(
				func(uid types.UID) (wire.Generation, bool) { g, ok := own[uid]; return g, ok },
				func(types.UID) string { hashed = true; return "own" })
			if (len(got) == 1) != tc.overrule || hashed != tc.hashed {
				t.Errorf("Overrule = %v, hashed %v; want %v, %v", got, hashed, tc.overrule, tc.hashed)
			}
		})
	}
}

func TestStatusResyncAnswer(t *testing.T) {
	held := map[types.UID]string{"a": "1", "b": "2", "c": ""}
	for name, tc := range map[string]struct {
		have []wire.StatusVersion
		send []types.UID
	}{
		"empty list":       {nil, []types.UID{"a", "b", "c"}},
		"same":             {[]wire.StatusVersion{{UID: "a", Hash: "1"}}, nil},
		"another":          {[]wire.StatusVersion{{UID: "a", Hash: "9"}, {UID: "b", Hash: "2"}}, []types.UID{"a"}},
		"none at source":   {[]wire.StatusVersion{{UID: "b"}}, []types.UID{"b"}},
		"not held":         {[]wire.StatusVersion{{UID: "ghost", Hash: "1"}}, nil},
		"none on the wire": {[]wire.StatusVersion{{UID: "c", Hash: "1"}}, []types.UID{"c"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &wire.StatusResync{Source: "harbor", Hashes: tc.have}
			listed := 0
			got := r.Answer(func(uid types.UID) (string, bool) {
				listed++
				hash, ok := held[uid]
				return hash, ok
			}, maps.Keys(held))
			slices.Sort(got)
			if !slices.Equal(got, tc.send) {
				t.Errorf("Answer = %v, want %v", got, tc.send)
			}
			if listed != len(tc.have) {
				t.Errorf("asked for %d works, want one a listed one, %d", listed, len(tc.have))
			}
		})
	}
}

// TestAnswersAgreeWithTheSlowWay compares with the rules as they are written, a loop in a loop.
func TestAnswersAgreeWithTheSlowWay(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	uid := func() types.UID { return types.UID(fmt.Sprint(random.IntN(12))) }
	for range 2000 {
		var works []wire.WorkVersion
		for range random.IntN(8) {
			w := wire.WorkVersion{UID: uid(), Generation: wire.Generation(random.IntN(4)), Deleting: random.IntN(4) == 0}
			if !slices.ContainsFunc(works, func(o wire.WorkVersion) bool { return o.UID == w.UID }) {
				works = append(works, w)
			}
		}
		specs := &wire.SpecResync{}
		statuses := &wire.StatusResync{}
		listed := map[types.UID]bool{}
		for range random.IntN(8) {
			if u := uid(); !listed[u] {
				listed[u] = true
				specs.Versions = append(specs.Versions, wire.SpecVersion{UID: u, Generation: wire.Generation(random.IntN(4))})
				statuses.Hashes = append(statuses.Hashes, wire.StatusVersion{UID: u, Hash: fmt.Sprint(random.IntN(3))})
			}
		}

		send, gone := specs.Answer(slices.Values(works))
		wantSend, wantGone := slowSpecs(specs.Versions, works)
		if !slices.Equal(send, wantSend) || !slices.Equal(gone, wantGone) {
			t.Fatalf("spec resync of %v against %v = %v, %v; want %v, %v", specs.Versions, works, send, gone, wantSend, wantGone)
		}

		hashes := map[types.UID]string{}
		for _, w := range works {
			hashes[w.UID] = fmt.Sprint(int(w.Generation) % 3)
		}
		got := statuses.Answer(func(u types.UID) (string, bool) { h, ok := hashes[u]; return h, ok }, maps.Keys(hashes))
		want := slowStatuses(statuses.Hashes, hashes)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("status resync of %v against %v = %v, want %v", statuses.Hashes, hashes, got, want)
		}
	}
}

func slowSpecs(have []wire.SpecVersion, works []wire.WorkVersion) (send []types.UID, gone []wire.SpecVersion) {
	for _, w := range works {
		needed := true
		for _, h := range have {
			if h.UID == w.UID && !w.Deleting && w.Generation != 0 && w.Generation <= h.Generation {
				needed = false
			}
		}
		if needed {
			send = append(send, w.UID)
		}
	}
	for _, h := range have {
		if !slices.ContainsFunc(works, func(w wire.WorkVersion) bool { return w.UID == h.UID }) {
			gone = append(gone, h)
		}
	}
	return send, gone
}

func slowStatuses(have []wire.StatusVersion, hashes map[types.UID]string) (send []types.UID) {
	for uid, hash := range hashes {
		for _, h := range have {
			if h.UID == uid && h.Hash != hash {
				send = append(send, uid)
			}
		}
		if len(have) == 0 {
			send = append(send, uid)
		}
	}
	return send
}

func TestSplit(t *testing.T) {
	entries := func(n int) []wire.StatusVersion {
		var list []wire.StatusVersion
		for i := range n {
			list = append(list, wire.StatusVersion{UID: types.UID(fmt.Sprintf("%036d", i)), Hash: strings.Repeat("a", 64)})
		}
		return list
	}
	const entry = 134 // bytes of one as JSON, with its comma
	for name, tc := range map[string]struct {
		have  []wire.StatusVersion
		limit int
		parts int
	}{
		"no limit":                    {entries(100), 0, 1},
		"everything asked for":        {nil, 1, 1},
		"fits":                        {entries(10), 10*entry + 19, 1},
		"one too many":                {entries(11), 10*entry + 19, 2},
		"each alone":                  {entries(5), entry + 19, 5},
		"each alone and still larger": {entries(5), 1, 5},
		"many":                        {entries(1000), 64 << 10, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := &wire.StatusResync{Source: "harbor", Cluster: "quay-7", Hashes: tc.have, SourceIdentity: memory}
			parts := r.Split(tc.limit)
			if len(parts) != tc.parts {
				t.Errorf("Split gives %d parts, want %d", len(parts), tc.parts)
			}
			var all []wire.StatusVersion
			for _, part := range parts {
				if part.Source != r.Source || part.Cluster != r.Cluster || part.SourceIdentity != memory {
					t.Errorf("a part is for %s and %s", part.Source, part.Cluster)
				}
				if len(part.Hashes) == 0 && len(tc.have) > 0 {
					t.Error("a part is empty: it would ask for everything")
				}
				e, err := wire.Encode(part, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				if size := len(e.Data()); tc.limit > 0 && size > tc.limit && len(part.Hashes) > 1 {
					t.Errorf("a part has %d bytes, more than %d", size, tc.limit)
				}
				all = append(all, part.Hashes...)
			}
			if !slices.Equal(all, tc.have) {
				t.Error("the parts together are not the request")
			}
		})
	}
	if one, _ := json.Marshal(entries(1)[0]); len(one)+1 != entry {
		t.Fatalf("an entry has %d bytes, the test assumes %d", len(one)+1, entry)
	}
}

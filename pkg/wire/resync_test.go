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

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

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

// TestStatusAnswersAgreeWithTheSlowWay compares with the rules as they are written, a loop in a loop.
func TestStatusAnswersAgreeWithTheSlowWay(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	uid := func() types.UID { return types.UID(fmt.Sprint(random.IntN(12))) }
	for range 2000 {
		hashes := map[types.UID]string{}
		for range random.IntN(8) {
			hashes[uid()] = fmt.Sprint(random.IntN(3))
		}
		statuses := &wire.StatusResync{}
		listed := map[types.UID]bool{}
		for range random.IntN(8) {
			if u := uid(); !listed[u] {
				listed[u] = true
				statuses.Hashes = append(statuses.Hashes, wire.StatusVersion{UID: u, Hash: fmt.Sprint(random.IntN(3))})
			}
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

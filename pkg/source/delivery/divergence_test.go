package delivery

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// TestDecideDivergence plays digests, a letter for each bucket that differs, and checks when a
// divergence is reported and what is requested.
func TestDecideDivergence(t *testing.T) {
	type step struct {
		at       string // since the start
		differs  string
		reported string // since when, relative to the start; "": not
		request  int
	}
	for name, steps := range map[string][]step{
		"equal":              {{"0s", "", "", 0}, {"1m", "", "", 0}},
		"repaired":           {{"0s", "a", "", 1}, {"59s", "", "", 0}},
		"since the first":    {{"0s", "a", "", 1}, {"30s", "a", "", 1}, {"60s", "a", "0s", 1}, {"90s", "", "", 0}},
		"in flight":          {{"0s", "a", "", 1}, {"60s", "b", "", 1}, {"120s", "c", "", 1}, {"180s", "d", "", 1}},
		"old beside flights": {{"0s", "ax", "", 2}, {"60s", "bx", "0s", 2}, {"120s", "cx", "0s", 2}},
		"equal in between":   {{"0s", "a", "", 1}, {"50s", "", "", 0}, {"100s", "a", "", 1}, {"150s", "a", "", 1}, {"160s", "a", "100s", 1}},
		"repaired, and flights go on": {
			{"0s", "ax", "", 2}, {"60s", "bx", "0s", 2}, {"120s", "c", "0s", 1}, {"180s", "d", "0s", 1}, {"240s", "e", "", 1},
		},
		"nothing helps": {
			{"0s", "a", "", 1}, {"1m", "a", "0s", 1}, {"2m", "a", "0s", 1}, {"3m", "a", "0s", 0}, {"4m", "ab", "0s", 1}, {"12m", "a", "0s", 1}, {"13m", "a", "0s", 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			var d *divergence
			for _, s := range steps {
				at, err := time.ParseDuration(s.at)
				if err != nil {
					t.Fatal(err)
				}
				var differences []bucketDifference
				for i, letter := range s.differs {
					differences = append(differences, bucketDifference{i, wire.BucketDigest{Works: uint64(letter)}})
				}
				if name == "nothing helps" || name == "repaired, and flights go on" {
					for i := range differences {
						differences[i].bucket = int(differences[i].by.Works)
					}
				}
				if name == "old beside flights" {
					differences[1].bucket = 5
				}
				var request []int
				d, request = decideDivergence(d, differences, start.Add(at))
				got := ""
				if d.isReported() {
					got = d.since.Sub(start).String()
				}
				want := s.reported
				if since, err := time.ParseDuration(want); err == nil {
					want = since.String()
				}
				if got != want || len(request) != s.request {
					t.Errorf("at %s: reported %q, want %q; %d buckets requested, want %d", s.at, got, want, len(request), s.request)
				}
			}
		})
	}
}

func TestCompareBuckets(t *testing.T) {
	own := []wire.BucketDigest{{Works: 5, Contents: 5}, {Works: 5, Contents: 5}, {Works: 5, Contents: 5}}
	agents := []wire.BucketDigest{{Works: 5, Contents: 6}, {Works: 5, Contents: 6}, {Works: 3, Contents: 5}}
	got := compareBuckets(own, agents, []bool{true, false, true})
	want := []bucketDifference{{0, wire.BucketDigest{Contents: 1}}, {2, wire.BucketDigest{Works: ^uint64(0) - 1}}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestExpected is the table of what an agent should hold, and which works do not count.
func TestExpected(t *testing.T) {
	published := func(generation wire.Generation) revision { return revision{generation: generation} }
	for name, c := range map[string]struct {
		state      workRecord
		generation int64
		deleting   bool
		condition  string // in the stored status
		want       heldRevision
		out        bool
	}{
		"published":                                       {state: workRecord{published: published(3)}, generation: 3, want: heldRevision{3, false}},
		"a newer one waits":                               {state: workRecord{published: published(3)}, generation: 4, want: heldRevision{3, false}},
		"not published yet":                               {generation: 4, want: heldRevision{4, false}},
		"too large":                                       {state: workRecord{published: published(3), refused: &refusal{}}, generation: 4, want: heldRevision{3, false}},
		"too large from the start":                        {state: workRecord{refused: &refusal{}}, generation: 1, out: true},
		"too large, the agent said what it has":           {state: workRecord{refused: &refusal{held: &wire.SpecVersion{Generation: 2}}}, generation: 4, want: heldRevision{2, false}},
		"too large, the agent has its record":             {state: workRecord{refused: &refusal{held: &wire.SpecVersion{Recorded: true}}}, generation: 4},
		"too large, the agent said it has none":           {state: workRecord{published: published(3), refused: &refusal{held: &wire.SpecVersion{}}}, generation: 4, out: true},
		"being deleted, the agent has not heard":          {state: workRecord{published: published(3)}, generation: 4, deleting: true, want: heldRevision{4, true}},
		"being deleted":                                   {state: workRecord{said: saidDeleting}, generation: 4, deleting: true, out: true},
		"being deleted since before the start":            {generation: 4, deleting: true, condition: workv1.WorkDeleting, out: true},
		"deleted, somebody else's finalizer":              {generation: 4, deleting: true, condition: workv1.WorkDeleted, out: true},
		"a deletion is held, an earlier one is confirmed": {state: workRecord{confirmed: 2, refused: &refusal{holds: true}}, generation: 4, deleting: true, want: heldRevision{4, false}},
		"a deletion is held, the agent said what it has": {state: workRecord{refused: &refusal{holds: true, held: &wire.SpecVersion{Generation: 2}}}, generation: 4, deleting: true,
			want: heldRevision{2, false}},
		"created again":     {state: workRecord{published: revision{generation: 9, deleting: true}}, generation: 4, want: heldRevision{4, false}},
		"removed":           {state: workRecord{removed: &removedWork{generation: 5}}, want: heldRevision{5, true}},
		"removed and heard": {state: workRecord{removed: &removedWork{generation: 5}, said: saidDeleting}, out: true},
	} {
		t.Run(name, func(t *testing.T) {
			var work *workv1.ManifestWork
			if c.generation > 0 {
				work = &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: c.generation}}
			}
			if c.deleting {
				work.DeletionTimestamp = &metav1.Time{}
			}
			if c.condition != "" {
				work.Status.Conditions = []metav1.Condition{{Type: c.condition, Status: metav1.ConditionTrue}}
			}
			got, counts := c.state.expected(work)
			if counts == c.out || counts && got != c.want {
				t.Errorf("%+v, counts %t; want %+v, counts %t", got, counts, c.want, !c.out)
			}
		})
	}
}

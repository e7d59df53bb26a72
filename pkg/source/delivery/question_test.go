package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/workwire/workwire/pkg/wire"
)

// asked describes a request: "-" for none, "all", or the works that it lists with their generations, and "whole" if
// it is not partial.
func requested(r *wire.SpecResync) string {
	if r == nil {
		return "-"
	}
	var works []string
	for _, v := range r.Versions {
		works = append(works, fmt.Sprintf("%s%d", v.UID, v.Generation))
	}
	slices.Sort(works)
	if !r.Partial {
		works = append([]string{"whole"}, works...)
	}
	return strings.Join(works, " ")
}

func TestQuestion(t *testing.T) {
	list := func(partial bool, works ...string) question {
		r := &wire.SpecResync{Partial: partial}
		for _, work := range works {
			r.Versions = append(r.Versions, wire.SpecVersion{UID: types.UID(work[:1]), Generation: wire.Generation(work[1] - '0')})
		}
		return newQuestion(r)
	}
	many := func(from, n int) question {
		r := &wire.SpecResync{Partial: true}
		for i := range n {
			r.Versions = append(r.Versions, wire.SpecVersion{UID: types.UID(fmt.Sprint(from + i))})
		}
		return newQuestion(r)
	}
	for name, c := range map[string]struct {
		questions []question
		want      string
	}{
		"nothing":              {[]question{{}, {}}, "-"},
		"one":                  {[]question{{}, list(true, "a1")}, "a1"},
		"a whole one":          {[]question{list(false, "a1", "b2"), {}}, "whole a1 b2"},
		"an empty one":         {[]question{list(false)}, "whole"},
		"two":                  {[]question{list(true, "a1"), list(true, "b2")}, "a1 b2"},
		"the newest counts":    {[]question{list(true, "a1", "b1"), list(true, "b2", "c1"), list(true, "a3")}, "a3 b2 c1"},
		"within one":           {[]question{list(true, "a1", "a2"), list(true, "b1")}, "a2 b1"},
		"whole after partial":  {[]question{list(true, "a1"), list(false, "b1")}, "whole b1"},
		"whole before partial": {[]question{list(false, "a1"), list(true, "b1")}, "whole a1"},
		"a newer whole":        {[]question{list(false, "a1"), list(false, "b1")}, "whole b1"},
		"retried":              {[]question{list(true, "a1").with(list(true, "b1")), list(true, "a2").with(list(true, "c1"))}, "a2 b1 c1"},
		"too many in one":      {[]question{many(0, maxPending+1)}, "whole"},
		"too many":             {[]question{many(0, maxPending), many(maxPending, 1)}, "whole"},
	} {
		merged := question{}
		for _, q := range c.questions {
			merged = merged.with(q)
		}
		if got := requested(merged.request()); got != c.want {
			t.Errorf("%s: %.100q, want %q", name, got, c.want)
		}
	}
	same := question{}
	for range 1000 {
		same = same.with(many(0, maxPending/10))
	}
	if n := same.works(); n != maxPending/10 {
		t.Errorf("the same question 1000 times lists %d works", n)
	}
}

// TestStatusesAreBounded: too many works whose statuses are to be sent whatever they are become a request for all.
func TestStatusesAreBounded(t *testing.T) {
	task := resyncTask{}
	for i := range maxStatuses {
		task = mergeResyncTasks(task, resyncTask{statuses: sets.New(types.UID(fmt.Sprint(i)))})
		task = mergeResyncTasks(task, resyncTask{statuses: sets.New(types.UID("0"))})
	}
	if len(task.statuses) != maxStatuses || task.requestStatuses {
		t.Errorf("%d works, all %v", len(task.statuses), task.requestStatuses)
	}
	if task = mergeResyncTasks(task, resyncTask{statuses: sets.New(types.UID("more"))}); len(task.statuses) != 0 || !task.requestStatuses {
		t.Errorf("then %d works, all %v", len(task.statuses), task.requestStatuses)
	}
}

// TestWaitingStatuses: a cluster has room for so many bytes, others are not concerned, and it is asked again when
// half of them are stored.
func TestWaitingStatuses(t *testing.T) {
	const mib = 1 << 20
	d := testCore(0, time.Second, ClusterOpen)
	for range 16 {
		if room, _ := d.waits("a", mib); !room {
			t.Fatal("no room")
		}
	}
	for _, first := range []bool{true, false} {
		if room, got := d.waits("a", 1); room || got != first {
			t.Errorf("room %v, first %v, want %v", room, got, first)
		}
	}
	if room, _ := d.waits("b", 64*mib); !room {
		t.Error("a single one has no room")
	}
	d.waitsNoMore("b", 64*mib)
	for i := 1; i <= 16; i++ {
		if ask := d.waitsNoMore("a", mib); ask != (i == 8) {
			t.Errorf("%d stored: ask %v", i, ask)
		}
	}
	if len(d.clusters) != 0 {
		t.Errorf("left: %+v", d.clusters)
	}
}

// TestWaitingStatusReplaced: a cluster is still asked for the statuses that were dropped if a smaller one takes the place
// of one that waits.
func TestWaitingStatusReplaced(t *testing.T) {
	const mib = 1 << 20
	d := testCore(0, time.Second, ClusterOpen)
	wait := func(size int) {
		t.Helper()
		if room, _ := d.waits("a", size); !room {
			t.Fatal("no room")
		}
		status := &wire.Status{UID: "u", Cluster: "a"}
		storeWanted{workKey{uid: "u", cluster: "a"}, "", statusUpdate{status: status, size: size}}.apply(d, time.Time{})
	}
	wait(9 * mib)
	if room, _ := d.waits("a", 8*mib); room {
		t.Fatal("room for too much")
	}
	wait(1024)
	if waiting := d.clusters["a"].waiting; waiting != 1024 {
		t.Errorf("%d bytes wait, want 1024", waiting)
	}
	if !d.waitsNoMore("a", 1024) {
		t.Error("the cluster is not asked once the status is stored")
	}
}

package delivery

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

func TestPaces(t *testing.T) {
	d, now := testCore(0, time.Second, ClusterOpen), time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	asked := func(cluster wire.ClusterName, times int) (allowed int) {
		for range times {
			if d.admitQuestion(cluster, now) == 0 {
				allowed++
			}
		}
		return allowed
	}
	for _, test := range []struct {
		after   time.Duration
		cluster wire.ClusterName
		want    int // of 100
	}{
		{0, "a", questionBurst},
		{0, "b", questionBurst},
		{questionInterval - 1, "a", 0},
		{1, "a", 1},
		{3 * questionInterval, "a", 3},
		{time.Hour, "a", questionBurst},
	} {
		now = now.Add(test.after)
		if got := asked(test.cluster, 100); got != test.want {
			t.Errorf("%v later, %s: %d questions allowed, want %d", test.after, test.cluster, got, test.want)
		}
	}
	for i := range 1000 {
		asked(wire.ClusterName(fmt.Sprint(i)), 1)
	}
	now = now.Add(time.Hour)
	asked("a", 1)
	if len(d.clusters) != 1 {
		t.Errorf("%d clusters are kept", len(d.clusters))
	}
}

// TestWorkSet compares a set with a map.
func TestWorkSet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := workSet{kind: setRemoved}
	works := make([]workRecord, 50)
	plain := make(map[*workRecord]bool)
	for range 20_000 {
		w := &works[random.IntN(len(works))]
		if random.IntN(2) == 0 {
			s.add(w)
			plain[w] = true
		} else {
			s.remove(w)
			delete(plain, w)
		}
		if s.len() != len(plain) || s.has(w) != plain[w] {
			t.Fatalf("%d works, want %d; has %v, want %v", s.len(), len(plain), s.has(w), plain[w])
		}
	}
	for _, w := range s.list {
		if !plain[w] {
			t.Error("a work that was removed is in the set")
		}
	}
}

// TestClusterRecord: a record is forgotten once nothing needs to be remembered of its cluster.
func TestClusterRecord(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	key := workKey{uid: "u", cluster: "a"}
	lost := func(d *core, _ *clusterRecord) {
		(&clusterSet{cluster: "a", state: ClusterOpen}).apply(d, now)
		(&clusterSet{cluster: "a", state: ClusterElsewhere}).apply(d, now)
	}
	for name, c := range map[string]struct {
		begin, end func(d *core, c *clusterRecord)
	}{
		"a work":          {func(d *core, _ *clusterRecord) { d.ensure(key) }, func(d *core, _ *clusterRecord) { d.forget(d.works[key]) }},
		"a publish":       {func(_ *core, c *clusterRecord) { c.underWay++ }, func(_ *core, c *clusterRecord) { c.underWay-- }},
		"a question":      {func(d *core, _ *clusterRecord) { d.admitQuestion("a", now) }, func(d *core, _ *clusterRecord) { d.sweep(now.Add(time.Minute)) }},
		"a status":        {func(d *core, _ *clusterRecord) { d.waits("a", 7) }, func(d *core, _ *clusterRecord) { d.waitsNoMore("a", 7) }},
		"a large status":  {func(_ *core, c *clusterRecord) { c.storingLarge[1] = true }, func(_ *core, c *clusterRecord) { c.storingLarge[1] = false }},
		"a gain":          {func(_ *core, c *clusterRecord) { c.gained = now }, lost},
		"a forgery":       {func(_ *core, c *clusterRecord) { c.distrust.Since = now }, lost},
		"noise":           {func(_ *core, c *clusterRecord) { c.noise.Since = now }, func(_ *core, c *clusterRecord) { c.noise = quota.Noise{} }},
		"a divergence":    {func(_ *core, c *clusterRecord) { c.divergence = &divergence{} }, lost},
		"signed question": {func(_ *core, c *clusterRecord) { c.asked = map[questionOrder]int64{} }, func(_ *core, c *clusterRecord) { c.asked = nil }},
	} {
		d := testCore(0, time.Second, ClusterElsewhere)
		record := d.cluster("a")
		c.begin(d, record)
		if d.release(record); len(d.clusters) != 1 {
			t.Errorf("%s: the record is forgotten", name)
		}
		c.end(d, record)
		if d.release(record); len(d.clusters) != 0 {
			t.Errorf("%s: the record is kept: %+v", name, record)
		}
	}
}

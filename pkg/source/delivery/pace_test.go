package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

func TestPaces(t *testing.T) {
	p, now := &paces{}, time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	asked := func(cluster wire.ClusterName, times int) (allowed int) {
		for range times {
			if p.allow(cluster, now) {
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
	if len(p.full) != 1 {
		t.Errorf("%d clusters are kept", len(p.full))
	}
}

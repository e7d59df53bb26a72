package instances

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// said is an announcement of instance id at a time in seconds, with those that it hears.
type said struct {
	at    int
	id    string
	heard []string
}

// TestRegistry has sequences of announcements that the instance "me" receives, with an interval of
// 30 seconds, and the others that it notices by the end.
func TestRegistry(t *testing.T) {
	me := []string{"me"}
	for name, c := range map[string]struct {
		said []said
		want []string
	}{
		"alone":                      {nil, nil},
		"two programs":               {[]said{{0, "b", nil}, {1, "b", me}, {11, "b", me}, {21, "b", me}}, []string{"b"}},
		"three programs":             {[]said{{0, "b", me}, {1, "c", me}, {16, "b", me}, {17, "c", me}}, []string{"b", "c"}},
		"a former leader's last one": {[]said{{0, "b", nil}, {1, "b", me}}, nil},
		"a former leader, repeated":  {[]said{{0, "b", nil}, {1, "b", me}, {5, "b", me}, {15, "b", me}}, nil},
		"kept for an absent client":  {[]said{{0, "b", nil}, {0, "b", nil}, {0, "b", nil}, {20, "b", nil}, {40, "b", nil}}, nil},
		"it hears another one":       {[]said{{0, "b", []string{"c"}}, {20, "b", []string{"c"}}, {40, "b", []string{"c"}}}, nil},
		"it restarts":                {[]said{{0, "b", me}, {10, "b2", me}, {20, "b3", me}, {30, "b4", me}}, nil},
		"it comes back":              {[]said{{0, "b", me}, {20, "b", me}, {200, "b", me}, {210, "b", me}}, nil},
		"gone":                       {[]said{{0, "b", me}, {20, "b", me}, {200, "c", nil}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry("me", 30*time.Second)
			start := time.Now()
			for _, s := range c.said {
				now := start.Add(time.Duration(s.at) * time.Second)
				r.changes(now)
				r.hear(&wire.Instance{ID: s.id, Heard: s.heard}, now)
			}
			var got []string
			for _, o := range r.noticed() {
				got = append(got, o.ID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("noticed %v, want %v", got, c.want)
			}
		})
	}
}

// TestChanges: another program is reported once, again after ten minutes, and when it is gone.
func TestChanges(t *testing.T) {
	r := newRegistry("me", 30*time.Second)
	start := time.Now()
	var got []string
	for second := 0; second <= 800; second += 10 {
		now := start.Add(time.Duration(second) * time.Second)
		if second <= 700 {
			r.hear(&wire.Instance{ID: "b", Heard: []string{"me"}}, now)
		}
		begun, lasting, ended := r.changes(now)
		for what, others := range map[string][]Other{"begun": begun, "lasting": lasting, "ended": ended} {
			for _, o := range others {
				got = append(got, fmt.Sprintf("%d %s %s", second, what, o.ID))
			}
		}
	}
	if want := []string{"20 begun b", "620 lasting b", "780 ended b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLimit: no more instances are kept than an announcement lists, and an unknown one waits for an
// answer until it hears this one.
func TestLimit(t *testing.T) {
	r := newRegistry("me", 30*time.Second)
	now := time.Now()
	for i := range 2 * wire.MaxHeardInstances {
		if answer := r.hear(&wire.Instance{ID: fmt.Sprint(i)}, now); answer != (i < wire.MaxHeardInstances) {
			t.Errorf("instance %d: answer %v", i, answer)
		}
	}
	if n := len(r.heard()); n != wire.MaxHeardInstances {
		t.Errorf("%d instances are kept", n)
	}
	if r.hear(&wire.Instance{ID: "0", Heard: []string{"me"}}, now) {
		t.Error("an instance that hears this one is answered again")
	}
}

func TestDisturbing(t *testing.T) {
	for name, c := range map[string]struct {
		shards []string
		want   bool
	}{
		"none": {nil, false}, "one for all": {[]string{""}, false}, "two for all": {[]string{"", ""}, true}, "shards": {[]string{"a", "b"}, false},
		"one shard twice": {[]string{"a", "b", "a"}, true}, "a shard and all": {[]string{"a", ""}, true},
	} {
		var programs []Other
		for _, shard := range c.shards {
			programs = append(programs, Other{Shard: shard})
		}
		if got := Disturbing(programs); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

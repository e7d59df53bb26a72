package store_test

import (
	"context"
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/store"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/test/kit"
)

func TestTermCurrent(t *testing.T) {
	const lease, other = "lease", "lease that was made again"
	for name, c := range map[string]struct {
		last *store.Term
		now  store.Term
		want bool
	}{
		"renewed after a crash":                {&store.Term{Lease: lease, Transitions: 5}, store.Term{Lease: lease, Transitions: 5}, true},
		"acquired again":                       {&store.Term{Lease: lease, Transitions: 5}, store.Term{Lease: lease, Transitions: 6}, true},
		"another led":                          {&store.Term{Lease: lease, Transitions: 5}, store.Term{Lease: lease, Transitions: 7}, false},
		"many others led":                      {&store.Term{Lease: lease, Transitions: 0}, store.Term{Lease: lease, Transitions: 900}, false},
		"the count is lower":                   {&store.Term{Lease: lease, Transitions: 5}, store.Term{Lease: lease, Transitions: 4}, false},
		"another Lease":                        {&store.Term{Lease: lease, Transitions: 5}, store.Term{Lease: other, Transitions: 6}, false},
		"another Lease with the same count":    {&store.Term{Lease: lease, Transitions: 0}, store.Term{Lease: other, Transitions: 0}, false},
		"state of an older version, or damage": {nil, store.Term{Lease: lease, Transitions: 0}, false},
		"the first term of all":                {&store.Term{}, store.Term{Lease: lease, Transitions: 0}, false},
	} {
		if got := c.now.Current(c.last); got != c.want {
			t.Errorf("%s: current %v, want %v", name, got, c.want)
		}
	}
}

// TestBeginTerm begins terms one after the other on one directory, each with a work in it.
func TestBeginTerm(t *testing.T) {
	dir := t.TempDir()
	term := func(lease string, transitions int32) *store.Term {
		return &store.Term{Lease: lease, Transitions: transitions}
	}
	for i, c := range []struct {
		name  string
		term  *store.Term
		works int // found
		want  bool
	}{
		{"the first start", term("a", 0), 0, false},
		{"an older version or no leader election", nil, 1, true},
		{"leader election is new", term("a", 0), 1, false},
		{"the same term", term("a", 0), 1, true},
		{"the next term", term("a", 1), 1, true},
		{"another led", term("a", 3), 1, false},
		{"the next term again", term("a", 4), 1, true},
		{"the Lease was made again", term("b", 0), 1, false},
		{"no leader election", nil, 1, true},
		{"leader election again", term("b", 1), 1, false},
	} {
		s := open(t, dir)
		works := 0
		kit.NoError(t, s.Each(store.Specs, func(string, []byte) error { works++; return nil }))
		log := &kit.Log{}
		current, err := store.BeginTerm(s, c.term, log.Logger())
		kit.NoError(t, err)
		if said := len(log.Lines("another replica may have led")) == 1; said != (works > 0 && !c.want) {
			t.Errorf("%d, %s: says that another may have led: %t", i, c.name, said)
		}
		if current != c.want || works != c.works {
			t.Errorf("%d, %s: current %v with %d works, want %v with %d", i, c.name, current, works, c.want, c.works)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- store.Run(ctx, s) }()
		discarded := make(chan error, 1)
		s.Barrier(func(err error) { discarded <- err })
		kit.NoError(t, kit.Receive(t, "what is discarded is on disk", discarded))
		if !current {
			left := 0
			for _, bucket := range []statestore.Bucket{store.Specs, store.Statuses} {
				kit.NoError(t, s.Each(bucket, func(string, []byte) error { left++; return nil }))
			}
			if left > 0 {
				t.Errorf("%d, %s: %d old entries are left", i, c.name, left)
			}
		}
		s.Put(store.Specs, "work", func() ([]byte, error) { return []byte("{}"), nil })
		s.Put(store.Statuses, "work", func() ([]byte, error) { return []byte("{}"), nil })
		cancel()
		kit.NoError(t, kit.Receive(t, "the store is closed", ended))
	}
}

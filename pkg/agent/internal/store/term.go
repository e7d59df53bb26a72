package store

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/workwire/workwire/pkg/runtime/statestore"
)

// Term is a term of leadership over a cluster, as its Lease counts them.
type Term struct {
	// Lease is the UID of the Lease.
	Lease string `json:"lease"`
	// Transitions is the Lease's count when the term began. Each acquisition by another replica, or
	// after a release, adds one.
	Transitions int32 `json:"transitions"`
}

// termKey is the key of the last Term, as JSON, in bucket meta.
const termKey = "term"

// Current reports whether state that was last written in the term last is current in t: no other
// replica led in between. last is nil if it is not known.
func (t Term) Current(last *Term) bool {
	return last != nil && last.Lease == t.Lease && (last.Transitions == t.Transitions || last.Transitions+1 == t.Transitions)
}

// BeginTerm notes in s that the term t begins, nil without leader election. It returns whether what
// s holds is current. If not, it deletes all specs and statuses with the next batch, and the caller
// must not read them. State without a term, of an older version or of a replica that ran without
// leader election, is not current. Call it once, before Run.
func BeginTerm(s *statestore.Store, t *Term, logger *slog.Logger) (current bool, err error) {
	if s == nil {
		return true, nil
	}
	if t == nil {
		s.Delete(meta, termKey)
		return true, nil
	}
	last, err := lastTerm(s)
	if err != nil {
		return false, err
	}
	put := func() {
		s.Put(meta, termKey, func() ([]byte, error) { return json.Marshal(t) })
	}
	if t.Current(last) {
		put()
		return true, nil
	}
	discarded := 0
	for _, bucket := range []statestore.Bucket{Specs, Statuses} {
		err := s.Each(bucket, func(key string, _ []byte) error {
			s.Delete(bucket, key)
			discarded++
			return nil
		})
		if err != nil {
			return false, fmt.Errorf("discard old state: %w", err)
		}
	}
	if discarded > 0 {
		logger.Info("another replica may have led since the state was written; works are applied once their source has sent them")
	}
	// Old state must be gone before the term says that the state is current.
	s.Barrier(func(err error) {
		if err == nil {
			put()
		}
	})
	return false, nil
}

// lastTerm returns the term that s was written in last; nil if it is not known or not readable.
func lastTerm(s *statestore.Store) (*Term, error) {
	data, ok, err := s.Get(meta, termKey)
	if err != nil || !ok {
		return nil, err
	}
	var last Term
	if json.Unmarshal(data, &last) != nil {
		return nil, nil
	}
	return &last, nil
}

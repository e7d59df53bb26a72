package source

import (
	"encoding/json"
	"fmt"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/wire"
)

// recordJSON is the data of a record in a store.
type recordJSON struct {
	Since     wire.Generation      `json:"since"`
	Relabeled bool                 `json:"relabeled,omitempty"`
	Sequence  wire.SequenceID      `json:"sequence,omitempty"`
	Session   string               `json:"session,omitempty"`
	Previous  *sequenceJSON        `json:"previous,omitempty"`
	Work      *workv1.ManifestWork `json:"work"`
}

// sequenceJSON is the last sequence id of a work in the session before the newest one.
type sequenceJSON struct {
	Sequence wire.SequenceID `json:"sequence"`
	Session  string          `json:"session,omitempty"`
}

func newRecordJSON(r *storedWork) recordJSON {
	newest, previous := r.sequences.Newest, r.sequences.Previous
	record := recordJSON{Since: r.firstGeneration, Relabeled: r.relabeled, Sequence: newest.ID, Session: newest.Session.String(), Work: r.work}
	if previous.ID != 0 {
		record.Previous = &sequenceJSON{Sequence: previous.ID, Session: previous.Session.String()}
	}
	return record
}

func (r *recordJSON) sequences() (s delivery.Sequences) {
	s = s.Add(delivery.NewSession(r.Session), r.Sequence)
	if r.Previous != nil && r.Previous.Sequence != 0 && s.Newest.ID != 0 {
		s.Previous = delivery.SessionSequence{Session: delivery.NewSession(r.Previous.Session), ID: r.Previous.Sequence}
	}
	return s
}

// newRecord returns the record that stores the result of ch.
func newRecord(ch *change) (store.Record, error) {
	work := ch.new.work
	data, err := json.Marshal(newRecordJSON(ch.new))
	if err != nil {
		return store.Record{}, fmt.Errorf("work %s/%s: %w", work.Namespace, work.Name, err)
	}
	return store.Record{
		UID: work.UID, Namespace: work.Namespace, Name: work.Name, Version: ch.version,
		Removed: ch.removed, Confirmed: ch.removed && ch.statusOnly, Data: data,
	}, nil
}

// decodeRecord reads the data of the record of a work.
func decodeRecord(uid string, data []byte) (*storedWork, error) {
	var r recordJSON
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("work %s is damaged: %w", uid, err)
	}
	if r.Work == nil || string(r.Work.UID) != uid || r.Work.Name == "" || r.Work.Namespace == "" {
		return nil, fmt.Errorf("work %s is damaged: its name, namespace or UID is missing", uid)
	}
	return &storedWork{work: r.Work, firstGeneration: r.Since, sequences: r.sequences(), relabeled: r.Relabeled}, nil
}

// decodeChanges returns the changes that another replica has stored since the version from: newer are
// its records, in the order of their versions.
func decodeChanges(state *content, from int64, newer []store.Record) ([]*change, error) {
	coalesced := len(newer) > 0 && newer[len(newer)-1].Version-from != int64(len(newer))
	changes := make([]*change, 0, len(newer))
	for _, r := range newer {
		next, err := decodeRecord(string(r.UID), r.Data)
		if err != nil {
			return nil, err
		}
		ch := &change{old: state.works[r.UID], new: next, removed: r.Removed, version: r.Version, from: from}
		ch.statusOnly = r.Confirmed
		if !coalesced {
			from = r.Version
		}
		changes = append(changes, ch)
	}
	return changes, nil
}

package source

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/statestore"
	"github.com/workwire/workwire/pkg/wire"
)

// The layout of a state file: bucket "works" maps UIDs to a recordJSON, bucket "source" the keys
// below.
const (
	worksBucket  statestore.Bucket = "works"
	sourceBucket statestore.Bucket = "source"
	keyFormat                      = "format"   // stateFormat
	keySource                      = "id"       // the source that the file belongs to
	keyVersion                     = "version"  // big-endian, the last resourceVersion
	keyFloor                       = "floor"    // big-endian, state.floor
	keyIdentity                    = "identity" // a UUID
	keySince                       = "since"    // big-endian, store.since

	stateFormat = "1"
)

// recordJSON is a work in the file.
type recordJSON struct {
	Since    wire.Generation      `json:"since"`
	Sequence wire.SequenceID      `json:"sequence,omitempty"`
	Session  string               `json:"session,omitempty"`
	Previous *sequenceJSON        `json:"previous,omitempty"`
	Work     *workv1.ManifestWork `json:"work"`
}

// sequenceJSON is the last sequence id of a work in the session before the newest one.
type sequenceJSON struct {
	Sequence wire.SequenceID `json:"sequence"`
	Session  string          `json:"session,omitempty"`
}

func newRecordJSON(r *storedWork) recordJSON {
	newest, previous := r.sequences.Newest, r.sequences.Previous
	record := recordJSON{Since: r.firstGeneration, Sequence: newest.ID, Session: newest.Session.String(), Work: r.work}
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

// stateFile persists a store.
type stateFile struct {
	*statestore.Store
	identity string
	since    wire.Generation
	stop     context.CancelFunc
	ended    chan error // result of Store.Run
}

// openStateFile opens or creates the file of a source, whose next works have generations above
// floor. Close it when done.
func openStateFile(path string, source wire.SourceID, floor wire.Generation) (*stateFile, error) {
	f := &stateFile{ended: make(chan error, 1)}
	file, err := statestore.Open(statestore.Config{
		Name: "state file", Path: path, Buckets: []statestore.Bucket{worksBucket},
		Meta: sourceBucket, Recovery: "restore a backup first if there is one: without it, every work must be created again",
		Check: func(meta *bbolt.Bucket) error {
			isNew := meta.Get([]byte(keyFormat)) == nil
			if err := statestore.RequireValue(meta, keyFormat, stateFormat); err != nil {
				return err
			}
			if err := statestore.RequireValue(meta, keySource, string(source)); err != nil {
				return err
			}
			return f.prepareIdentity(meta, isNew, floor)
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	f.Store, f.stop = file, stop
	go func() { f.ended <- file.Run(ctx) }()
	return f, nil
}

// prepareIdentity reads the identity of the file, or makes one. A file of an earlier version gets
// one too, but the generation that it was made at is unknown.
func (f *stateFile) prepareIdentity(meta *bbolt.Bucket, isNew bool, floor wire.Generation) error {
	if meta.Get([]byte(keyIdentity)) == nil {
		if err := meta.Put([]byte(keyIdentity), []byte(uuid.NewString())); err != nil {
			return err
		}
		if isNew {
			if err := meta.Put([]byte(keySince), binary.BigEndian.AppendUint64(nil, uint64(floor))); err != nil {
				return err
			}
		}
	}
	f.identity = string(meta.Get([]byte(keyIdentity)))
	f.since = wire.Generation(decodeNumber(meta.Get([]byte(keySince))))
	return nil
}

// close waits for the updates that have begun and closes the file.
func (f *stateFile) close() error {
	f.stop()
	return errors.Join(<-f.ended, f.Store.Close())
}

// load reads the whole file into s.
func (f *stateFile) load(s *state) error {
	version, _, versionErr := f.Get(sourceBucket, keyVersion)
	floor, _, floorErr := f.Get(sourceBucket, keyFloor)
	if err := errors.Join(versionErr, floorErr); err != nil {
		return err
	}
	s.version, s.floor = decodeNumber(version), max(s.floor, wire.Generation(decodeNumber(floor)))
	err := f.Each(worksBucket, func(uid string, data []byte) error {
		r, err := decodeRecord(uid, data)
		if err == nil {
			s.put(r)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read state file: %w", err)
	}
	return nil
}

// decodeRecord reads one record of the works bucket.
func decodeRecord(uid string, data []byte) (*storedWork, error) {
	var r recordJSON
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("work %s is damaged: %w", uid, err)
	}
	if r.Work == nil || string(r.Work.UID) != uid || r.Work.Name == "" || r.Work.Namespace == "" {
		return nil, fmt.Errorf("work %s is damaged: its name, namespace or UID is missing", uid)
	}
	return &storedWork{work: r.Work, firstGeneration: r.Since, sequences: r.sequences()}, nil
}

// save adds ch to writes. version and floor are those of the store after ch.
func save(writes statestore.Writes, ch *change, version int64, floor wire.Generation) {
	work := ch.new.work
	if ch.removed {
		writes.Delete(worksBucket, string(work.UID))
	} else {
		writes.Put(worksBucket, string(work.UID), func() ([]byte, error) {
			data, err := json.Marshal(newRecordJSON(ch.new))
			if err != nil {
				return nil, fmt.Errorf("work %s/%s: %w", work.Namespace, work.Name, err)
			}
			return data, nil
		})
	}
	writes.Put(sourceBucket, keyVersion, encodeNumber(version))
	writes.Put(sourceBucket, keyFloor, encodeNumber(int64(floor)))
}

func encodeNumber(n int64) statestore.Encoder {
	return func() ([]byte, error) { return binary.BigEndian.AppendUint64(nil, uint64(n)), nil }
}

// decodeNumber decodes what encodeNumber encoded, and returns 0 for anything else.
func decodeNumber(data []byte) int64 {
	if len(data) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(data))
}

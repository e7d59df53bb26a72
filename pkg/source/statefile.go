package source

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// The layout of a state file: bucket "works" holds a savedRecord as JSON by UID,
// bucket "source" the keys below.
var (
	worksBucket  = []byte("works")
	sourceBucket = []byte("source")
	keyFormat    = []byte("format")  // stateFormat
	keySource    = []byte("id")      // the source that the file belongs to
	keyVersion   = []byte("version") // big-endian, the last resourceVersion
	keyFloor     = []byte("floor")   // big-endian, state.floor
)

const (
	stateFormat = "1"
	// lockTimeout is how long to wait for another process to let go of the file.
	lockTimeout = time.Second
)

// savedRecord is a record in the file.
type savedRecord struct {
	Since    wire.Generation      `json:"since"`
	Sequence wire.SequenceID      `json:"sequence,omitempty"`
	Work     *workv1.ManifestWork `json:"work"`
}

// saved is what a file holds.
type saved struct {
	records []*storedWork
	version int64
	floor   wire.Generation
}

// stateFile keeps a store on disk.
type stateFile struct{ db *bbolt.DB }

// openStateFile opens the file of a source, or makes it.
func openStateFile(path string, source wire.SourceID) (*stateFile, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("state file %s is in use by another process", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open state file %s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists(worksBucket); err != nil {
			return err
		}
		about, err := tx.CreateBucketIfNotExists(sourceBucket)
		if err != nil {
			return err
		}
		for key, want := range map[string]string{string(keyFormat): stateFormat, string(keySource): string(source)} {
			switch got := about.Get([]byte(key)); {
			case got == nil:
				if err := about.Put([]byte(key), []byte(want)); err != nil {
					return err
				}
			case string(got) != want:
				return fmt.Errorf("its %s is %q, want %q", key, got, want)
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state file %s can not be used: %w", path, err), db.Close())
	}
	return &stateFile{db: db}, nil
}

// load reads all that the file holds.
func (f *stateFile) load() (saved, error) {
	var s saved
	err := f.db.View(func(tx *bbolt.Tx) error {
		about := tx.Bucket(sourceBucket)
		s.version = number(about.Get(keyVersion))
		s.floor = wire.Generation(number(about.Get(keyFloor)))
		return tx.Bucket(worksBucket).ForEach(func(uid, data []byte) error {
			r, err := decodeRecord(uid, data)
			if err != nil {
				return err
			}
			s.records = append(s.records, r)
			return nil
		})
	})
	if err != nil {
		return saved{}, fmt.Errorf("read state file %s: %w", f.db.Path(), err)
	}
	return s, nil
}

// decodeRecord reads one record of the works bucket.
func decodeRecord(uid, data []byte) (*storedWork, error) {
	var r savedRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("work %s is damaged: %w", uid, err)
	}
	if r.Work == nil || string(r.Work.UID) != string(uid) || r.Work.Name == "" || r.Work.Namespace == "" {
		return nil, fmt.Errorf("work %s is damaged: it lacks its name or UID", uid)
	}
	return &storedWork{work: r.Work, firstGeneration: r.Since, lastSequence: r.Sequence}, nil
}

// save writes what v has staged, all or nothing.
func (f *stateFile) save(v *view) error {
	return f.db.Update(func(tx *bbolt.Tx) error {
		works, about := tx.Bucket(worksBucket), tx.Bucket(sourceBucket)
		for uid, r := range v.staged {
			if r == nil {
				if err := works.Delete([]byte(uid)); err != nil {
					return err
				}
				continue
			}
			data, err := json.Marshal(savedRecord{Since: r.firstGeneration, Sequence: r.lastSequence, Work: r.work})
			if err != nil {
				return fmt.Errorf("work %s/%s: %w", r.work.Namespace, r.work.Name, err)
			}
			if err := works.Put([]byte(uid), data); err != nil {
				return err
			}
		}
		if err := about.Put(keyVersion, bytesOf(v.version)); err != nil {
			return err
		}
		return about.Put(keyFloor, bytesOf(int64(v.floor)))
	})
}

func (f *stateFile) close() error { return f.db.Close() }

func bytesOf(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// number reads what bytesOf wrote; anything else is 0.
func number(data []byte) int64 {
	if len(data) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(data))
}

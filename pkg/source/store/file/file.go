// Package file is a [store.Store] in one bbolt file, for a source that is one process.
package file

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/wire"
)

// The layout of the file: bucket "works" maps UIDs to the data of records, bucket "source" the keys
// below.
const (
	worksBucket  statestore.Bucket = "works"
	sourceBucket statestore.Bucket = "source"
	keyFormat                      = "format"   // format
	keySource                      = "id"       // the source that the file belongs to
	keyVersion                     = "version"  // big-endian, the last resourceVersion
	keyFloor                       = "floor"    // big-endian, Header.Floor
	keyIdentity                    = "identity" // a UUID
	keySince                       = "since"    // big-endian, Header.Since

	format = "1"
)

// Store is a file. One process can use it at a time.
type Store struct {
	path  string
	file  *statestore.Store
	stop  context.CancelFunc
	ended chan error // result of statestore.Store.Run
}

var _ store.Store = (*Store)(nil)

// New returns the store in the file at path, which Open makes if it does not exist. Its directory
// must exist. New does no I/O.
func New(path string) *Store { return &Store{path: path, ended: make(chan error, 1)} }

// Open opens or creates the file and reads all of it. The errors name the file and what to do.
func (s *Store) Open(ctx context.Context, source wire.SourceID, initial store.Header, each func(store.Record) error) (store.Header, error) {
	var h store.Header
	file, err := statestore.Open(statestore.Config{
		Name: "state file", Path: s.path, Buckets: []statestore.Bucket{worksBucket},
		Meta: sourceBucket, Recovery: "restore a backup first if there is one: without it, every work must be created again",
		Check: func(meta *bbolt.Bucket) (err error) {
			h, err = readHeader(meta, source, initial)
			return err
		},
	})
	if err != nil {
		return h, typed(err)
	}
	if err := load(ctx, file, each); err != nil {
		return h, errors.Join(typed(fmt.Errorf("read state file: %w", err)), file.Close())
	}
	running, stop := context.WithCancel(context.Background())
	s.file, s.stop = file, stop
	go func() { s.ended <- file.Run(running) }()
	return h, nil
}

// typed adds the error of package store that err is.
func typed(err error) error {
	for from, to := range map[error]error{
		statestore.ErrInUse: store.ErrInUse, statestore.ErrIncompatible: store.ErrIncompatible, statestore.ErrDamaged: store.ErrDamaged,
	} {
		if errors.Is(err, from) {
			return typedError{err, to}
		}
	}
	return err
}

// typedError is an error that is also one of package store.
type typedError struct {
	error
	is error
}

func (e typedError) Unwrap() error        { return e.error }
func (e typedError) Is(target error) bool { return target == e.is }

// readHeader reads the header, and writes it to a new file. A file of an earlier version gets an
// identity too, but the generation that it was made at is unknown.
func readHeader(meta *bbolt.Bucket, source wire.SourceID, initial store.Header) (h store.Header, err error) {
	isNew := meta.Get([]byte(keyFormat)) == nil
	if err := statestore.RequireValue(meta, keyFormat, format); err != nil {
		return h, err
	}
	if err := statestore.RequireValue(meta, keySource, string(source)); err != nil {
		return h, err
	}
	if meta.Get([]byte(keyIdentity)) == nil {
		if err := meta.Put([]byte(keyIdentity), []byte(initial.Identity)); err != nil {
			return h, err
		}
		if isNew {
			if err := meta.Put([]byte(keySince), number(int64(initial.Since))); err != nil {
				return h, err
			}
		}
	}
	return store.Header{
		Identity: string(meta.Get([]byte(keyIdentity))),
		Since:    wire.Generation(decodeNumber(meta.Get([]byte(keySince)))),
		Version:  max(initial.Version, decodeNumber(meta.Get([]byte(keyVersion)))),
		Floor:    max(initial.Floor, wire.Generation(decodeNumber(meta.Get([]byte(keyFloor))))),
	}, nil
}

func load(ctx context.Context, file *statestore.Store, each func(store.Record) error) error {
	return file.Each(worksBucket, func(uid string, data []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return each(store.Record{UID: types.UID(uid), Data: data})
	})
}

// Update stores what change returns. No other process can have written newer records.
func (s *Store) Update(_ context.Context, after int64, change store.ChangeFunc) error {
	var refused error
	done := make(chan error, 1)
	s.file.Update(func(writes statestore.Writes) {
		var h store.Header
		var records []store.Record
		if h, records, refused = change(store.Header{Version: after}, nil); refused == nil && len(records) > 0 {
			save(writes, h, records)
		}
	}, func(err error) { done <- err })
	return errors.Join(<-done, refused)
}

func save(writes statestore.Writes, h store.Header, records []store.Record) {
	for _, r := range records {
		if r.Removed {
			writes.Delete(worksBucket, string(r.UID))
		} else {
			writes.Put(worksBucket, string(r.UID), func() ([]byte, error) { return r.Data, nil })
		}
	}
	writes.Put(sourceBucket, keyVersion, func() ([]byte, error) { return number(h.Version), nil })
	writes.Put(sourceBucket, keyFloor, func() ([]byte, error) { return number(int64(h.Floor)), nil })
}

// Close waits for the updates that have begun and closes the file.
func (s *Store) Close() error {
	s.stop()
	return errors.Join(<-s.ended, s.file.Close())
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// decodeNumber decodes what number encoded, and returns 0 for anything else.
func decodeNumber(data []byte) int64 {
	if len(data) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(data))
}

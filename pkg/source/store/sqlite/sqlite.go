// Package sqlite is a [store.Store] in one SQLite database, for a source that is one process. Other
// programs may read the database meanwhile: back it up, or query the works as JSON.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
	_ "modernc.org/sqlite" // the driver

	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/wire"
)

// schemaVersion is the user_version of the database.
const schemaVersion = 1

// schema makes an empty database. There is one row in source.
const schema = `
CREATE TABLE source (
	id TEXT PRIMARY KEY, identity TEXT NOT NULL, since INTEGER NOT NULL, version INTEGER NOT NULL, floor INTEGER NOT NULL
) STRICT;
CREATE TABLE works (
	uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, data TEXT NOT NULL
) STRICT;
PRAGMA user_version = 1;`

// Store is a database. One process can use it at a time.
type Store struct {
	path string
	db   *sql.DB
	lock *os.File
}

var _ store.Store = (*Store)(nil)

// New returns the store in the database at path, which Open makes if it does not exist. Its directory
// must exist. SQLite keeps further files beside it, whose names begin with path, and so does the lock
// against other processes. New does no I/O.
func New(path string) *Store { return &Store{path: path} }

// Open opens or creates the database, checks it, and reads all of it.
func (s *Store) Open(ctx context.Context, source wire.SourceID, initial store.Header, each func(store.Record) error) (h store.Header, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open SQLite database %s: %w", s.path, typed(err)), s.Close())
		}
	}()
	path, err := filepath.Abs(s.path)
	if err != nil {
		return h, err
	}
	if err := s.acquire(path); err != nil {
		return h, err
	}
	s.db, err = sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return h, err
	}
	s.db.SetMaxOpenConns(1)
	if err := s.check(ctx); err != nil {
		return h, err
	}
	if h, err = s.header(ctx, source, initial); err != nil {
		return h, err
	}
	return h, s.load(ctx, each)
}

// acquire makes the file, and locks it against other processes.
func (s *Store) acquire(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return err
	}
	// Not the database itself: SQLite uses locks of its own, which closing another descriptor of the
	// file would remove.
	if s.lock, err = os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	err = syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%w: stop the other process, or configure another path", store.ErrInUse)
	}
	return err
}

// check makes the schema of a new database, and refuses one that is damaged or of a later version.
func (s *Store) check(ctx context.Context) error {
	var version int
	if err := s.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	var result string
	if err := s.db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&result); err != nil {
		return err
	}
	switch {
	case result != "ok":
		return fmt.Errorf("%w: %s: restore a backup", store.ErrDamaged, result)
	case version > schemaVersion:
		return fmt.Errorf("%w: its schema has version %d, this program knows %d", store.ErrIncompatible, version, schemaVersion)
	case version == schemaVersion:
		return nil
	}
	return s.transaction(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, schema)
		return err
	})
}

// header reads the header, and writes it to a new database.
func (s *Store) header(ctx context.Context, source wire.SourceID, initial store.Header) (store.Header, error) {
	var h store.Header
	var id string
	err := s.db.QueryRowContext(ctx, "SELECT id, identity, since, version, floor FROM source").Scan(&id, &h.Identity, &h.Since, &h.Version, &h.Floor)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		_, err := s.db.ExecContext(ctx, "INSERT INTO source (id, identity, since, version, floor) VALUES (?, ?, ?, ?, ?)",
			string(source), initial.Identity, int64(initial.Since), initial.Version, int64(initial.Floor))
		return initial, err
	case err != nil:
		return h, err
	case id != string(source):
		return h, fmt.Errorf("%w: its source is %q, want %q", store.ErrIncompatible, id, source)
	}
	h.Version, h.Floor = max(h.Version, initial.Version), max(h.Floor, initial.Floor)
	return h, nil
}

func (s *Store) load(ctx context.Context, each func(store.Record) error) error {
	rows, err := s.db.QueryContext(ctx, "SELECT uid, namespace, name, version, data FROM works")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err has the reason
	for rows.Next() {
		var r store.Record
		var uid string
		if err := rows.Scan(&uid, &r.Namespace, &r.Name, &r.Version, &r.Data); err != nil {
			return err
		}
		r.UID = types.UID(uid)
		if err := each(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Update stores what change returns. No other process can have written newer records.
func (s *Store) Update(ctx context.Context, after int64, change store.ChangeFunc) error {
	h, records, refused := change(store.Header{Version: after}, nil)
	if refused != nil || len(records) == 0 {
		return refused
	}
	err := s.transaction(ctx, func(tx *sql.Tx) error { return write(ctx, tx, h, records) })
	if err != nil {
		return fmt.Errorf("write SQLite database %s: %w", s.path, typed(err))
	}
	return nil
}

func write(ctx context.Context, tx *sql.Tx, h store.Header, records []store.Record) error {
	for _, r := range records {
		var err error
		if r.Removed {
			_, err = tx.ExecContext(ctx, "DELETE FROM works WHERE uid = ?", string(r.UID))
		} else {
			_, err = tx.ExecContext(ctx, "INSERT INTO works (uid, namespace, name, version, data) VALUES (?, ?, ?, ?, ?) "+
				"ON CONFLICT (uid) DO UPDATE SET version = excluded.version, data = excluded.data",
				string(r.UID), r.Namespace, r.Name, r.Version, string(r.Data))
		}
		if err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, "UPDATE source SET version = ?, floor = ?", h.Version, int64(h.Floor))
	return err
}

func (s *Store) transaction(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// SQLite's result codes (https://www.sqlite.org/rescode.html).
const (
	codeCorrupt = 11
	codeNotADB  = 26
)

// typed adds the error of package store that err is.
func typed(err error) error {
	var failed interface{ Code() int }
	if errors.As(err, &failed) {
		switch failed.Code() & 0xff {
		case codeCorrupt, codeNotADB:
			return fmt.Errorf("%w: %w: restore a backup", store.ErrDamaged, err)
		}
	}
	return err
}

// Close closes the database.
func (s *Store) Close() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	s.db, s.lock = nil, nil
	return errors.Join(errs...)
}

package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/source/store/sqlite"
	"github.com/workwire/workwire/pkg/source/store/storetest"
	"github.com/workwire/workwire/test/kit"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Place { return place{filepath.Join(t.TempDir(), "ops ü?%.sqlite")} })
}

// place is backed up as docs/operations.md says: with VACUUM INTO, and restored without the files
// beside it.
type place struct{ path string }

func (p place) New() store.Store { return sqlite.New(p.path) }

func (p place) Copy(t testing.TB) {
	t.Helper()
	here := filepath.Join(filepath.Dir(p.path), "here") // a name without special characters
	kit.NoError(t, os.Link(p.path, here))
	db, err := sql.Open("sqlite", here)
	kit.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "VACUUM INTO '"+here+".copy'")
	kit.NoError(t, err)
	kit.NoError(t, db.Close())
}

func (p place) Restore(t testing.TB) {
	t.Helper()
	_ = os.Remove(p.path + "-wal")
	_ = os.Remove(p.path + "-shm")
	kit.NoError(t, os.Rename(filepath.Join(filepath.Dir(p.path), "here.copy"), p.path))
}

// TestDamaged: a file that is no database, a damaged one, and one of a later version are refused.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ops.sqlite")
	open := func() error {
		s := sqlite.New(path)
		_, err := s.Open(t.Context(), storetest.Source, store.Header{Identity: "i"}, func(store.Record) error { return nil })
		if err == nil {
			err = s.Close()
		}
		return err
	}
	kit.NoError(t, open())
	db, err := sql.Open("sqlite", path)
	kit.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "PRAGMA user_version = 2")
	kit.NoError(t, err)
	kit.NoError(t, db.Close())
	if err := open(); !errors.Is(err, store.ErrIncompatible) {
		t.Errorf("a database of a later version: %v", err)
	}
	kit.NoError(t, os.WriteFile(path, []byte("this is a text, and much longer than the header of a database, which has 100 bytes, so that it is read as one"), 0o600))
	if err := open(); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a text: %v", err)
	}
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B) store.Store { return sqlite.New(filepath.Join(b.TempDir(), "ops.db")) })
}

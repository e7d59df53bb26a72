package store_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/workwire/workwire/pkg/agent/store"
	"github.com/workwire/workwire/pkg/statestore"
	"github.com/workwire/workwire/test/kit"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, dir string) *statestore.Store {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func wantOpenError(t *testing.T, dir string, want ...string) {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir})
	if err == nil {
		_ = s.Close()
		t.Fatal("Open succeeds")
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Open = %v\nwant it to say %q", err, text)
		}
	}
}

func TestOpenWithoutDirectory(t *testing.T) {
	wantOpenError(t, "", "no directory given")
}

func TestOpenWhereNothingCanBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, file, file, "configure a directory that this user")
	wantOpenError(t, filepath.Join(file, "below"), file, "configure a directory that this user")
}

func TestOpenSetsModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	path := filepath.Join(dir, "state.db")
	wantModes := func() {
		t.Helper()
		for path, want := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s has mode %o, want %o", path, got, want)
			}
		}
	}
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	wantModes()
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	wantModes()
}

func TestOpenOfALaterFormat(t *testing.T) {
	setFormat := func(text string) string {
		dir := t.TempDir()
		if err := open(t, dir).Close(); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(filepath.Join(dir, "state.db"), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte(text)) })
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := setFormat("2")
	wantOpenError(t, dir, filepath.Join(dir, "state.db"), "format 2", "a newer agent wrote it", "move the file away")
	dir = setFormat("later")
	wantOpenError(t, dir, "is damaged", "move it away", "every work is then fetched again")
}

// TestCommitIsRetried: Run retries failed commits until one succeeds.
func TestCommitIsRetried(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	attempts := 0
	s.Put(store.Specs, "a", func() ([]byte, error) {
		if attempts++; attempts < 3 {
			panic("no space") // as bbolt does
		}
		return []byte("1"), nil
	})
	s.Put(store.Statuses, "b", func() ([]byte, error) { return []byte("1"), nil })
	ctx, cancel := context.WithCancel(t.Context())
	s.Barrier(func(err error) {
		if err != nil {
			t.Errorf("the barrier got %v", err)
		}
		cancel()
	})
	time.AfterFunc(kit.Patience, cancel)
	if err := store.Run(ctx, s, quiet); err != nil || attempts != 3 {
		t.Errorf("Run: %v after %d attempts, want success with the third", err, attempts)
	}
	s = open(t, dir) // Run has closed it
	for _, at := range []struct {
		bucket statestore.Bucket
		key    string
	}{{store.Specs, "a"}, {store.Statuses, "b"}} {
		if _, ok, err := s.Get(at.bucket, at.key); !ok || err != nil {
			t.Errorf("%s %s is not on disk: %v", at.bucket, at.key, err)
		}
	}
}

func TestRunReportsTheLastFailure(t *testing.T) {
	s := open(t, t.TempDir())
	s.Put(store.Specs, "a", func() ([]byte, error) { panic("no space") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Run(ctx, s, quiet); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("Run: %v", err)
	}
}

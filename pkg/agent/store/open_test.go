package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/workwire/workwire/pkg/agent/store"
)

// written gives a directory with a state file of some hundred records.
func written(t testing.TB) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir)
	for i := range 300 {
		s.Bucket(store.Specs).Put(fmt.Sprintf("%04d", i), value(strings.Repeat("spec ", 200)))
	}
	stop := run(t, s)
	synced(t, s)
	stop()
	return dir, filepath.Join(dir, "state.db")
}

func refused(t *testing.T, dir string, want ...string) {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir, Lock: 10 * time.Millisecond})
	if err == nil {
		s.Close()
		t.Fatal("Open takes it")
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Open = %v\nwant it to say %q", err, text)
		}
	}
}

func TestOpenWithoutDirectory(t *testing.T) {
	refused(t, "", "no directory given")
}

func TestOpenWhereNothingCanBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, file, file, "give a directory that this user")
	refused(t, filepath.Join(file, "below"), file, "give a directory that this user")

	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "state.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, filepath.Join(dir, "state.db"), "give a directory that this user")
}

func TestOpenWhileAnotherHoldsIt(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	refused(t, dir, filepath.Join(dir, "state.db"), "another process still holds it", "stop the other agent")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir)
	defer second.Close()
}

func TestOpenClosesTheFileToOthers(t *testing.T) {
	dir, path := written(t)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	defer open(t, dir).Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
}

func TestOpenOfALaterFormat(t *testing.T) {
	setFormat := func(t *testing.T, text string) string {
		dir, path := written(t)
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte(text)) })
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := setFormat(t, "2")
	refused(t, dir, filepath.Join(dir, "state.db"), "format 2", "a newer agent wrote it", "move the file away")
	dir = setFormat(t, "later")
	refused(t, dir, filepath.Join(dir, "state.db"), "is damaged", "move it away")
}

// TestOpenOfADamagedFile damages a file in many ways. Whatever comes of it, the
// process goes on, and what fails says which file and what to do.
func TestOpenOfADamagedFile(t *testing.T) {
	_, path := written(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	noise := func(from, to int) []byte {
		data := bytes.Clone(whole)
		for i := from; i < to && i < len(data); i++ {
			data[i] ^= 0x5a
		}
		return data
	}
	page := os.Getpagesize()
	cases := map[string][]byte{
		"text":        []byte(strings.Repeat("this is no database\n", 1000)),
		"one byte":    {7},
		"both metas":  noise(0, 2*page),
		"all but two": noise(2*page, len(whole)),
		"half":        whole[:len(whole)/2],
		"two pages":   whole[:2*page],
	}
	for i := 2; i < len(whole)/page; i += 7 {
		cases[fmt.Sprintf("page %d", i)] = noise(i*page, (i+1)*page)
	}
	failures := 0
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "state.db"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := store.Open(store.Config{Dir: dir})
			if err == nil {
				err = s.Bucket(store.Specs).Each(func(string, []byte) error { return nil })
				_ = s.Close()
			}
			if err == nil {
				return // the damage is where nothing is read
			}
			failures++
			for _, want := range []string{filepath.Join(dir, "state.db"), "is damaged", "move it away and start again"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant it to say %q", err, want)
				}
			}
		})
	}
	if failures < 5 {
		t.Errorf("only %d of %d damaged files were noticed", failures, len(cases))
	}
}

// TestCommitIsRepeated takes the file's room away and gives it back.
func TestCommitIsRepeated(t *testing.T) {
	s := open(t, t.TempDir())
	full := errors.New("no space")
	failing := make(chan struct{}, 100)
	mended := make(chan struct{})
	specs := s.Bucket(store.Specs)
	store.FailCommits(s, func() error {
		select {
		case <-mended:
			return nil
		default:
			specs.Put("a", value("new")) // while the old one is being written
			failing <- struct{}{}
			return full
		}
	})
	specs.Put("a", value("old"))
	passed := make(chan error, 1)
	s.Barrier(func(err error) { passed <- err })
	run(t, s)
	<-failing
	specs.Put("b", value("1"))
	<-failing
	if err := s.Err(); !errors.Is(err, full) || !strings.Contains(err.Error(), "state.db") {
		t.Errorf("Err = %v, want the cause and the file", err)
	}
	select {
	case err := <-passed:
		t.Fatalf("the barrier passed (%v) while nothing could be written", err)
	default:
	}
	close(mended)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case err := <-passed:
		if err != nil {
			t.Errorf("the barrier got %v", err)
		}
	case <-ctx.Done():
		t.Fatal("the barrier did not pass")
	}
	synced(t, s)
	if got := content(t, specs); got["a"] != "new" || got["b"] != "1" {
		t.Errorf("on disk is %v", got)
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err = %v after it was mended", err)
	}
}

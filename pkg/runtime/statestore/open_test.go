package statestore_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/test/kit"
)

// written returns a state file with some hundred values.
func written(t testing.TB) (path string) {
	t.Helper()
	path = tempFile(t)
	s := open(t, path, nil)
	for i := range 300 {
		s.Put(one, fmt.Sprintf("%04d", i), value(strings.Repeat("spec ", 200)))
	}
	run(t, s)()
	kit.NoError(t, s.Close())
	return path
}

func wantOpenError(t *testing.T, c statestore.Config, want ...string) {
	t.Helper()
	s, err := statestore.Open(c)
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

func TestOpenRefusesAnIncompleteConfig(t *testing.T) {
	wantOpenError(t, statestore.Config{}, "Name, Path, Meta and Check are required")
	c := config(tempFile(t))
	c.Delay = -1
	wantOpenError(t, c, "must not be negative")
}

func TestOpenWhereNothingCanBeWritten(t *testing.T) {
	directory := t.TempDir()
	wantOpenError(t, config(directory), directory, "configure a path that this user")
	missing := filepath.Join(directory, "missing", "state.db")
	wantOpenError(t, config(missing), missing, "configure a path that this user")
}

func TestOpenWhileAnotherHoldsIt(t *testing.T) {
	path := tempFile(t)
	first := open(t, path, nil)
	wantOpenError(t, config(path), path, "another process still holds it", "stop the other process")
	kit.NoError(t, first.Close())
	open(t, path, nil)
}

func TestOpenChecksTheFile(t *testing.T) {
	c := config(written(t))
	c.Check = func(meta *bbolt.Bucket) error { return statestore.RequireValue(meta, "format", "8") }
	wantOpenError(t, c, c.Path, `its format is "7", want "8"`)
	c.Check = func(*bbolt.Bucket) error { return fmt.Errorf("no format") }
	wantOpenError(t, c, c.Path, "is damaged (no format): move it away and start again; it is then empty")
}

// TestOpenOfADamagedFile damages a file in many ways. Open and Each either succeed or fail with an
// error that names the file and what to do; they do not panic.
func TestOpenOfADamagedFile(t *testing.T) {
	whole, err := os.ReadFile(written(t))
	kit.NoError(t, err)
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
			path := tempFile(t)
			kit.NoError(t, os.WriteFile(path, data, 0o600))
			s, err := statestore.Open(config(path))
			if err == nil {
				err = s.Each(one, func(string, []byte) error { return nil })
				_ = s.Close()
			}
			if err == nil {
				return // the damage is where nothing is read
			}
			failures++
			for _, want := range []string{path, "is damaged", "move it away and start again"} {
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

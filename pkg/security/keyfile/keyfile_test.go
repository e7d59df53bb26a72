package keyfile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/security/keyfile"
	"github.com/workwire/workwire/test/kit"
)

// A file that could not be read is read as soon as it can be, though its size and modification time have not changed.
func TestReadableAgain(t *testing.T) {
	t.Parallel()
	path, log, now := filepath.Join(t.TempDir(), "key"), &kit.Log{}, time.Now()
	kit.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	parse := func(data []byte) (string, error) {
		if content := bytes.TrimLeft(data, "#\n"); !bytes.Equal(content, []byte("damaged")) {
			return string(content), nil
		}
		return "", errors.New("this is no key")
	}
	file, err := keyfile.Open(path, "key", parse, log.Logger())
	kit.NoError(t, err)
	expect := func(content string, usable bool, read, failures int) {
		t.Helper()
		for range 3 {
			now = now.Add(time.Minute)
			got, changes := file.GetChanges(now)
			if err := file.Err(now); got != content || changes != read || (err == nil) != usable {
				t.Fatalf("content %q, read %d times, error %v", got, changes, err)
			}
		}
		if got := len(log.Lines("file cannot be read")); got != failures {
			t.Fatalf("%d failures logged, want %d:\n%s", got, failures, log)
		}
	}
	repair := kit.Unreadable(t, path, []byte("new"))
	expect("old", false, 1, 1)
	repair()
	expect("new", true, 2, 1)
	repair = kit.Unreadable(t, path, []byte("damaged"))
	expect("new", false, 2, 2)
	repair()
	expect("new", false, 2, 3)
}

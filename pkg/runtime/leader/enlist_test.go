package leader

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/test/kit"
)

func TestEnded(t *testing.T) {
	here := place{Boot: "b", Device: 1, Inode: 2}
	for name, c := range map[string]struct {
		data string
		want []string
	}{
		"nothing":                {``, nil},
		"torn":                   {`{"boot":"b","dev`, nil},
		"here":                   {`{"boot":"b","device":1,"inode":2,"identities":["x","y"]}`, []string{"x", "y"}},
		"nobody":                 {`{"boot":"b","device":1,"inode":2,"identities":["",""]}`, []string{}},
		"before a restart":       {`{"boot":"a","device":1,"inode":2,"identities":["x"]}`, nil},
		"a copy":                 {`{"boot":"b","device":1,"inode":3,"identities":["x"]}`, nil},
		"a snapshot of the disk": {`{"boot":"b","device":9,"inode":2,"identities":["x"]}`, nil},
		"many": {`{"boot":"b","device":1,"inode":2,"identities":["1","2","3","4","5","6","7","8","9"]}`,
			[]string{"2", "3", "4", "5", "6", "7", "8", "9"}},
	} {
		if diff := cmp.Diff(c.want, ended([]byte(c.data), here)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func FuzzEnded(f *testing.F) {
	f.Add([]byte(`{"boot":"b","device":1,"inode":2,"identities":["x","y"]}`))
	f.Add([]byte(`{"boot":"b","identities":null}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := ended(data, place{Boot: "b", Device: 1, Inode: 2}); len(got) > maxNoted {
			t.Errorf("%d identities", len(got))
		}
	})
}

// enlisted enlists in dir and returns the predecessors.
func enlisted(t *testing.T, dir, identity string) ([]string, io.Closer) {
	t.Helper()
	predecessors, file, err := Enlist(dir, identity)
	kit.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return predecessors, file
}

func TestEnlist(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	predecessors, first := enlisted(t, dir, "first")
	if len(predecessors) > 0 {
		t.Errorf("the first process has predecessors %v", predecessors)
	}
	if _, _, err := Enlist(dir, "beside"); !errors.Is(err, ErrEnlisted) {
		t.Errorf("beside a living process: %v, want ErrEnlisted", err)
	}
	kit.NoError(t, first.Close())
	predecessors, second := enlisted(t, dir, "second")
	if diff := cmp.Diff([]string{"first"}, predecessors); diff != "" {
		t.Error(diff)
	}

	// A copy of the directory tells nothing: the process of the original lives.
	data, err := os.ReadFile(filepath.Join(dir, noteName))
	kit.NoError(t, err)
	clone := t.TempDir()
	kit.NoError(t, os.WriteFile(filepath.Join(clone, noteName), data, 0o600))
	if predecessors, _ = enlisted(t, clone, "copy"); len(predecessors) > 0 {
		t.Errorf("a copy has predecessors %v", predecessors)
	}

	// Processes that ended before they led leave the note of the leader in place.
	kit.NoError(t, second.Close())
	predecessors, _ = enlisted(t, dir, "third")
	if diff := cmp.Diff([]string{"first", "second"}, predecessors); diff != "" {
		t.Error(diff)
	}
}

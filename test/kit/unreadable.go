package kit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Unreadable replaces the file path by one that can be looked at and not read, not even by root. The returned function
// makes it readable, as chmod does: size and modification time stay. It then ends with data, behind a comment.
func Unreadable(t testing.TB, path string, data []byte) (repair func()) {
	t.Helper()
	dir := t.TempDir()
	info, err := os.Stat(dir)
	for ; err == nil && info.Size() < int64(len(data))+2; info, err = os.Stat(dir) {
		_, err := os.CreateTemp(dir, "grows-the-directory-")
		NoError(t, err)
	}
	NoError(t, err)
	NoError(t, os.Symlink(dir, path+".new"))
	NoError(t, os.Rename(path+".new", path))
	return func() {
		t.Helper()
		comment := append(bytes.Repeat([]byte("#"), int(info.Size())-len(data)-1), '\n')
		file := filepath.Join(t.TempDir(), "readable")
		NoError(t, os.WriteFile(file, append(comment, data...), 0o600))
		NoError(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
		NoError(t, os.Rename(file, path))
	}
}

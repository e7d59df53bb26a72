package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDatastore(t *testing.T) {
	const secret = "postgres://hub:s3cret@db.example/hub?sslmode=verify-full"
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		noError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for name, c := range map[string]struct{ file, want, err string }{
		"nothing":                {},
		"file":                   {file: file("url", secret+"\n"), want: secret},
		"empty file":             {file: file("empty", "\n"), err: "is empty"},
		"no file":                {file: filepath.Join(dir, "none"), err: "no such file"},
		"file with another text": {file: file("wrong", "s3cret"), err: "must be postgres://"},
		"file with a wrong URL":  {file: file("escape", "postgres://hub:s3%cret@db/hub"), err: "is not a URL"},
	} {
		got, err := datastore(c.file)
		if (err == nil) != (c.err == "") || err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, error %v; want %q, error %q", name, got, err, c.want, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: the error has the password: %v", name, err)
		}
	}
}

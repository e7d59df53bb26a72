package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDatastore(t *testing.T) {
	const secret = "postgres://hub:s3cret@db.example/hub?sslmode=verify-full"
	const plain = "postgres://hub@db.example/hub?sslmode=verify-full"
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		noError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for name, c := range map[string]struct {
		flag, file, variable string
		want, err            string
	}{
		"nothing":                  {},
		"flag":                     {flag: plain, want: plain},
		"flag before the variable": {flag: plain, variable: secret, want: plain},
		"flag with a password":     {flag: secret, err: "must have no password"},
		"flag that is no URL":      {flag: "postgres://hub:s3%cret@db/hub", err: "must have no password"},
		"file":                     {file: file("url", secret+"\n"), want: secret},
		"file and flag":            {file: file("url", secret), flag: plain, err: "exclude each other"},
		"empty file":               {file: file("empty", "\n"), err: "is empty"},
		"no file":                  {file: filepath.Join(dir, "none"), err: "no such file"},
		"file with another text":   {file: file("wrong", "s3cret"), err: "must be postgres://"},
		"variable":                 {variable: secret, want: secret},
	} {
		got, err := datastore(c.flag, c.file, c.variable)
		if (err == nil) != (c.err == "") || err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, error %v; want %q, error %q", name, got, err, c.want, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: the error has the password: %v", name, err)
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/signing"
	"github.com/workwire/workwire/test/kit"
)

// TestKeys runs all commands in the order of docs/signing.md.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	key, trusted := filepath.Join(dir, "signing.key"), filepath.Join(dir, "trusted-keys.yaml")
	keys := func(args ...string) string {
		t.Helper()
		out, err := run(t.Context(), t, append([]string{"keys"}, args...)...)
		kit.NoError(t, err)
		return out
	}
	if out := keys("new", "--key="+key); !regexp.MustCompile(`signing.key: key [0-9a-f]{16}\nnext: workctl keys public`).MatchString(out) {
		t.Errorf("new prints %s", out)
	}
	info, err := os.Stat(key)
	kit.NoError(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %o", info.Mode().Perm())
	}
	kit.NoError(t, os.WriteFile(trusted, []byte(keys("public", "--key="+key, "--source=hub1,hub2")), 0o600))
	if _, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: trusted}); err != nil {
		t.Error(err)
	}
	out := keys("list", "--key="+key, "--trusted-keys="+trusted)
	if !regexp.MustCompile(`([0-9a-f]{16})  signing.key +\(signs\)\n[0-9a-f]{16}  trusted-keys.yaml +hub1,hub2\n`).MatchString(out) {
		t.Errorf("list prints %s", out)
	}
	for want, args := range map[string][]string{
		"exists":                              {"new", "--key=" + key},
		"--key is required":                   {"new"},
		"--source is required":                {"public", "--key=" + key},
		"must have only a-z":                  {"public", "--key=" + key, "--source=Hub1"},
		"want a PEM block":                    {"public", "--key=" + trusted, "--source=hub1"},
		"--trusted-keys or --key is required": {"list"},
		"signing.key: ":                       {"list", "--trusted-keys=" + key},
	} {
		if out, err := run(t.Context(), t, append([]string{"keys"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
}

// TestDocumentedKeys runs the commands of docs/signing.md in an empty directory.
func TestDocumentedKeys(t *testing.T) {
	text, err := os.ReadFile("../../docs/signing.md")
	kit.NoError(t, err)
	t.Chdir(t.TempDir())
	commands := regexp.MustCompile(`(?m)^ +\$ workctl (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(commands) < 7 {
		t.Errorf("%d commands are found", len(commands))
	}
	last := ""
	for _, c := range commands {
		args, file, redirected := strings.Cut(c[1], " > ")
		out, err := run(t.Context(), t, strings.Fields(args)...)
		if err != nil {
			t.Fatalf("%s: %v", c[0], err)
		}
		if last = out; redirected {
			kit.NoError(t, os.WriteFile(file, []byte(out), 0o600))
		}
	}
	if next := regexp.MustCompile(`([0-9a-f]{16})  next.key +\(signs\)\n([0-9a-f]{16})  trusted-keys.yaml  hub1\n$`).FindStringSubmatch(last); next == nil || next[1] != next[2] {
		t.Errorf("at the end, these keys are trusted:\n%s", last)
	}
}

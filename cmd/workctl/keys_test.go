package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
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
	if out := keys("list", "--trusted-keys="+trusted, "-o=jsonpath={.keys[0].sources[1]}"); out != "hub2" {
		t.Errorf("list -o jsonpath prints %s", out)
	}
	agents := filepath.Join(dir, "trusted-agents.yaml")
	kit.NoError(t, os.WriteFile(agents, []byte(keys("public", "--key="+key, "--cluster=c1,c2")), 0o600))
	if _, err := signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: []string{agents}}); err != nil {
		t.Error(err)
	}
	if out := keys("list", "--trusted-agents="+agents); !regexp.MustCompile(`[0-9a-f]{16}  trusted-agents.yaml +c1,c2\n`).MatchString(out) {
		t.Errorf("list prints %s", out)
	}
	for want, args := range map[string][]string{
		"exists":                            {"new", "--key=" + key},
		"--key is required":                 {"new"},
		"--source or --cluster is required": {"public", "--key=" + key},
		"--source or --cluster is":          {"public", "--key=" + key, "--source=hub1", "--cluster=c1"},
		"cluster \"C1\" must have":          {"public", "--key=" + key, "--cluster=C1"},
		"sources is for --trusted-keys":     {"list", "--trusted-agents=" + trusted},
		"must have only a-z":                {"public", "--key=" + key, "--source=Hub1"},
		"want a PEM block":                  {"public", "--key=" + trusted, "--source=hub1"},
		"--trusted-keys, --trusted-agents, --key or --seal-keys is required": {"list"},
		"signing.key: ": {"list", "--trusted-keys=" + key},
		"must be one of table, json, yaml, jsonpath=TEMPLATE": {"list", "--key=" + key, "-o=name"},
	} {
		if out, err := run(t.Context(), t, append([]string{"keys"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
}

// TestDocumentedKeys runs the commands about keys of docs/signing.md and docs/sealing.md in an empty directory.
func TestDocumentedKeys(t *testing.T) {
	for page, want := range map[string]struct {
		commands int
		last     string
	}{
		"signing.md": {10, `([0-9a-f]{16})  next.key +\(signs\)\n([0-9a-f]{16})  trusted-keys.yaml  hub1\n$`},
		"sealing.md": {5, `([0-9a-f]{16})  next.key +\(opens\)\n([0-9a-f]{16})  cluster1.pub +\(seals\)\n$`},
	} {
		text, err := os.ReadFile("../../docs/" + page)
		kit.NoError(t, err)
		t.Run(page, func(t *testing.T) {
			t.Chdir(t.TempDir())
			commands := regexp.MustCompile(`(?m)^ +\$ workctl (keys .*)$`).FindAllStringSubmatch(string(text), -1)
			if len(commands) < want.commands {
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
					kit.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
					kit.NoError(t, os.WriteFile(file, []byte(out), 0o600))
				}
			}
			if next := regexp.MustCompile(want.last).FindStringSubmatch(last); next == nil || next[1] != next[2] {
				t.Errorf("at the end, these keys are in use:\n%s", last)
			}
		})
	}
}

// TestSealKeys: the private and the public half of a key to seal with, and what is no such key.
func TestSealKeys(t *testing.T) {
	dir := t.TempDir()
	key, other := filepath.Join(dir, "unseal.key"), filepath.Join(dir, "signing.key")
	keys := func(args ...string) (string, error) { return run(t.Context(), t, append([]string{"keys"}, args...)...) }
	out, err := keys("generate", "--type=seal", "--key="+key)
	kit.NoError(t, err)
	if !strings.Contains(out, "next: workctl keys public --key="+key+" > seal-keys/CLUSTER.pub") {
		t.Errorf("new prints %s", out)
	}
	_, err = keys("new", "--key="+other)
	kit.NoError(t, err)
	public, err := keys("public", "--key="+key)
	kit.NoError(t, err)
	if _, err := sealing.ParsePublicKey([]byte(public)); err != nil {
		t.Error(err)
	}
	kit.NoError(t, os.WriteFile(filepath.Join(dir, "c1.pub"), []byte("damaged"), 0o600))
	for want, args := range map[string][]string{
		"without --source":                  {"public", "--key=" + key, "--source=hub1"},
		"--source or --cluster is required": {"public", "--key=" + other},
		"--type must be sign or seal":       {"new", "--key=" + key + "2", "--type=lock"},
		"c1.pub: want a PEM block":          {"list", "--seal-keys=" + dir},
		"no such file":                      {"list", "--seal-keys=" + dir + "/none"},
	} {
		if out, err := keys(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
}

package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// TestReload: a changed file is taken up once it stays the same, a bad one leaves the previous one
// in force and says so until it is mended.
func TestReload(t *testing.T) {
	path, written := filepath.Join(t.TempDir(), "broker.yaml"), time.Unix(1_000_000, 0)
	hash := mustHash(t, "x")
	write := func(content string) {
		t.Helper()
		kit.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		written = written.Add(time.Second)
		kit.NoError(t, os.Chtimes(path, written, written))
	}
	config := func(user, more string) string {
		return fmt.Sprintf("listeners: [{address: '127.0.0.1:0'}]\nusers: [{username: %s, role: agent, passwordHash: %q}]\n%s", user, hash, more)
	}
	write(config("first", ""))
	log := &kit.Log{}
	cfg, err := LoadConfig(path)
	kit.NoError(t, err)
	cfg.Logger = log.Logger()
	cfg.setDefaults()
	inForce, refuse := "first", error(nil)
	r := newReloader(cfg, func(c Config) error {
		if refuse == nil {
			inForce = c.Users[0].Username
		}
		return refuse
	})
	for _, step := range []struct {
		what   string
		change func()
		want   string
		fails  bool
	}{
		{"nothing has changed", func() {}, "first", false},
		{"it may be half written", func() { write(config("second", "")) }, "first", false},
		{"it stays the same", func() {}, "second", false},
		{"a bad file is seen", func() { write("users: [") }, "second", false},
		{"a bad file stays out", func() {}, "second", true},
		{"an unknown key", func() { write(config("third", "limit: 3\n")); r.check() }, "second", true},
		{"an invalid value", func() { write(config("third", "limits: {pending: -1}\n")); r.check() }, "second", true},
		{"the file has gone", func() { kit.NoError(t, os.Remove(path)) }, "second", true},
		{"a password file is missing", func() { refuse = errors.New("no hash"); write(config("fourth", "")); r.check() }, "second", true},
		{"the password file has come", func() { refuse = nil }, "fourth", false},
		{"what needs a restart", func() { write(config("fifth", "maxPacketSize: 2048\n")); r.check() }, "fifth", false},
	} {
		step.change()
		r.check()
		if inForce != step.want || r.failing.Load() != step.fails || (r.status() != "") != step.fails {
			t.Errorf("%s: in force is %s, failing %v, want %s, %v", step.what, inForce, r.failing.Load(), step.want, step.fails)
		}
	}
	if n := strings.Count(log.String(), "the previous one stays in force"); n != 5 {
		t.Errorf("%d failures are logged, want each once:\n%s", n, log)
	}
	if !strings.Contains(log.String(), "keys=maxPacketSize") {
		t.Errorf("nothing says what needs a restart:\n%s", log)
	}
}

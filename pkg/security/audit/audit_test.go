package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/test/kit"
)

// TestFormat: a record has the keys that docs/operations.md names, one line each, and only its owner
// may read the file.
func TestFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{Path: path, Program: "work-agent"})
	kit.NoError(t, err)
	began := time.Now().Add(-time.Second)
	log.Write(audit.Record{
		Event: audit.Apply, Verdict: "created", Identity: "system:serviceaccount:shop:a", Topic: "t", Source: "hub1", Cluster: "c1", Work: "web",
		UID: "u", Generation: 3, Object: "configmaps shop/a", Digest: "0123", Reason: "r\nr",
	})
	log.Write(audit.Record{Event: audit.Remove, Verdict: "removed"})
	text, err := os.ReadFile(path)
	kit.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), text)
	}
	var records [2]map[string]any
	for i, line := range lines {
		kit.NoError(t, json.Unmarshal([]byte(line), &records[i]))
		at, err := time.Parse(time.RFC3339Nano, records[i]["time"].(string))
		if err != nil || at.Before(began) || at.Location() != time.UTC {
			t.Errorf("time %v, %v", records[i]["time"], err)
		}
	}
	docs, err := os.ReadFile("../../../docs/operations.md")
	kit.NoError(t, err)
	for _, key := range []string{"time", "program", "event", "verdict", "identity", "topic", "source", "cluster", "work", "uid", "generation", "object", "digest", "reason"} {
		if _, ok := records[0][key]; !ok {
			t.Errorf("the first record lacks %s: %s", key, lines[0])
		}
		if !bytes.Contains(docs, []byte("| `"+key+"` |")) {
			t.Errorf("docs/operations.md does not describe the key %s", key)
		}
	}
	if len(records[0]) != 14 || len(records[1]) != 4 {
		t.Errorf("%d and %d keys, want 14 and 4: %s", len(records[0]), len(records[1]), text)
	}
	info, err := os.Stat(path)
	kit.NoError(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v", info.Mode())
	}
}

// TestRotation: after a rename and SIGHUP, records go to a new file, and none is lost.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{Path: path, Program: "work-agent"})
	kit.NoError(t, err)
	kit.Run(t, "audit log", func(ctx context.Context) error { log.Run(ctx); return nil })
	log.Write(audit.Record{Event: audit.Apply, Work: "before"})
	kit.NoError(t, os.Rename(path, path+".1"))
	log.Write(audit.Record{Event: audit.Apply, Work: "between"})
	kit.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	kit.Eventually(t, "the file is opened again", func() error {
		_, err := os.Stat(path)
		return err
	})
	log.Write(audit.Record{Event: audit.Apply, Work: "after"})
	for file, want := range map[string][]string{path + ".1": {"before", "between"}, path: {"after"}} {
		text, err := os.ReadFile(file)
		kit.NoError(t, err)
		if strings.Count(string(text), "\n") != len(want) {
			t.Errorf("%s has %s, want %v", file, text, want)
		}
		for _, work := range want {
			if !strings.Contains(string(text), `"work":"`+work+`"`) {
				t.Errorf("%s lacks %s: %s", file, work, text)
			}
		}
	}
}

// TestFailure: a disk that is full is counted and logged once, and no log at all writes nothing.
func TestFailure(t *testing.T) {
	if _, err := audit.Open(audit.Config{Path: filepath.Join(t.TempDir(), "none", "audit.log")}); err == nil || !strings.Contains(err.Error(), "--audit-log") {
		t.Errorf("a folder that does not exist: %v", err)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full")
	}
	var lines bytes.Buffer
	registry := prometheus.NewRegistry()
	log, err := audit.Open(audit.Config{Path: "/dev/full", Registerer: registry, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	kit.NoError(t, err)
	for range 3 {
		log.Write(audit.Record{})
	}
	want := "# HELP workwire_audit_records_total Number of audit records by result: written, failed, or left_out (of an identity that caused too many).\n" +
		"# TYPE workwire_audit_records_total counter\n" +
		"workwire_audit_records_total{result=\"failed\"} 3\nworkwire_audit_records_total{result=\"left_out\"} 0\nworkwire_audit_records_total{result=\"written\"} 0\n"
	kit.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want)))
	if strings.Count(lines.String(), "records are lost") != 1 {
		t.Errorf("log: %s", &lines)
	}
	none, err := audit.Open(audit.Config{})
	kit.NoError(t, err)
	none.Write(audit.Record{})
	none.Run(t.Context())
}

// TestOneIdentityFillsNoDisk: of records about the messages of one identity, some are left out, and the next
// one says how many; all about others, and about what is done here, are written.
func TestOneIdentityFillsNoDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{Path: path, Program: "work-hub"})
	kit.NoError(t, err)
	const many = 50_000
	for range many {
		log.Write(audit.Record{Event: audit.Receive, Verdict: "undecodable", Identity: "noisy"})
	}
	for range 1000 {
		log.Write(audit.Record{Event: audit.Receive, Verdict: "accepted", Effect: true, Identity: "other"})
		log.Write(audit.Record{Event: audit.Publish, Verdict: "sent", Cluster: "noisy"})
	}
	written := func() map[string]int {
		text, err := os.ReadFile(path)
		kit.NoError(t, err)
		return map[string]int{
			"noisy": bytes.Count(text, []byte(`"identity":"noisy"`)), "other": bytes.Count(text, []byte(`"identity":"other"`)),
			"publish": bytes.Count(text, []byte(`"event":"publish"`)), "leftOut": bytes.Count(text, []byte(`"leftOut":`)),
		}
	}
	before := written()
	if before["noisy"] < 100 || before["noisy"] > 1000 || before["other"] != 1000 || before["publish"] != 1000 {
		t.Errorf("records %v, want 100 to 1000 of noisy, and 1000 of each other", before)
	}
	kit.True(t, "a record of noisy is written again, and says how many were not", func() bool {
		log.Write(audit.Record{Event: audit.Receive, Verdict: "undecodable", Identity: "noisy"})
		return written()["leftOut"] > before["leftOut"]
	})
}

// TestDryRunsFillNoDisk: a source whose dry runs name ever new executors pays for the records of all.
func TestDryRunsFillNoDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{Path: path, Program: "work-agent"})
	kit.NoError(t, err)
	const many = 30_000
	for i := range many {
		log.Write(audit.Record{Event: audit.DryRun, Source: "noisy", Identity: fmt.Sprint("system:serviceaccount:a:", i)})
	}
	text, err := os.ReadFile(path)
	kit.NoError(t, err)
	if n := bytes.Count(text, []byte("\n")); n < 20_000 || n > many*9/10 {
		t.Errorf("%d records of %d dry runs", n, many)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/mqttflood"
)

func TestMain(m *testing.M) {
	mqttflood.Main()
	os.Exit(m.Run())
}

// TestQuick runs the whole benchmark with small numbers. It checks the counters only: durations
// mean nothing on a busy machine.
func TestQuick(t *testing.T) {
	kit.PostgreSQL.Require(t) // for the hub whose API has its data there
	dir := t.TempDir()
	file := filepath.Join(dir, "bench.json")
	var table bytes.Buffer
	cmd := newCommand(&table, t.Output())
	cmd.SetArgs([]string{"--quick", "--bin=../../bin", "--json=" + file, "--logs=" + filepath.Join(dir, "logs"), "--profile=" + filepath.Join(dir, "profiles")})
	kit.NoError(t, cmd.ExecuteContext(t.Context()))
	t.Log(table.String())
	text, err := os.ReadFile(file)
	kit.NoError(t, err)
	var result struct {
		Rows []struct {
			Name    string
			Why     string
			Median  float64
			Samples []any
		}
	}
	kit.NoError(t, json.Unmarshal(text, &result))
	counters := map[string]float64{
		"API requests per created work":         4,
		"status events per created work":        1,
		"resync with nothing changed: requests": 1,
		"resync with nothing changed: works":    0,
		"steady state: API requests":            0,
		"hub: API requests per work":            2,
	}
	limits := map[string]float64{ // with a tenth of the works, and a small machine's bounds
		"agent file":                 40,
		"agent memory at 100 works":  25,
		"link: an idle day, metered": 200,
	}
	for _, row := range result.Rows {
		if limit, ok := limits[row.Name]; ok && (row.Median > limit || row.Median <= 0) {
			t.Errorf("%s: %v, want more than 0 and at most %v", row.Name, row.Median, limit)
		}
		delete(limits, row.Name)
		if len(row.Samples) != 1 {
			t.Errorf("%s has %d figures: %s", row.Name, len(row.Samples), row.Why)
		}
		if want, ok := counters[row.Name]; ok && row.Median != want {
			t.Errorf("%s: %v, want %v", row.Name, row.Median, want)
		}
		delete(counters, row.Name)
		if !strings.Contains(table.String(), row.Name) {
			t.Errorf("the table lacks %s", row.Name)
		}
	}
	for name := range limits {
		t.Errorf("there is no row %s", name)
	}
	for name := range counters {
		t.Errorf("there is no row %s", name)
	}
	profiles, err := filepath.Glob(filepath.Join(dir, "profiles", "*.pprof"))
	if err != nil || len(profiles) == 0 {
		t.Errorf("no profiles: %v", err)
	}
}

func TestValidateReportsAllErrors(t *testing.T) {
	cmd := newCommand(&bytes.Buffer{}, t.Output())
	cmd.SetArgs([]string{"--runs=0", "--works=1", "--scale=1", "--broker=rabbit", "--only=(", "--hub-works=0", "--stored=-1", "--broker-clients=0", "--broker-back=0", "--fleet=0"})
	err := cmd.ExecuteContext(t.Context())
	for _, want := range []string{"--runs must be at least 1, got 0", "--works must be at least 10, got 1", "--scale must be more than --works", "--broker must be", "--only", "--hub-works must be at least 10, got 0", "--stored must be at least 0", "--broker-clients must be at least 10", "--broker-back must be at least 10", "--fleet must be"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

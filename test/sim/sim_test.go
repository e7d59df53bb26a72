package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/keykit"
)

var (
	story = flag.Bool("story", false, "keep what happened in the file seed-N.txt here, as it is kept of a seed that fails")
	first = flag.Uint64("seed", 1, "the first seed")
	seeds = flag.Int("seeds", usualSeeds, "how many seeds to run")
	into  = flag.String("outcome", "", "write the outcome of the seed into this file, as JSON")

	leaveOut Numbers
)

func init() {
	flag.Var(&leaveOut, "leave-out", "numbers of decisions that do not happen, as in 3,7-12")
}

// TestMain makes what the process shares before the first bubble: a channel that is made in a bubble cannot be used in
// another one.
func TestMain(m *testing.M) {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		_ = os.Setenv("TMPDIR", "/dev/shm") // agents keep state there: on a disk, each of their writes takes real time
	}
	klog.SetLogger(logr.Discard())  // client-go's; the programs have a logger of their own
	utilruntime.ErrorHandlers = nil // one of them waits for a time that another bubble has reached
	raw := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"warm"},"data":{"a":"` + strings.Repeat("compressible ", 100) + `"}}`
	spec := &wire.Spec{
		UID: "warm", Source: hubSource, Cluster: "cluster1", Action: wire.Create, Meta: metav1.ObjectMeta{Name: "warm", UID: "warm"},
		Bundle: &wire.Bundle{Manifests: []workv1.Manifest{{RawExtension: apiruntime.RawExtension{Raw: []byte(raw)}}}},
	}
	e, err := wire.Encode(spec, time.Now())
	if err == nil {
		err = wire.Compress(&e)
	}
	if err == nil {
		_, err = wire.Decode(e)
	}
	if err != nil || e.DataContentType() == cloudevents.ApplicationJSON {
		fmt.Fprintln(os.Stderr, "the compression was not used:", err)
		os.Exit(1)
	}
	debug.SetGCPercent(800) // a run is short
	os.Exit(m.Run())
}

func TestSeeds(t *testing.T) {
	for seed := *first; seed < *first+uint64(*seeds) && !t.Failed(); seed++ { //nolint:gosec // not negative
		runSeed(t, seed, leaveOut)
	}
}

// TestCorpus runs the seeds that have found something.
func TestCorpus(t *testing.T) {
	text, err := os.ReadFile("testdata/corpus")
	kit.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var seed uint64
		var without Numbers
		fields := strings.Fields(line)
		if len(fields) < 3 {
			t.Fatalf("line %q: want a seed, what is left out, and what it has found", line)
		}
		_, err := fmt.Sscan(fields[0], &seed)
		kit.NoError(t, err)
		kit.NoError(t, without.Set(strings.TrimPrefix(fields[1], "-")))
		runSeed(t, seed, without)
	}
}

// writeKeys writes keys of a hub and of as many clusters into dir.
func writeKeys(t *testing.T, dir string, clusters int) {
	var names []wire.ClusterName
	for i := range clusters {
		names = append(names, clusterName(i))
	}
	keykit.Write(t, filepath.Join(dir, hubKey), filepath.Join(dir, trustedHubs), signing.TrustedKey{Sources: []wire.SourceID{hubSource, sourceProgram}})
	keykit.Write(t, filepath.Join(dir, agentKey), filepath.Join(dir, trustedAgents), signing.TrustedKey{Clusters: names})
}

// runSeed runs a seed, without some of its decisions; in odd ones hub and agents sign.
func runSeed(t *testing.T, seed uint64, leaveOut Numbers) {
	o := Options{
		Seed: seed, Clusters: 3, Works: 10, Faults: 10 * time.Minute, LeaveOut: leaveOut,
		Honest: seed%8 == 0, Restores: seed%8 == 3 || seed%8 == 4, Tight: seed%8 == 6, State: t.TempDir(),
	}
	if o.Tight {
		o.Works = 24
	}
	if seed%2 == 1 {
		o.Keys = t.TempDir()
		writeKeys(t, o.Keys, o.Clusters)
	}
	began := time.Now()
	var w *World
	var violations []string
	var simulated time.Duration
	synctest.Test(t, func(*testing.T) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(start))
		w = New(o)
		violations = w.Run()
		simulated = time.Since(start)
	})
	took := time.Since(began)
	if o.Keys != "" {
		violations = append(violations, checkHistories(w.trace)...)
	}
	speed := fmt.Sprintf(" in %s (%.0f times)", took.Round(time.Millisecond), simulated.Seconds()/took.Seconds())
	if *into != "" {
		speed = "" // the clock that the shrinker gives it is none
	}
	t.Logf("seed %d: %d lines, %s simulated%s, agreed after %s, trace %s", seed, len(w.trace.entries), simulated.Round(time.Second), speed, w.agreedAfter, w.trace.hash()[:12])
	for _, violation := range violations {
		t.Errorf("seed %d: %s", seed, violation)
	}
	if *into != "" {
		writeOutcome(t, *into, w)
	}
	if *story || len(violations) > 0 {
		tell(t, seed, w.trace.story())
	}
}

// outcome is what the shrinker (test/sim/replay) must know of a run.
type outcome struct {
	Decisions []*decision `json:"decisions"`
	Wrong     []wrong     `json:"wrong"`
}

// wrong is something that is not as it must be.
type wrong struct {
	At    time.Time `json:"at"`
	Text  string    `json:"text"`
	Works []string  `json:"works"` // that it is about, as cluster/name
}

func writeOutcome(t *testing.T, file string, w *World) {
	o := outcome{Decisions: w.trace.decisions}
	for i, s := range w.trace.story() {
		if s.Kind == wrongStep {
			o.Wrong = append(o.Wrong, wrong{w.trace.entries[i].at, w.trace.entries[i].what, s.Works})
		}
	}
	text, err := json.Marshal(o)
	kit.NoError(t, err)
	kit.NoError(t, os.WriteFile(file, text, 0o600))
}

// tell writes the story of a seed, as a text and as a page, and says how it ends.
func tell(t *testing.T, seed uint64, steps []step) {
	var text strings.Builder
	for i := range steps {
		fmt.Fprintln(&text, &steps[i])
	}
	end := strings.Join(firstWrong(steps), "\n")
	fmt.Fprintf(&text, "\n%s\n", end)
	file := fmt.Sprintf("seed-%d.txt", seed)
	kit.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	var page bytes.Buffer
	kit.NoError(t, writeLanes(&page, fmt.Sprintf("Seed %d", seed), steps))
	kit.NoError(t, os.WriteFile(fmt.Sprintf("seed-%d.html", seed), page.Bytes(), 0o600))
	t.Logf("seed %d: what happened is in %s, and as a page in seed-%d.html\n%s", seed, file, seed, end)
}

package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	seeds = flag.Int("seeds", 20, "how many seeds to run")
)

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
		UID: "warm", Source: source, Cluster: "cluster1", Action: wire.Create, Meta: metav1.ObjectMeta{Name: "warm", UID: "warm"},
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
	os.Exit(m.Run())
}

func TestSeeds(t *testing.T) {
	for seed := *first; seed < *first+uint64(*seeds) && !t.Failed(); seed++ { //nolint:gosec // not negative
		runSeed(t, seed)
	}
}

// writeKeys writes keys of a hub and of as many clusters into dir.
func writeKeys(t *testing.T, dir string, clusters int) {
	var names []wire.ClusterName
	for i := range clusters {
		names = append(names, clusterName(i))
	}
	keykit.Write(t, filepath.Join(dir, hubKey), filepath.Join(dir, trustedHubs), signing.TrustedKey{Sources: []wire.SourceID{source}})
	keykit.Write(t, filepath.Join(dir, agentKey), filepath.Join(dir, trustedAgents), signing.TrustedKey{Clusters: names})
}

// runSeed runs a seed; in odd ones hub and agents sign.
func runSeed(t *testing.T, seed uint64) {
	o := Options{Seed: seed, Clusters: 3, Works: 10, Faults: 10 * time.Minute}
	if seed%2 == 1 {
		o.Keys = t.TempDir()
		writeKeys(t, o.Keys, o.Clusters)
	}
	if runtime.GOOS != "wasip1" { // bbolt opens no file there
		o.State = t.TempDir()
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
	t.Logf("seed %d: %d lines, %s simulated in %s (%.0f times), agreed after %s, trace %s", seed, len(w.trace.lines), simulated.Round(time.Second), took.Round(time.Millisecond),
		simulated.Seconds()/took.Seconds(), w.agreedAfter, w.trace.hash()[:12])
	if *story || len(violations) > 0 {
		file := fmt.Sprintf("seed-%d.txt", seed)
		kit.NoError(t, os.WriteFile(file, []byte(strings.Join(w.trace.lines, "\n")+"\n"), 0o600))
		t.Logf("seed %d: what happened is in %s", seed, file)
	}
	for _, violation := range violations {
		t.Errorf("seed %d: %s", seed, violation)
	}
}

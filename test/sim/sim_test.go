package sim

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

var (
	logs  = flag.Bool("logs", false, "print what the programs log")
	story = flag.Bool("story", false, "print what happened")
	first = flag.Uint64("seed", 1, "the first seed")
	seeds = flag.Int("seeds", 20, "how many seeds to run")
)

// TestMain makes what the process shares before the first bubble: a channel that is made in a bubble cannot be used in
// another one.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())  // client-go's; the programs have a logger of their own
	utilruntime.ErrorHandlers = nil // one of them waits for a time that another bubble has reached
	raw := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"warm"},"data":{"a":"` + strings.Repeat("compressible ", 100) + `"}}`
	spec := &wire.Spec{
		UID: "warm", Source: source, Cluster: "cluster1", Action: wire.Create, Meta: metav1.ObjectMeta{Name: "warm", UID: "warm"},
		Bundle: &wire.Bundle{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}},
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

func runSeed(t *testing.T, seed uint64) {
	began := time.Now()
	var w *World
	var faults []string
	var simulated time.Duration
	synctest.Test(t, func(*testing.T) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(start))
		var out io.Writer = io.Discard
		if *logs {
			out = os.Stderr
		}
		w = New(Options{Seed: seed, Clusters: 3, Works: 10, Faults: 10 * time.Minute, Logger: slog.New(slog.NewTextHandler(out, nil))})
		faults = w.Run()
		simulated = time.Since(start)
	})
	took := time.Since(began)
	t.Logf("seed %d: %d lines, %s simulated in %s (%.0f times), agreed after %s, trace %s", seed, len(w.trace.lines), simulated.Round(time.Second), took.Round(time.Millisecond),
		simulated.Seconds()/took.Seconds(), w.agreedAfter, w.trace.hash()[:12])
	if *story || len(faults) > 0 {
		for _, line := range w.trace.lines {
			if *story {
				t.Log(line)
			}
		}
	}
	for _, fault := range faults {
		t.Errorf("seed %d: %s", seed, fault)
	}
}

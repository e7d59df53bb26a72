package hostile

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/procs"
	kitworld "github.com/workwire/workwire/test/kit/world"
)

// What an attack may cost.
const (
	maxMemory = 64 // MB of RSS, of the program that is attacked
	maxStored = 64 // MB of the databases of both API servers
	maxLogged = 8  // MB of logs and audit logs
	maxFactor = 3  // of the 99th percentile of the latency of others
	// minLatency is what others may wait whatever they do without an attack: the machine runs other things.
	minLatency = 500 * time.Millisecond
)

const (
	quiet  = 2500 * time.Millisecond // how long others are timed before an attack
	during = 5 * time.Second         // and at least while it lasts
	pause  = 480 * time.Millisecond  // between two changes of a work
	probes = 8                       // works that are changed
	// patience is the longest time that others are waited for; a longer one counts as this.
	patience = 30 * time.Second
	// longest ends the changes of others, however few they are.
	longest = 30 * time.Second
	fewest  = 40 // changes
)

// probe changes works of the honest cluster, and times each change from the request to the status at the hub.
type probe struct {
	w       *world
	serial  int
	mu      sync.Mutex
	done    map[string]int64 // generation that is applied, by the name of a work
	changed chan struct{}    // closed and replaced when done changes
}

// newProbe returns when all works are applied.
func newProbe(w *world) *probe {
	w.Helper()
	p := &probe{w: w, done: map[string]int64{}, changed: make(chan struct{})}
	for i := range probes {
		w.create(honest, probeName(i))
	}
	kit.Run(w, "watch of works", p.watch)
	for i := range probes {
		if _, ok := p.await(probeName(i), 1, time.Now(), kit.Patience); !ok {
			w.Fatalf("work %s is not applied within %v", probeName(i), kit.Patience)
		}
	}
	return p
}

func probeName(i int) string { return fmt.Sprintf("probe-%d", i) }

func (p *probe) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		changes, err := p.w.Works(honest).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond): // the API server is busy
			}
			continue
		}
		for change := range changes.ResultChan() {
			if work, ok := change.Object.(*workv1.ManifestWork); ok && applied(work) {
				p.mu.Lock()
				p.done[work.Name] = work.Generation
				close(p.changed)
				p.changed = make(chan struct{})
				p.mu.Unlock()
			}
		}
	}
	return nil
}

// await waits until a work is applied, at most until limit after start, and returns the time since start.
func (p *probe) await(name string, generation int64, start time.Time, limit time.Duration) (took time.Duration, ok bool) {
	late := time.After(time.Until(start.Add(limit)))
	for {
		p.mu.Lock()
		done, changed := p.done[name] >= generation, p.changed
		p.mu.Unlock()
		if done {
			return time.Since(start), true
		}
		select {
		case <-changed:
		case <-late:
			return limit, false
		}
	}
}

// run changes all works until more returns false for the number of changes, and returns what each has taken, the
// shortest first.
func (p *probe) run(more func(n int) bool) []time.Duration {
	var mu sync.Mutex
	var took []time.Duration
	again := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return more(len(took))
	}
	var running sync.WaitGroup
	for i := range probes {
		running.Go(func() {
			<-time.After(time.Duration(i) * pause / probes)
			for again() {
				start := time.Now()
				one := p.change(probeName(i), start)
				mu.Lock()
				took = append(took, one)
				mu.Unlock()
				<-time.After(time.Until(start.Add(pause)))
			}
		})
	}
	running.Wait()
	slices.Sort(took)
	return took
}

// change changes a work and returns after what time since start it was applied.
func (p *probe) change(name string, start time.Time) time.Duration {
	p.mu.Lock()
	p.serial++
	value := strconv.Itoa(p.serial)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	patch := fmt.Sprintf(`{"spec":{"workload":{"manifests":[%s]}}}`, kitworld.ConfigMap(p.w.Targets[honest], name, value).Raw)
	work, err := p.w.Works(honest).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return patience
	}
	took, _ := p.await(name, work.Generation, start, patience)
	return took
}

// p99 returns the 99th percentile of sorted durations.
func p99(sorted []time.Duration) time.Duration {
	return sorted[int(math.Ceil(0.99*float64(len(sorted))))-1]
}

// attack is what somebody does.
type attack struct {
	name string
	// prepare makes what is sent, other messages in each attempt. Whoever attacks has a machine of their own.
	prepare func(attempt int) (run func(ctx context.Context) error)
}

// peace is how it is without an attack.
type peace struct {
	victims []*process.Process
	usage   usage
	p99     time.Duration // of others
}

// inPeace measures how it is without an attack.
func (w *world) inPeace(victims ...*process.Process) peace {
	w.Helper()
	before := p99(w.others.run(w.others.until(quiet, nil)))
	return peace{victims: victims, usage: w.usage(victims), p99: before}
}

// attempts is how often an attack is carried out that costs too much of others' time only: the machine, which runs all of
// the programs and the attacker, may have been busy with other things.
const attempts = 4

// suffer carries out an attack while others are served, and fails the test if it costs more than it may. It
// logs the costs.
func (w *world) suffer(before peace, a attack) {
	w.Helper()
	limit, after := max(maxFactor*before.p99, minLatency), patience
	for n := 0; n < attempts && after > limit && !w.Failed(); n++ {
		if n > 0 {
			before = w.inPeace(before.victims...)
			limit = max(limit, maxFactor*before.p99)
		}
		after = min(after, w.sufferOnce(before, a.name, a.prepare(n)))
	}
	if after > limit {
		w.Errorf("%s: the 99th percentile of others' latency is %v, without the attack %v: want at most %v", a.name, after, before.p99, limit)
	}
}

// sufferOnce returns the 99th percentile of the time that changes of others take during an attack.
func (w *world) sufferOnce(before peace, name string, run func(context.Context) error) time.Duration {
	w.Helper()
	start := before.usage
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	ended := make(chan struct{})
	stopAttack := kit.Run(w, name, func(context.Context) error {
		defer close(ended)
		if err := run(ctx); ctx.Err() == nil {
			return err
		}
		return nil // others have waited long enough
	})
	peaks := slices.Clone(start.memory)
	stopMeasuring := kit.Run(w, "measuring", func(ctx context.Context) error {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				for i, victim := range before.victims {
					peaks[i] = max(peaks[i], megabytes(used(victim).RSS))
				}
			}
		}
	})
	took := w.others.run(w.others.until(during, ended))
	stopMeasuring()
	cancel()
	stopAttack()
	end := w.usage(before.victims)
	grown := 0.0
	for i := range peaks {
		grown = max(grown, peaks[i]-start.memory[i])
	}
	stored, logged, after := end.stored-start.stored, end.logged-start.logged, p99(took)
	w.Logf("hostile: %s: rss +%.0f MB, p99 quiet %d ms, during %d ms, etcd +%.0f MB, log +%.1f MB, cpu %.1f s (%d changes)",
		name, grown, before.p99.Milliseconds(), after.Milliseconds(), stored, logged, end.cpu-start.cpu, len(took))
	if grown > maxMemory {
		w.Errorf("%s: the victim takes %.0f MB more, want at most %d", name, grown, maxMemory)
	}
	if stored > maxStored {
		w.Errorf("%s: the databases of the API servers grow by %.0f MB, want at most %d", name, stored, maxStored)
	}
	if logged > maxLogged {
		w.Errorf("%s: the logs grow by %.1f MB, want at most %d", name, logged, maxLogged)
	}
	w.Alive()
	return after
}

// until returns a condition for run: that d has not passed, the attack has not ended, or there are few changes yet.
func (p *probe) until(d time.Duration, ended <-chan struct{}) func(n int) bool {
	start := time.Now()
	return func(n int) bool {
		lasts := false
		select {
		case <-ended:
		default:
			lasts = ended != nil
		}
		passed := time.Since(start)
		return passed < longest && (lasts || n < fewest || passed < d)
	}
}

// usage is what victims and the surroundings have used.
type usage struct {
	memory         []float64 // MB of RSS, of each victim
	cpu            float64   // seconds, of the victims together
	stored, logged float64   // MB
}

func (w *world) usage(victims []*process.Process) (u usage) {
	w.Helper()
	for _, victim := range victims {
		usage := used(victim)
		u.memory = append(u.memory, megabytes(usage.RSS))
		u.cpu += usage.CPU.Seconds()
	}
	for _, plane := range []*controlplane.Plane{hubPlane, spokePlane} {
		u.stored += size(filepath.Dir(plane.Kubeconfig), func(path string) bool { return strings.HasSuffix(path, "/member/snap/db") })
	}
	u.logged = size(w.Dir, func(path string) bool { return strings.HasSuffix(path, ".log") })
	return u
}

// used returns what a process uses, nothing if it has ended.
func used(p *process.Process) procs.Usage {
	usage, _ := procs.Of(p.PID())
	return usage
}

// megabytes returns n bytes in MB.
func megabytes(n int64) float64 { return float64(n) / (1 << 20) }

// size returns the MB of the files below dir that are wanted.
func size(dir string, wanted func(path string) bool) float64 {
	var bytes int64
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && wanted(path) {
			if info, err := entry.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil // files come and go
	})
	return megabytes(bytes)
}

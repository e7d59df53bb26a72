package fuzz

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokerchild"
)

var (
	duration = flag.Duration("for", 3*time.Second, "how long to send scripts after those of the corpus")
	seed     = flag.Uint64("seed", 0, "seed of the scripts; 0 chooses one")
)

// Bounds of the broker's process while scripts run. The memory is that of its queues and caches
// (64 MB each at most), and of what attackers hold; with the race detector several times that.
const (
	maxRSS        = 600  // MB after a garbage collection
	maxPeak       = 2000 // MB
	moreResources = 30   // goroutines, and files, above those at the start, once the attackers are gone
)

const (
	atATime  = 16  // scripts that run at the same time
	inARound = 160 // scripts between two looks at the bounds
	restarts = 100 // rounds between two restarts of the broker
)

// rig is a broker with its oracle.
type rig struct {
	*brokerchild.Process
	*oracle
	before brokerchild.Usage
}

func newRig(dir string) (*rig, error) {
	p, err := brokerchild.Start(dir, "")
	if err != nil {
		return nil, err
	}
	r := &rig{Process: p}
	if r.oracle, err = newOracle(p.Addr); err == nil {
		err = r.served()
	}
	if err == nil {
		r.before, err = p.Usage()
	}
	if err != nil {
		return nil, errors.Join(err, p.Died(), p.Stop())
	}
	return r, nil
}

func (r *rig) end() error {
	r.close()
	return r.Stop()
}

// check returns an error if the broker has ended, its clients are not served, or a bound is exceeded.
func (r *rig) check() error {
	if err := r.served(); err != nil {
		return errors.Join(err, r.Died())
	}
	deadline := time.Now().Add(kit.Patience)
	for {
		u, err := r.Usage()
		switch {
		case err != nil:
			return errors.Join(err, r.Died())
		case u.RSS > maxRSS || u.Peak > maxPeak:
			return fmt.Errorf("the broker's memory: %+v, at the start %+v", u, r.before)
		case u.Goroutines <= r.before.Goroutines+moreResources && u.Files <= r.before.Files+moreResources:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%v after the attackers are gone: %+v, at the start %+v", kit.Patience, u, r.before)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestNetwork is the fuzzer. It fails with the script that breaks the broker.
func TestNetwork(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d", *seed)
	scripts := corpus(t)
	dir := t.TempDir()
	r, err := newRig(dir)
	kit.NoError(t, err)
	defer func() {
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range slices.Sorted(mapKeys(scripts)) {
		scripts[name].play(r.Addr)
		if err := r.check(); err != nil {
			t.Fatalf("after testdata/corpus/%s: %v", name, err)
		}
	}
	g := newGenerator(*seed, scripts)
	start, played := time.Now(), 0
	for round := 1; time.Since(start) < *duration; round++ {
		var list []script
		for range inARound {
			list = append(list, g.script())
		}
		playAll(list, r.Addr)
		played += len(list)
		err := r.check()
		if err == nil && round%restarts == 0 {
			if err = r.end(); err == nil {
				r, err = restarted(r, dir)
			}
			report(t, start, played, r)
		}
		if err != nil {
			t.Fatalf("seed %d, round %d: %v\n%s", *seed, round, err, culprit(t, list))
		}
	}
	kit.NoError(t, r.end())
	if r, err = restarted(r, dir); err != nil {
		t.Fatalf("with the data of the scripts: %v", err)
	}
	report(t, start, played, r)
}

// restarted starts the broker again. It keeps the times of the oracle.
func restarted(before *rig, dir string) (*rig, error) {
	r, err := newRig(dir)
	if err != nil {
		return before, err
	}
	r.took = append(r.took, before.took...)
	return r, nil
}

func report(t *testing.T, start time.Time, played int, r *rig) {
	took := slices.Sorted(slices.Values(r.took))
	now, _ := r.Usage()
	line := fmt.Sprintf("%s: %d scripts in %v; others served within %v (median), %v (99 of 100), %v (all); %+v", time.Now().UTC().Format(time.RFC3339), played,
		time.Since(start).Round(time.Second), took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond), took[len(took)-1].Round(time.Microsecond), now)
	t.Log(line)
	if *duration > time.Minute {
		fmt.Println(line) // a log that is read while it runs
	}
}

// playAll plays the scripts, some at a time.
func playAll(list []script, addr string) {
	next := make(chan script)
	var workers sync.WaitGroup
	for range atATime {
		workers.Go(func() {
			for s := range next {
				s.play(addr)
			}
		})
	}
	for _, s := range list {
		next <- s
	}
	close(next)
	workers.Wait()
}

// culprit finds the script of list that breaks a broker alone, reduces it, writes it to the corpus,
// and returns a text about it.
func culprit(t *testing.T, list []script) string {
	for _, s := range list {
		err := broken(t, s)
		if err == nil {
			continue
		}
		for reduced := true; reduced; {
			reduced = false
			for i := range s {
				shorter := slices.Delete(slices.Clone(s), i, i+1)
				if e := broken(t, shorter); e != nil {
					s, err, reduced = shorter, e, true
					break
				}
			}
		}
		sum := sha256.Sum256([]byte(s.String()))
		file := filepath.Join("testdata", "corpus", fmt.Sprintf("found-%x.txt", sum[:6]))
		text := fmt.Sprintf("# Found with seed %d.\n%s", *seed, s)
		return fmt.Sprintf("the script %s breaks the broker: %v\n%.2000s\nwritten: %v", file, err, s, os.WriteFile(file, []byte(text), 0o600))
	}
	all := slices.Concat(list...)
	_ = os.WriteFile(filepath.Join(os.TempDir(), "workwire-fuzz-round.txt"), []byte(all.String()), 0o600)
	return "none of the round's scripts breaks the broker alone; they are in " + filepath.Join(os.TempDir(), "workwire-fuzz-round.txt")
}

// broken returns an error if s breaks a new broker.
func broken(t *testing.T, s script) error {
	dir := t.TempDir()
	r, err := newRig(dir)
	if err != nil {
		return err
	}
	s.play(r.Addr)
	err = r.check()
	if e := r.end(); err == nil {
		err = e
	}
	if err == nil {
		if r, err = newRig(dir); err == nil {
			err = r.end()
		}
	}
	return err
}

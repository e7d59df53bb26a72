package statestore_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/test/kit"
)

// used returns a state file with a history: pages of earlier transactions are still in it, some
// free.
func used(t testing.TB, noFreelistSync bool) (path string, holds map[string]string) {
	t.Helper()
	path, holds = tempFile(t), map[string]string{}
	s := open(t, path, func(c *statestore.Config) { c.NoFreelistSync = noFreelistSync })
	stop := run(t, s)
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		for range 40 {
			key := fmt.Sprintf("%04d", random.IntN(400))
			if random.IntN(3) == 0 {
				s.Delete(one, key)
				delete(holds, key)
				continue
			}
			text := strings.Repeat(fmt.Sprint(round, " "), 1+random.IntN(300))
			s.Put(one, key, value(text))
			holds[key] = text
		}
		wait(t, s)
	}
	stop()
	kit.NoError(t, s.Close())
	return path, holds
}

// damage returns a damaged copy of data, and what was done.
func damage(data []byte, random *rand.Rand) ([]byte, string) {
	data = bytes.Clone(data)
	at := random.IntN(len(data))
	switch random.IntN(5) {
	case 0:
		return data[:at], fmt.Sprintf("truncated to %d bytes", at)
	case 1:
		n := min(1+random.IntN(10_000), len(data)-at)
		for i := range n {
			data[at+i] = byte(random.Uint32())
		}
		return data, fmt.Sprintf("garbage in %d bytes from %d", n, at)
	}
	if random.IntN(2) == 0 { // the header of a page, or one of its first elements
		at = at/os.Getpagesize()*os.Getpagesize() + random.IntN(64)
	}
	at = min(at, len(data)-1)
	data[at] ^= byte(1 + random.IntN(255))
	return data, fmt.Sprintf("byte %d changed", at)
}

// TestDamagedFileIsSetAside damages a file in hundreds of random ways. Open never panics, and the
// store has either all that was written or nothing; then the damaged file is kept beside it.
func TestDamagedFileIsSetAside(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, noFreelistSync := range []bool{false, true} {
		source, want := used(t, noFreelistSync)
		whole, err := os.ReadFile(source)
		kit.NoError(t, err)
		intact := 0
		const trials = 150
		for trial := range trials {
			data, how := damage(whole, random)
			path := tempFile(t)
			kit.NoError(t, os.WriteFile(path, data, 0o600))
			var log kit.Log
			s := open(t, path, func(c *statestore.Config) {
				c.SetAside, c.NoFreelistSync, c.Logger = true, noFreelistSync, log.Logger()
			})
			saved, err := filepath.Glob(path + ".damaged-*")
			kit.NoError(t, err)
			got := content(t, s, one)
			switch {
			case len(saved) == 0 && maps.Equal(got, want):
				intact++
			case len(saved) == 0 && len(data) > 0:
				t.Errorf("%s: nothing was noticed, but the content is another one", how)
			case len(got) > 0:
				t.Errorf("%s: set aside, but the new file is not empty", how)
			case len(data) > 0 && strings.Count(log.String(), "damaged file set aside, starting with an empty one") != 1:
				t.Errorf("%s: the log is %q", how, log.String())
			}
			if trial%10 == 0 {
				stop := run(t, s)
				s.Put(one, "new", value("1"))
				wait(t, s)
				stop()
			}
			kit.NoError(t, s.Close())
		}
		t.Logf("no freelist %v: %d of %d damaged files were whole where it matters", noFreelistSync, intact, trials)
	}
}

func TestOnlyTheNewestDamagedFileIsKept(t *testing.T) {
	path := tempFile(t)
	for i := range 5 {
		kit.NoError(t, os.WriteFile(path, []byte(fmt.Sprint("damaged ", i)), 0o600))
		kit.NoError(t, open(t, path, func(c *statestore.Config) { c.SetAside = true }).Close())
		time.Sleep(2 * time.Millisecond) // the names have milliseconds
	}
	saved, err := filepath.Glob(path + ".damaged-*")
	kit.NoError(t, err)
	if len(saved) != 1 {
		t.Fatalf("%d files are kept, want 1: %v", len(saved), saved)
	}
	if data, _ := os.ReadFile(saved[0]); string(data) != "damaged 4" {
		t.Errorf("the newest file that is kept holds %q", data)
	}
}

// TestDamageOfTheLastTransaction: a store that cannot be filled again falls back to the transaction
// before, like bbolt; one that can is filled again, because acknowledged changes would be missing.
func TestDamageOfTheLastTransaction(t *testing.T) {
	source, _ := used(t, true)
	whole, err := os.ReadFile(source)
	kit.NoError(t, err)
	for meta := range 2 {
		whole := bytes.Clone(whole)
		whole[meta*os.Getpagesize()+70] ^= 1
		for _, setAside := range []bool{false, true} {
			path := tempFile(t)
			kit.NoError(t, os.WriteFile(path, whole, 0o600))
			s := open(t, path, func(c *statestore.Config) { c.SetAside = setAside })
			if empty := len(content(t, s, one)) == 0; empty != setAside {
				t.Errorf("meta %d, SetAside %v: the store is empty: %v", meta, setAside, empty)
			}
			kit.NoError(t, s.Close())
		}
	}
}

// BenchmarkOpen opens a file of 100 MiB.
func BenchmarkOpen(b *testing.B) {
	path := tempFile(b)
	s := open(b, path, func(c *statestore.Config) { c.NoFreelistSync = true })
	stop := run(b, s)
	for i := range 25_000 {
		s.Put(one, fmt.Sprintf("%08d", i), value(strings.Repeat("spec", 1000)))
	}
	wait(b, s)
	stop()
	kit.NoError(b, s.Close())
	for b.Loop() {
		s, err := statestore.Open(func() statestore.Config { c := config(path); c.NoFreelistSync = true; return c }())
		kit.NoError(b, err)
		kit.NoError(b, s.Close())
	}
}

package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/source/store/file"
	"github.com/workwire/workwire/pkg/source/store/storetest"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/storebench"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Place { return place{filepath.Join(t.TempDir(), "ops.db")} })
}

type place struct{ path string }

func (p place) New() store.Store { return file.New(p.path) }

func (p place) Copy(t testing.TB) { move(t, p.path, p.path+".copy") }

func (p place) Restore(t testing.TB) { move(t, p.path+".copy", p.path) }

func move(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	kit.NoError(t, err)
	kit.NoError(t, os.WriteFile(to, data, 0o600))
}

func TestMeasured(t *testing.T) {
	storebench.Test(t, file.New(filepath.Join(t.TempDir(), "ops.db")))
}

func BenchmarkStore(b *testing.B) {
	storebench.Benchmark(b, func(b *testing.B) store.Store { return file.New(filepath.Join(b.TempDir(), "ops.db")) })
}

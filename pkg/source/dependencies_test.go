package source_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// TestDependencies: a program that imports a package of the SDK compiles in what it needs, and no more.
// The numbers of packages, the standard library included, are those of the day with some room; raise
// them when a dependency is worth it.
func TestDependencies(t *testing.T) {
	const module = "github.com/workwire/workwire/"
	never := []string{
		module + "pkg/agent", module + "pkg/hub", module + "test", "sigs.k8s.io/controller-runtime", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver",
		"testing", "github.com/go-git",
	}
	const bolt, postgres = "go.etcd.io/bbolt", "github.com/jackc"
	for name, c := range map[string]struct {
		most   int
		others []string
	}{
		"pkg/source":                {480, []string{postgres}},
		"pkg/source/store":          {300, []string{bolt, postgres}},
		"pkg/source/store/file":     {310, []string{postgres}},
		"pkg/source/store/postgres": {330, []string{bolt}},
	} {
		output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+name).Output()
		kit.NoError(t, err)
		packages := strings.Fields(string(output))
		t.Logf("%s: %d packages", name, len(packages))
		if len(packages) > c.most {
			t.Errorf("%s needs %d packages, more than %d", name, len(packages), c.most)
		}
		for _, p := range packages {
			for _, unwanted := range append(never, c.others...) {
				if p == unwanted || strings.HasPrefix(p, unwanted+"/") {
					t.Errorf("%s imports %s", name, p)
				}
			}
		}
	}
}

// TestBinarySize: the smallest program, that of the quick start, which has the client, MQTT and a file
// as store, is not larger than on the day with some room.
func TestBinarySize(t *testing.T) {
	const most = 20 << 20
	program := filepath.Join(t.TempDir(), "quickstart")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "../../examples/quickstart")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file, err := os.Stat(program)
	kit.NoError(t, err)
	t.Logf("the smallest program has %.1f MiB", float64(file.Size())/(1<<20))
	if file.Size() > most {
		t.Errorf("the smallest program has %d bytes, more than %d", file.Size(), most)
	}
}

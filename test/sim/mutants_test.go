package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

var mutants = flag.String("mutants", "", "regular expression: run the planted faults with such names")

// TestMutants plants each fault of testdata/mutants in a copy of the code. Those that -mutants names are built, and it
// looks after how many seeds they are caught.
func TestMutants(t *testing.T) {
	wanted, err := regexp.Compile(*mutants)
	kit.NoError(t, err)
	patches, err := filepath.Glob("testdata/mutants/*.patch")
	kit.NoError(t, err)
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		t.Run(name, func(t *testing.T) {
			dir, overlay := plant(t, patch)
			if *mutants != "" && wanted.MatchString(name) {
				runMutant(t, dir, overlay)
			}
		})
	}
}

// patchedFile is the line of a patch that names its file.
var patchedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`)

const root = "../.."

// plant returns a directory with a patched copy of the files that the patch names, and the overlay that puts them in
// the place of the originals.
func plant(t *testing.T, patch string) (dir, overlayFile string) {
	t.Helper()
	patch, err := filepath.Abs(patch)
	kit.NoError(t, err)
	text, err := os.ReadFile(patch) //nolint:gosec // a file of the repository
	kit.NoError(t, err)
	dir = t.TempDir()
	replaced := map[string]string{}
	for _, file := range patchedFile.FindAllStringSubmatch(string(text), -1) {
		from, err := filepath.Abs(filepath.Join(root, file[1]))
		kit.NoError(t, err)
		to := filepath.Join(dir, file[1])
		original, err := os.ReadFile(from) //nolint:gosec // likewise
		kit.NoError(t, err)
		kit.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		kit.NoError(t, os.WriteFile(to, original, 0o600))
		replaced[from] = to
	}
	if out, err := run(t, dir, "git", "apply", patch); err != nil {
		t.Fatalf("the code has changed, so the patch does not apply: %s", out)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	kit.NoError(t, err)
	overlayFile = filepath.Join(dir, "overlay.json")
	kit.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))
	return dir, overlayFile
}

// run runs a command in dir and returns what it prints.
func run(t *testing.T, dir, program string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(bytes.TrimSpace(out)), err
}

func runMutant(t *testing.T, dir, overlayFile string) {
	t.Helper()
	binary := filepath.Join(dir, "sim.test")
	if out, err := run(t, ".", "go", "test", "-vet=off", "-overlay", overlayFile, "-c", "-o", binary, "."); err != nil {
		t.Fatalf("the mutant does not build: %s", out)
	}
	out, err := run(t, ".", binary, "-test.run=^TestSeeds$", "-test.timeout=1h", "-seeds="+strconv.Itoa(*seeds))
	if err == nil {
		t.Fatalf("not caught by %d seeds", *seeds)
	}
	t.Log(strings.TrimSpace(out))
}

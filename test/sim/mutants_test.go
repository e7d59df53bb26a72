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

// TestMutants plants each fault of testdata/mutants in a copy of the code, and looks after how many seeds it is caught.
func TestMutants(t *testing.T) {
	if *mutants == "" {
		t.Skip("each is a build: run with -mutants=.")
	}
	wanted := regexp.MustCompile(*mutants)
	patches, err := filepath.Glob("testdata/mutants/*.patch")
	kit.NoError(t, err)
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		if wanted.MatchString(name) {
			t.Run(name, func(t *testing.T) { runMutant(t, patch) })
		}
	}
}

// patchedFile is the line of a patch that names its file.
var patchedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`)

func runMutant(t *testing.T, patch string) {
	root, err := filepath.Abs("../..")
	kit.NoError(t, err)
	patch, err = filepath.Abs(patch)
	kit.NoError(t, err)
	text, err := os.ReadFile(patch) //nolint:gosec // a file of the repository
	kit.NoError(t, err)
	dir, replaced := t.TempDir(), map[string]string{}
	for _, file := range patchedFile.FindAllStringSubmatch(string(text), -1) {
		from, to := filepath.Join(root, file[1]), filepath.Join(dir, file[1])
		original, err := os.ReadFile(from) //nolint:gosec // likewise
		kit.NoError(t, err)
		kit.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		kit.NoError(t, os.WriteFile(to, original, 0o600))
		replaced[from] = to
	}
	run := func(dir, program string, args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), program, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		return string(bytes.TrimSpace(out)), err
	}
	if out, err := run(dir, "git", "apply", patch); err != nil {
		t.Fatalf("the code has changed, so the patch does not apply: %s", out)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	kit.NoError(t, err)
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	kit.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))
	if out, err := run(filepath.Join(root, "test/sim"), "go", "test", "-vet=off", "-overlay", overlayFile, "-c", "-o", binary, "."); err != nil {
		t.Fatalf("the mutant does not build: %s", out)
	}
	out, err := run(filepath.Join(root, "test/sim"), binary, "-test.run=^TestSeeds$", "-test.timeout=1h", "-seeds="+strconv.Itoa(*seeds))
	if err == nil {
		t.Fatalf("not caught by %d seeds", *seeds)
	}
	t.Log(strings.TrimSpace(out))
}

package deploy

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// TestImageSizes: an image is its binary, so that the sizes on the page are those of the binaries, within a tenth.
func TestImageSizes(t *testing.T) {
	page, err := os.ReadFile("../../docs/compose.md")
	kit.NoError(t, err)
	sizes := regexp.MustCompile(`(?m)^\| ([a-z-]+) \| (\d+) MB \|`).FindAllStringSubmatch(string(page), -1)
	if len(sizes) != 5 {
		t.Fatalf("the page has %d sizes, want those of the 5 images: is the pattern right?", len(sizes))
	}
	for _, size := range sizes {
		binary, err := os.Stat(filepath.Join(repository(t), "bin", size[1]))
		kit.NoError(t, err)
		stated, err := strconv.ParseFloat(size[2], 64)
		kit.NoError(t, err)
		if actual := float64(binary.Size()) / 1e6; math.Abs(actual-stated) > stated/10 {
			t.Errorf("docs/compose.md: the image of %s has %v MB, and the binary %.0f: mend the page, or find out why it has grown", size[1], stated, actual)
		}
	}
}

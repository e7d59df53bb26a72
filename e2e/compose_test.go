package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// keepAlive is that of hub and agent here, so that a cut shows after half a minute and not after
// one and a half.
const keepAlive = 20 * time.Second

// TestCompose goes through the life of docker-compose.yaml.
func TestCompose(t *testing.T) {
	s := up(t, "", "docker-compose.yaml", withKeepAlive(t))
	s.put("kept", "always")
	for _, part := range []struct {
		name string
		test func(*stack)
	}{
		{"Doors", doors}, {"Tutorial", tutorial}, {"Kill", kill}, {"Restart", restart}, {"Cut", cut},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(s.on(t)) }) {
			return // the rest would fail, slowly
		}
	}
	// Rotating the authority is waiting for the most part: the other setups can have the processors
	// meanwhile.
	t.Run("Meanwhile", func(t *testing.T) {
		t.Run("Rotation", func(t *testing.T) {
			t.Parallel()
			rotation(s.on(t))
		})
		t.Run("Fleet", func(t *testing.T) {
			t.Parallel()
			fleet(t)
		})
	})
}

// withKeepAlive makes a file for docker-compose that gives hub and agent their transport
// configuration with another keepAlive.
func withKeepAlive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := "services:\n"
	for _, service := range []string{"hub", "agent"} {
		config, err := os.ReadFile(filepath.Join("../deploy/compose", service+".yaml"))
		kit.NoError(t, err)
		folder := filepath.Join(dir, service)
		kit.NoError(t, os.Mkdir(folder, 0o755))
		config = fmt.Appendf(config, "\nkeepAlive: %d\n", int(keepAlive.Seconds()))
		kit.NoError(t, os.WriteFile(filepath.Join(folder, service+".yaml"), config, 0o644))
		text += fmt.Sprintf("  %s:\n    volumes: [\"%s:/config:ro\"]\n", service, folder)
	}
	file := filepath.Join(dir, "docker-compose.keepalive.yaml")
	kit.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

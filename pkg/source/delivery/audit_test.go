package delivery_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestForeignClustersAreAudited: whatever a cluster says in the name of another is refused, and leaves a
// record that names the one whose topic it was.
func TestForeignClustersAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{Path: path, Program: "test"})
	kit.NoError(t, err)
	t.Cleanup(kit.Run(t, "audit log", func(ctx context.Context) error { log.Run(ctx); return nil }))
	withHarness(t, delivery.Config{Audit: log}, func(b *harness) {
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		for _, m := range []wire.Message{
			&wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1"},
			&wire.Digest{Agent: "a", Cluster: "cluster1", Source: "hub1", Buckets: []wire.BucketDigest{{Works: 7}}},
			&wire.Presence{Agent: "a", Cluster: "cluster1", Source: "hub1", Session: "s", Present: true},
			&wire.Status{UID: uid, Generation: 1, Source: "hub1", Cluster: "cluster1", Agent: "a", Sequence: 5, Action: wire.Update},
		} {
			b.send("rogue", m)
		}
		synctest.Wait()
	})
	text, err := os.ReadFile(path)
	kit.NoError(t, err)
	refused := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"verdict":"wrong_cluster"`) && strings.Contains(line, `"identity":"rogue"`) {
			refused++
		}
	}
	if refused != 4 {
		t.Errorf("%d of 4 messages have a record of their refusal:\n%s", refused, text)
	}
}

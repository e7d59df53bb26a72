package delivery_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// agentKeys are the signing keys of cluster1 and cluster2, and the file of trusted agents.
type agentKeys struct {
	trusted *signing.TrustedAgents
	files   map[wire.ClusterName]string
}

func newAgentKeys(t *testing.T) agentKeys {
	t.Helper()
	dir := t.TempDir()
	k := agentKeys{files: map[wire.ClusterName]string{}}
	var list []signing.TrustedKey
	for _, cluster := range []wire.ClusterName{"cluster1", "cluster2", "thief"} {
		key, err := signing.NewKey()
		kit.NoError(t, err)
		data, err := key.PEM()
		kit.NoError(t, err)
		k.files[cluster] = filepath.Join(dir, string(cluster))
		kit.NoError(t, os.WriteFile(k.files[cluster], data, 0o600))
		if cluster != "thief" {
			list = append(list, signing.TrustedKey{PublicKey: key.Public(), Clusters: []wire.ClusterName{cluster}})
		}
	}
	data, err := signing.FormatTrustedKeys(list...)
	kit.NoError(t, err)
	path := filepath.Join(dir, "trusted-agents.yaml")
	kit.NoError(t, os.WriteFile(path, data, 0o600))
	k.trusted, err = signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: []string{path}})
	kit.NoError(t, err)
	return k
}

// signer returns what signs for a cluster, with a clock that is ahead by some time.
func (k agentKeys) signer(t *testing.T, cluster wire.ClusterName, ahead time.Duration) *signing.Signer {
	t.Helper()
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: k.files[cluster], Now: func() time.Time { return time.Now().Add(ahead) }})
	kit.NoError(t, err)
	return signer
}

// report returns a status of a work of cluster1 with a condition.
func report(t *testing.T, work *workv1.ManifestWork, sequence int, condition string) cloudevents.Event {
	t.Helper()
	s := &wire.Status{UID: work.UID, Generation: wire.Generation(work.Generation), Source: "hub1", Cluster: "cluster1", Agent: "a", Session: "s",
		Sequence: wire.SequenceID(sequence), Action: wire.Update, Meta: metav1.ObjectMeta{Name: work.Name, Namespace: work.Namespace}}
	s.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, ObservedGeneration: work.Generation}}
	e, err := wire.Encode(s, time.Now())
	kit.NoError(t, err)
	return e
}

// deliver has the engine receive an event on the topic of a cluster.
func (b *harness) deliver(cluster wire.ClusterName, e cloudevents.Event) {
	b.t.Helper()
	delivery.Receive(b.engine, transport.Message{Topic: fmt.Sprintf("sources/hub1/clusters/%s/agentevents", cluster), Event: e, Ack: func() {}})
	synctest.Wait()
}

// TestUntrustedStatuses: a status that is forged, replayed or another cluster's changes nothing, and is
// counted, audited, and reported once. Without keys, it counts.
func TestUntrustedStatuses(t *testing.T) {
	keys := newAgentKeys(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Config{Path: path, Program: "test"})
	kit.NoError(t, err)
	t.Cleanup(kit.Run(t, "audit log", func(ctx context.Context) error { log.Run(ctx); return nil }))
	messages, reports := 0, []string{}
	config := delivery.Config{
		TrustedAgents: keys.trusted, Audit: log, Observe: func(event delivery.Event) {
			switch event := event.(type) {
			case delivery.ClusterHeard, delivery.UnknownStatus:
				messages++
			case delivery.TrustChanged:
				reports = append(reports, string(event.Cluster)+" "+string(event.Reason))
			}
		},
	}
	withHarness(t, config, func(b *harness) {
		time.Sleep(20 * 365 * 24 * time.Hour) // sequence ids begin in 2010
		b.start()
		work := b.store.put(newWork("cluster1", "w"))
		synctest.Wait()
		sign := func(e cloudevents.Event, cluster wire.ClusterName, ahead time.Duration) cloudevents.Event {
			kit.NoError(t, keys.signer(t, cluster, ahead).SignStatus(&e))
			return e
		}
		refused := func(what string, cluster wire.ClusterName, e cloudevents.Event, reason signing.Reason) {
			t.Helper()
			before, counted := messages, b.metric("workwire_source_untrusted_statuses_total", "reason="+string(reason))
			updates, published := len(b.store.updates), len(b.tap.specs(work.UID))
			b.deliver(cluster, e)
			if got := b.metric("workwire_source_untrusted_statuses_total", "reason="+string(reason)); got != counted+1 {
				t.Errorf("%s is not refused as %s", what, reason)
			}
			if messages != before || len(b.store.updates) != updates || len(b.tap.specs(work.UID)) != published {
				t.Errorf("%s changes something", what)
			}
		}
		old := sign(report(t, work, 3, "Applied"), "cluster1", 0)
		time.Sleep(2 * time.Minute)
		b.deliver("cluster1", sign(report(t, work, 5, "Applied"), "cluster1", 0))
		if len(b.store.updates) != 1 || messages != 1 {
			t.Fatalf("a signed status: %d updates, %d messages", len(b.store.updates), messages)
		}
		refused("an unsigned Complete", "cluster1", report(t, work, 6, "Complete"), signing.Unsigned)
		refused("an unsigned Deleted", "cluster1", report(t, work, 6, "Deleted"), signing.Unsigned)
		refused("one of another cluster's key", "cluster1", sign(report(t, work, 6, "Complete"), "cluster2", 0), signing.WrongCluster)
		refused("one on another cluster's topic", "cluster2", sign(report(t, work, 6, "Complete"), "cluster1", 0), signing.WrongCluster)
		refused("one of a stranger", "cluster1", sign(report(t, work, 6, "Complete"), "thief", 0), signing.UnknownKey)
		refused("an older one", "cluster1", old, signing.Replayed)
		refused("one from before the start", "cluster1", sign(report(t, work, 6, "Complete"), "cluster1", -5*time.Minute), signing.BeforeStart)
		refused("one from long ago", "cluster1", sign(report(t, work, 6, "Complete"), "cluster1", -2*time.Hour), signing.Expired)
		refused("one of an unknown work", "cluster1", report(t, newWork("cluster1", "other"), 6, "Deleted"), signing.Unsigned)
		edited := sign(report(t, work, 6, "Applied"), "cluster1", 0)
		edited.SetExtension("sequenceid", "7")
		refused("an edited one", "cluster1", edited, signing.Invalid)
		if want := "cluster1 unsigned, cluster2 wrong_cluster"; strings.Join(reports, ", ") != want {
			t.Errorf("reported are %q, want %q", reports, want)
		}
		time.Sleep(20 * time.Minute)
		b.deliver("cluster1", sign(report(t, work, 8, "Applied"), "cluster1", 0))
		if reports[len(reports)-1] != "cluster1 " {
			t.Errorf("the end is not reported: %q", reports)
		}
	})
	text, err := os.ReadFile(path)
	kit.NoError(t, err)
	if n := strings.Count(string(text), `"verdict":"untrusted"`); n != 10 || !strings.Contains(string(text), `"reason":"wrong_cluster"`) {
		t.Errorf("%d records of untrusted statuses:\n%s", n, text)
	}
}

// TestUntrustedByDefault: without trusted agents, signed and unsigned statuses count alike.
func TestUntrustedByDefault(t *testing.T) {
	keys := newAgentKeys(t)
	withHarness(t, delivery.Config{}, func(b *harness) {
		time.Sleep(20 * 365 * 24 * time.Hour)
		b.start()
		work := b.store.put(newWork("cluster1", "w"))
		synctest.Wait()
		signed := report(t, work, 5, "Applied")
		kit.NoError(t, keys.signer(t, "thief", 0).SignStatus(&signed))
		b.deliver("cluster1", signed)
		b.deliver("cluster1", report(t, work, 6, "Complete"))
		if len(b.store.updates) != 2 {
			t.Errorf("%d of 2 statuses are stored", len(b.store.updates))
		}
	})
}

package trust_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/trust"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/keykit"
)

// asRefused returns err as a refusal, nil if it is none.
func asRefused(err error) *signing.RefusedError {
	refused, _ := errors.AsType[*signing.RefusedError](err)
	return refused
}

// TestGate: events that are refused are counted and logged, and those of a source count once it has answered.
func TestGate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "trusted-keys.yaml")
	keykit.Write(t, filepath.Join(dir, "signing.key"), path, signing.TrustedKey{Sources: []wire.SourceID{"hub1"}})
	keys, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: path})
	kit.NoError(t, err)
	registry := prometheus.NewRegistry()
	gate, err := trust.New(trust.Config{Keys: keys, MaxAge: time.Hour, Registerer: registry})
	kit.NoError(t, err)

	event, err := wire.Encode(&wire.Spec{UID: "u", Source: "hub1", Cluster: "c1", Action: wire.Delete, DeletionTimestamp: &metav1.Time{Time: time.Now()}}, time.Now())
	kit.NoError(t, err)
	var log kit.Log
	const forged = 3
	for range forged {
		_, err := gate.Verify(event, "hub1")
		refused := asRefused(err)
		if refused == nil || refused.Reason != signing.Unsigned {
			t.Fatalf("Verify = %v", err)
		}
		gate.Refused(log.Logger(), refused)
	}
	if lines := log.Lines("event refused because of its signature"); len(lines) != forged {
		t.Errorf("%d lines are logged", len(lines))
	}
	if n := kit.Metric(t, registry, "workwire_agent_untrusted_events_total", "reason=unsigned"); n != forged {
		t.Errorf("%v events are counted", n)
	}
	if refused := asRefused(gate.Admit("hub1", time.Now(), "uid/u")); refused == nil || refused.Reason != trust.Unproven || gate.Proven("hub1") {
		t.Errorf("Admit = %v before the source has answered", refused)
	}
	if _, err := gate.Prove("hub1", time.Now().Add(-2*time.Hour)); asRefused(err) == nil || asRefused(err).Reason != signing.Expired {
		t.Errorf("Prove = %v with an old answer", err)
	}
	proof := time.Now()
	if first, err := gate.Prove("hub1", proof); err != nil || !first || !gate.Proven("hub1") || gate.Proven("hub2") {
		t.Errorf("Prove = %t, %v", first, err)
	}
	if err := gate.Admit("hub1", proof.Add(time.Millisecond), "uid/u"); err != nil {
		t.Errorf("Admit = %v", err)
	}
}

// TestNoGate: without trusted keys, all events are believed.
func TestNoGate(t *testing.T) {
	var gate *trust.Gate
	if err := gate.Admit("hub1", time.Time{}, "uid/u"); err != nil || !gate.Proven("hub1") {
		t.Errorf("Admit = %v", err)
	}
}

package reconcile

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	"github.com/workwire/workwire/pkg/agent/internal/store"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestWhatIsNotOnDiskIsNotReconciled: something else than the inbox, such as a change of an object, may have a work reconciled whose spec is not on disk yet.
// It is neither applied nor reported.
func TestWhatIsNotOnDiskIsNotReconciled(t *testing.T) {
	s, err := store.Open(store.Config{Dir: t.TempDir()})
	kit.NoError(t, err)
	told := make(chan inbox.Key, 1)
	table, key := NewTable(), inbox.Key{Source: "hub", UID: "u"}
	r := &Reconciler{Config: Config{Table: table, Outbox: &outbox.Outbox{}, Inbox: inbox.New(inbox.Config{Store: s, Changed: func(k inbox.Key) { told <- k }})}, metrics: newMetrics(prometheus.NewRegistry(), table)}
	bundle := &wire.Bundle{Manifests: []workv1.Manifest{{}}}
	r.Inbox.Put(&wire.Spec{UID: key.UID, Source: key.Source, Generation: 1, Bundle: bundle}, nil)
	table.add("a", key)
	r.reconcile(t.Context(), "a") // without a cluster: to apply anything would panic
	kit.NoError(t, s.Close())
	if got := kit.Receive(t, "the work is to be reconciled", told); got != key {
		t.Errorf("told of %v", got)
	}
}

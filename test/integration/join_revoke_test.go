package integration

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/membership"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// member is a cluster that has joined, as far as its connection and its certificates go.
type member struct {
	up       atomic.Bool
	connects atomic.Int64
	refused  atomic.Int64
}

// connected runs the connection of an agent with a membership, until the test or stop ends it.
func (w *joining) connected(name wire.ClusterName, m *membership.Membership) (c *member, stop func()) {
	w.Helper()
	c = &member{}
	tr, err := mqtt.New(mqtt.Config{
		Broker: m.Broker(), ClientID: string(name) + "-agent", Logger: kit.Logger(w).With("agent", name), ReloadInterval: 100 * time.Millisecond,
		Refused: func() { c.refused.Add(1); m.Refused() },
	})
	kit.NoError(w, err)
	agent := m.Transport(tr)
	return c, kit.Run(w, string(name), func(ctx context.Context) error {
		return agent.Run(ctx, transport.Handler{
			Received:  func(_ context.Context, m transport.Message) { m.Ack() },
			Connected: func(context.Context, transport.Connection) { c.connects.Add(1); c.up.Store(true) },
			Lost:      func(error) { c.up.Store(false) },
		})
	})
}

// refusedAnew waits until the broker has refused the certificate again.
func (c *member) refusedAnew(t testing.TB, when string) {
	t.Helper()
	before := c.refused.Load()
	kit.True(t, when+": the certificate is refused", func() bool { return c.refused.Load() > before })
	if c.up.Load() {
		t.Errorf("%s: the cluster is connected", when)
	}
}

// TestRevokedIsCut: a revoked cluster is cut from the broker within seconds, and stays out after a restart of broker and hub, and when its
// ManagedCluster is deleted; others are not affected. When it is let in again, it comes back by itself.
func TestRevokedIsCut(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	clients := w.clusters.ClusterV1().ManagedClusters()
	start := func(name wire.ClusterName) *member {
		c, _ := w.connected(name, w.device(name, w.token(name, nil)).joined())
		kit.True(t, string(name)+" connects", c.up.Load)
		return c
	}
	name, deleted, other := w.Clusters[1], wire.ClusterName(kit.Unique("deleted")), wire.ClusterName(kit.Unique("other"))
	lost, gone, stays := start(name), start(deleted), start(other)

	kit.NoError(t, join.Revoke(t.Context(), w.clusters, string(name), "lost", time.Now()))
	took := kit.Within(t, 20*time.Second, "the connection ends within seconds", func() error { // as docs/join.md says
		if lost.up.Load() {
			return errors.New("it is connected")
		}
		return nil
	})
	t.Logf("cut %s after it was revoked", took.Round(time.Millisecond))
	// At least: clusters of other tests, which this hub knows too, may be revoked.
	kit.True(t, "the metrics say that the broker has the list", func() bool {
		return w.hub.Metric("workwire_hub_revoked_certificates") >= 1 && w.hub.Metric("workwire_hub_revocation_list_untaken") == 0
	})
	kit.NoError(t, join.Revoke(t.Context(), w.clusters, string(deleted), "", time.Now()))
	kit.NoError(t, clients.Delete(t.Context(), string(deleted), metav1.DeleteOptions{}))
	kit.True(t, "its connection ends", func() bool { return !gone.up.Load() })

	w.hub.Stop()
	w.Broker.Restart(t)
	lost.refusedAnew(t, "after a restart of the broker")
	gone.refusedAnew(t, "after a restart of the broker")
	kit.True(t, "the other one connects again", func() bool { return stays.up.Load() && stays.connects.Load() > 1 })
	w.startHub()
	kit.NoError(t, join.Revoke(t.Context(), w.clusters, string(other), "", time.Now())) // so that the hub sends a list
	kit.True(t, "the metric says that more is revoked", func() bool { return w.hub.Metric("workwire_hub_revoked_certificates") >= 3 })
	kit.True(t, "the other one is cut", func() bool { return !stays.up.Load() })
	gone.refusedAnew(t, "after its ManagedCluster was deleted")

	for _, name := range []wire.ClusterName{name, other} {
		_, err := clients.Patch(t.Context(), string(name), types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, v1alpha1.RevokedAnnotationKey), metav1.PatchOptions{})
		kit.NoError(t, err)
	}
	kit.True(t, "those who are let in again connect", func() bool { return lost.up.Load() && stays.up.Load() })
	gone.refusedAnew(t, "while others are let in again")
}

// TestReplacedIsCut: when a new device takes the name of a cluster, the certificate of the one before is revoked.
func TestReplacedIsCut(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	before, _ := w.connected(name, w.device(name, w.token(name, nil)).joined())
	kit.True(t, "the device connects", before.up.Load)
	w.device(name, w.token(name, func(g *enrolment.Grant) { g.Replace = true })).joined()
	kit.True(t, "the device before is refused", func() bool { return before.refused.Load() > 0 && !before.up.Load() })
	cluster, err := w.clusters.ClusterV1().ManagedClusters().Get(t.Context(), string(name), metav1.GetOptions{})
	kit.NoError(t, err)
	if list := enrolment.ParseIssued(cluster.Annotations[v1alpha1.CertificatesAnnotationKey]); len(list) != 1 {
		t.Errorf("the ManagedCluster has the certificates %v, want that of the new device", list)
	}
}

// TestRevocationsArePublic: other brokers get the list from the ConfigMap.
func TestRevocationsArePublic(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	w.device(name, w.token(name, nil)).joined()
	kit.NoError(t, join.Revoke(t.Context(), w.clusters, string(name), "lost", time.Now()))
	kit.Eventually(t, "the ConfigMap has the list", func() error {
		stored, err := w.planes.CoreV1().ConfigMaps("default").Get(t.Context(), v1alpha1.RevocationsConfigMap, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return err
		}
		kit.NoError(t, err)
		block, _ := pem.Decode([]byte(stored.Data[string(w.Source)+".crl"]))
		if block == nil || block.Type != "X509 CRL" {
			return fmt.Errorf("it has %v", stored.Data)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		kit.NoError(t, err)
		if len(list.RevokedCertificateEntries) == 0 {
			return errors.New("nobody is on it")
		}
		return nil
	})
}

// TestRevokedBeforeRestore: where the hub's API is restored from a backup that is older than a revocation, the hub gives no certificate, and
// the list of the broker stays, until somebody has revoked the cluster again and has the hub replace that list. Likewise where the ConfigMap is lost.
func TestRevokedBeforeRestore(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name, other := w.Clusters[1], wire.ClusterName(kit.Unique("other"))
	thief := w.device(name, w.token(name, nil))
	stolen, _ := w.connected(name, thief.joined())
	kit.True(t, "the cluster connects", stolen.up.Load)
	maps, key := w.planes.CoreV1().ConfigMaps("default"), string(w.Source)+".crl"
	var list string // of the backup, with nobody on it
	kit.True(t, "the ConfigMap has a list", func() bool {
		stored, err := maps.Get(t.Context(), v1alpha1.RevocationsConfigMap, metav1.GetOptions{})
		list = stored.Data[key]
		return err == nil && list != ""
	})
	kit.NoError(t, join.Revoke(t.Context(), w.clusters, string(name), "stolen", time.Now()))
	kit.True(t, "the connection ends", func() bool { return !stolen.up.Load() })
	w.hub.Stop()

	change := func(data map[string]any) {
		patch, err := json.Marshal(map[string]any{"data": data})
		kit.NoError(t, err)
		_, err = maps.Patch(t.Context(), v1alpha1.RevocationsConfigMap, types.MergePatchType, patch, metav1.PatchOptions{})
		kit.NoError(t, err)
	}
	change(map[string]any{string(w.Source): nil, key: list})
	_, err := w.clusters.ClusterV1().ManagedClusters().Patch(t.Context(), string(name), types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}},"spec":{"hubAcceptsClient":true}}`, v1alpha1.RevokedAnnotationKey), metav1.PatchOptions{})
	kit.NoError(t, err)
	w.startHub()
	kit.True(t, "the metric says that the broker has a newer list", func() bool {
		return w.hub.Metric("workwire_hub_revocation_list_outdated") == 1 && w.hub.Metric("workwire_hub_revocation_list_untaken") == 0
	})
	secrets := thief.secrets().CoreV1().Secrets(w.Targets[1])
	_, err = secrets.Patch(t.Context(), thief.secret, types.MergePatchType, []byte(`{"data":{"tls.crt":null,"tls.key":null}}`), metav1.PatchOptions{})
	kit.NoError(t, err)
	thief.refused(enrolment.Busy)
	w.device(other, w.token(other, nil)).refused(enrolment.Busy)
	stolen.refusedAnew(t, "after the restore")

	kit.NoError(t, join.Revoke(t.Context(), w.clusters, string(name), "stolen", time.Now()))
	change(map[string]any{key: "replace"})
	kit.True(t, "the broker takes the next list", func() bool { return w.hub.Metric("workwire_hub_revocation_list_outdated") == 0 })
	thief.refused(enrolment.Revoked)
	w.device(other, w.token(other, nil)).joined()
	stolen.refusedAnew(t, "when it is revoked again")

	w.hub.Stop()
	change(map[string]any{string(w.Source): nil, key: nil})
	kit.NoError(t, w.clusters.ClusterV1().ManagedClusters().Delete(t.Context(), string(name), metav1.DeleteOptions{}))
	w.startHub()
	kit.True(t, "the metric says that the hub has lost its list", func() bool { return w.hub.Metric("workwire_hub_revocation_list_outdated") == 1 })
	stolen.refusedAnew(t, "when the hub has lost its list")
}

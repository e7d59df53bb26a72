package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// shard is what one of two hubs that share the clusters is: its part of names, and the clusters that it selects.
type shard struct{ name, selector string }

const shardLabel = "shard"

// The hub of shard a has all clusters that the other one does not have, and registers new ones.
var (
	shardA = &shard{"a", shardLabel + " notin (b)"}
	shardB = &shard{"b", shardLabel + "=b"}
)

// lease is the name of the hub, and of its Lease.
func (s *shard) lease() string {
	if s == nil {
		return hubLease
	}
	return hubLease + "-" + s.name
}

// moveCluster has the other hub serve a cluster, half of the times while everything is late and works of the cluster change.
func (w *World) moveCluster() {
	clusters, moved := w.people.ClusterV1().ManagedClusters(), w.anyCluster()
	c, err := clusters.Get(background, string(moved.name), metav1.GetOptions{})
	if err != nil {
		return
	}
	if w.random.chance(50) {
		w.flaky.set(0, 2*time.Second, 5*time.Second)
		w.later(30*time.Second, func() { w.flaky.set(0, 0, 0) })
		for range 5 {
			_, name := w.anyWork()
			w.change(moved, name)
			w.later(8*time.Second, func() { w.change(moved, name) })
		}
	}
	to := shardB.name
	if c.Labels[shardLabel] == to {
		to = shardA.name
	}
	metav1.SetMetaDataLabel(&c.ObjectMeta, shardLabel, to)
	if _, err := clusters.Update(background, c, metav1.UpdateOptions{}); err == nil {
		w.trace.note(people, fmt.Sprintf("move %s to shard %s", c.Name, to))
	}
}

// holders finds a hub that publishes works of a cluster that it does not hold. It is safe for concurrent use.
type holders struct {
	violations *violations

	mu    sync.Mutex
	hubs  map[string]string // by cluster that is registered; empty: no hub holds it
	until time.Time         // until when hubs may not know yet that a holder is one of a backup
}

// hubWrite follows a write to the hub's API.
func (h *holders) hubWrite(w kubeapi.Write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.User == kubeapi.RestoredBy {
		h.until = time.Now().Add(30 * time.Second)
	}
	switch {
	case w.Kind.Kind != "ManagedCluster":
	case w.After == nil:
		delete(h.hubs, w.Before.GetName())
	default:
		h.hubs[w.After.GetName()] = w.After.GetAnnotations()[clusterv1.HubAnnotationKey]
	}
}

// published is told that a hub has published a message.
func (h *holders) published(hub, topic string, e cloudevents.Event) {
	_, cluster, _ := wire.TopicSender(topic)
	h.mu.Lock()
	defer h.mu.Unlock()
	holder, registered := h.hubs[string(cluster)]
	if registered && holder != hub && !strings.Contains(e.Type(), ".status.") && time.Now().After(h.until) {
		h.violations.add(fmt.Sprintf("%s publishes a work of %s, which %q holds", hub, cluster, holder))
	}
}

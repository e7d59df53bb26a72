package sim

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/test/sim/kubeapi"
)

// hubLease is the Lease by which the replicas of the hub exclude each other.
const hubLease = "work-hub-" + string(hubSource)

// term finds a replica of the hub that publishes while another one holds the Lease. It is safe for concurrent use.
type term struct {
	violations *violations

	mu     sync.Mutex
	holder string    // of the Lease; empty: not known
	until  time.Time // until when replicas may not know yet that the Lease is one of a backup
}

// hubWrite follows a write to the hub's API.
func (t *term) hubWrite(w kubeapi.Write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.User == kubeapi.RestoredBy {
		t.until = time.Now().Add(30 * time.Second)
	}
	if w.Kind.Kind == "Lease" && w.After != nil && w.After.GetName() == hubLease {
		t.holder, _, _ = unstructured.NestedString(w.After.Object, "spec", "holderIdentity")
	}
}

// published is told that a replica has published a message.
func (t *term) published(identity string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != "" && t.holder != identity && time.Now().After(t.until) {
		t.violations.add(fmt.Sprintf("%s publishes while %s leads", identity, t.holder))
	}
}

package direct

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/security/sourcekeys"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// reasonOf returns the failure of an event that is not sent, and what to do.
func reasonOf(err error) (failure, hint string) {
	if closed, ok := errors.AsType[*sealing.NoKeyError](err); ok {
		return "it is not sent in clear, and can not be sealed: " + closed.Error(),
			fmt.Sprintf("put its public key into the directory of --seal-keys: %s.pub", closed.Cluster)
	}
	return err.Error(), mqtt.Advice(err)
}

// verifier decides which events of agents count. Its zero value believes all. It is safe for concurrent use.
type verifier struct {
	keys   *sourcekeys.Keys
	window signing.Window

	mu      sync.Mutex
	newest  map[types.UID]int64                        // when the newest status of each work was signed, in microseconds
	refused map[wire.ClusterName]*signing.RefusedError // the last one in the name of each cluster
}

func newVerifier(keys *sourcekeys.Keys, started time.Time) *verifier {
	return &verifier{
		keys: keys, window: signing.Window{MaxAge: keys.SignatureMaxAge, Started: started},
		newest: map[types.UID]int64{}, refused: map[wire.ClusterName]*signing.RefusedError{},
	}
}

// believes reports whether m counts, whose topic is that of cluster: it has a signature of its agent, made
// since this run started, and if it is the status of a work that is asked for, none before the last one.
func (v *verifier) believes(m mqtt.Received, cluster wire.ClusterName, uid types.UID, now time.Time) bool {
	if v.keys.TrustedAgents == nil {
		return true
	}
	at, err := v.keys.TrustedAgents.Verify(m.Event, cluster)
	v.mu.Lock()
	defer v.mu.Unlock()
	refused := &signing.RefusedError{Reason: signing.Invalid}
	if err == nil {
		reason := v.window.Decide(at, v.newest[uid], now)
		if reason == "" {
			if uid != "" {
				v.newest[uid] = at.UnixMicro()
			}
			return true
		}
		refused.Reason = reason
	}
	errors.As(err, &refused)
	v.refused[cluster] = refused
	return false
}

// hint returns what is to be done about refused events in the name of a cluster, empty if there was none.
func (v *verifier) hint(cluster wire.ClusterName) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	refused := v.refused[cluster]
	if refused == nil {
		return ""
	}
	return fmt.Sprintf("what came in the name of %s was refused, %s: compare --signing-key of its agent with --trusted-agents", cluster, refused)
}

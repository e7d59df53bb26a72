package direct

import (
	"errors"
	"fmt"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// Keys are those that events are signed and sealed with, and those of agents. The zero value does neither,
// and believes every event.
type Keys struct {
	// Sign signs events, for agents that demand it. Optional.
	Sign func(*cloudevents.Event) error
	// Seal seals specs and dry runs. Optional.
	Seal *sealing.Sealer
	// TrustedAgents are the keys that agents sign with: no other event of an agent counts. Optional.
	TrustedAgents *signing.TrustedAgents
	// SignatureMaxAge is how old a signature of an agent may be, and how far ahead; 0: no limit.
	SignatureMaxAge time.Duration
}

// event returns the event of m, sealed and signed as there are keys, and the topic on which cluster receives
// it. Its error is a [*sealing.NoKeyError] if the cluster must not get it in clear.
func (k *Keys) event(m wire.Message, topics wire.SourceTopics, cluster wire.ClusterName, now time.Time) (topic string, event cloudevents.Event, err error) {
	if topic, err = topics.Specs(cluster); err != nil {
		return topic, event, err
	}
	event, err = wire.Encode(m, now)
	if err == nil {
		err = k.Seal.Seal(&event)
	}
	if err == nil && k.Sign != nil {
		err = k.Sign(&event)
	}
	return topic, event, err
}

// noKey returns the failure and the hint of an event that is not sent for lack of a key; false for others.
func noKey(err error) (failure, hint string, ok bool) {
	closed, ok := errors.AsType[*sealing.NoKeyError](err)
	if !ok {
		return "", "", false
	}
	return "it is not sent in clear, and can not be sealed: " + closed.Error(),
		fmt.Sprintf("put its public key into the directory of --seal-keys: %s.pub", closed.Cluster), true
}

// verifier decides which events of agents count. Its zero value believes all. It is safe for concurrent use.
type verifier struct {
	keys   *Keys
	window signing.Window

	mu      sync.Mutex
	newest  map[types.UID]int64                        // when the newest status of each work was signed, in microseconds
	refused map[wire.ClusterName]*signing.RefusedError // the last one in the name of each cluster
}

func newVerifier(keys *Keys, started time.Time) *verifier {
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

package delivery

import (
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/klauspost/compress/s2"
	"k8s.io/utils/lru"

	"github.com/workwire/workwire/pkg/wire"
)

const (
	// minSpecDelta is the size in bytes of the data from which a spec may be sent as a delta.
	minSpecDelta = 2048
	// maxContents bounds the bytes of publishedContents.
	maxContents = 16 << 20
)

// publishedContents are the data of large specs that were published last, compressed, by content hash:
// works of one template share one. It is safe for concurrent use.
type publishedContents struct {
	byHash *lru.Cache // of []byte

	mu   sync.Mutex // of who keeps one
	size int        // of all, in bytes
}

func newPublishedContents() *publishedContents {
	p := &publishedContents{}
	p.byHash = lru.NewWithEvictionFunc(0, func(_ lru.Key, compressed any) { p.size -= len(compressed.([]byte)) })
	return p
}

// keep keeps data, which has this hash and was published, in place of the contents that were not used
// for the longest time.
func (p *publishedContents) keep(hash string, data []byte) {
	if hash == "" || len(data) < minSpecDelta {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.byHash.Get(hash); ok {
		return
	}
	compressed := s2.Encode(nil, data)
	p.byHash.Add(hash, compressed)
	for p.size += len(compressed); p.size > maxContents; {
		p.byHash.RemoveOldest()
	}
}

// get returns the data with this hash, nil if it is not kept.
func (p *publishedContents) get(hash string) []byte {
	compressed, ok := p.byHash.Get(hash)
	if !ok {
		return nil
	}
	data, err := s2.Decode(nil, compressed.([]byte))
	if err != nil {
		return nil
	}
	return data
}

// smaller returns whole, the event of spec, or its difference from the spec with the content hash base
// if that is known, the agent of the cluster reads deltas, and it has less than half of the size.
func (e *Engine) smaller(spec *wire.Spec, base string, whole cloudevents.Event) (event cloudevents.Event, delta bool) {
	data := whole.Data()
	if base == "" || len(data) < minSpecDelta || !e.agentAccepts(spec.Cluster).Deltas {
		return whole, false
	}
	before := e.contents.get(base)
	if before == nil {
		return whole, false
	}
	difference, err := wire.NewSpecDelta(spec, data, before)
	if err != nil {
		return whole, false
	}
	if event, err = wire.Encode(difference, whole.Time()); err != nil || 2*len(event.Data()) > len(data) {
		return whole, false
	}
	e.metrics.specDeltas.Inc()
	return event, true
}

// agentAccepts returns what the agent of a cluster can read.
func (e *Engine) agentAccepts(cluster wire.ClusterName) wire.Accepts {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.core.clusters[cluster]; ok {
		return c.accepts
	}
	return wire.Accepts{}
}

package delivery

import (
	"container/list"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/klauspost/compress/s2"

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
	mu     sync.Mutex
	byHash map[string]*list.Element
	newest list.List // of content
	size   int       // of all, in bytes
}

type content struct {
	hash       string
	compressed []byte
}

// keep keeps data, which has this hash and was published, in place of the contents that were not used
// for the longest time.
func (p *publishedContents) keep(hash string, data []byte) {
	if hash == "" || len(data) < minSpecDelta {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept, ok := p.byHash[hash]; ok {
		p.newest.MoveToFront(kept)
		return
	}
	if p.byHash == nil {
		p.byHash = map[string]*list.Element{}
	}
	c := content{hash, s2.Encode(nil, data)}
	p.byHash[hash] = p.newest.PushFront(c)
	for p.size += len(c.compressed); p.size > maxContents; {
		oldest := p.newest.Remove(p.newest.Back()).(content)
		delete(p.byHash, oldest.hash)
		p.size -= len(oldest.compressed)
	}
}

// get returns the data with this hash, nil if it is not kept.
func (p *publishedContents) get(hash string) []byte {
	p.mu.Lock()
	kept, ok := p.byHash[hash]
	if ok {
		p.newest.MoveToFront(kept)
	}
	p.mu.Unlock()
	if !ok {
		return nil
	}
	data, err := s2.Decode(nil, kept.Value.(content).compressed)
	if err != nil {
		return nil
	}
	return data
}

// smaller returns whole, the event of spec, or its difference from the spec with the content hash base
// if that is known, the agent of the cluster reads deltas, and it has less than half of the size.
func (e *Engine) smaller(spec *wire.Spec, base string, whole cloudevents.Event) (event cloudevents.Event, delta bool) {
	data := whole.Data()
	if base == "" || len(data) < minSpecDelta || !e.agentAccepts(spec.Cluster).SpecDeltas {
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

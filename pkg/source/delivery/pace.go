package delivery

import (
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// The pace of the questions of one cluster: its resync requests and digests. An agent asks a few times when it
// connects, and sends a digest a minute. Further questions are merged and wait.
const (
	questionBurst    = 10
	questionInterval = 2 * time.Second
)

// paces are the paces of clusters. A cluster that has asked nothing for a while is not in it.
type paces struct {
	mu    sync.Mutex
	full  map[wire.ClusterName]time.Time // when the cluster may ask questionBurst times again
	swept time.Time
}

// allow reports whether a question of a cluster may be answered now, and counts it if so. A call costs O(1),
// and one call in the time of a burst O(n) for n clusters that have asked in that time.
func (p *paces) allow(cluster wire.ClusterName, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full == nil || now.Sub(p.swept) > questionBurst*questionInterval {
		p.sweep(now)
	}
	full := p.full[cluster]
	if full.Before(now) {
		full = now
	}
	if full = full.Add(questionInterval); full.Sub(now) > questionBurst*questionInterval {
		return false
	}
	p.full[cluster] = full
	return true
}

// sweep forgets the clusters that may ask at full burst. p.mu must be held.
func (p *paces) sweep(now time.Time) {
	kept := make(map[wire.ClusterName]time.Time)
	for cluster, full := range p.full {
		if full.After(now) {
			kept[cluster] = full
		}
	}
	p.full, p.swept = kept, now
}

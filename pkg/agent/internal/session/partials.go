package session

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

const (
	// maxPartial is the maximum number of works that wait to be requested of one source in partial requests.
	maxPartial = 20_000
	// partialTurn is the number of works that are requested before it is the turn of another source.
	partialTurn = 1_000
)

// partials are the works to request in partial requests, by source: the newest entry of each. Its zero value is
// empty. It is safe for concurrent use.
type partials struct {
	mu      sync.Mutex
	waiting map[wire.SourceID]map[types.UID]wire.SpecVersion
}

// add adds works of source. It returns false if they are too many, and none of that source wait any more. Its cost
// is linear in versions.
func (p *partials) add(source wire.SourceID, versions []wire.SpecVersion) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		p.waiting = map[wire.SourceID]map[types.UID]wire.SpecVersion{}
	}
	of := p.waiting[source]
	if of == nil {
		of = map[types.UID]wire.SpecVersion{}
		p.waiting[source] = of
	}
	for _, version := range versions {
		if of[version.UID] = version; len(of) > maxPartial {
			delete(p.waiting, source)
			return false
		}
	}
	return true
}

// take removes and returns some of the works of source, and whether others wait.
func (p *partials) take(source wire.SourceID) (versions []wire.SpecVersion, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.waiting[source]
	for uid, version := range of {
		if len(versions) == partialTurn {
			return versions, true
		}
		versions = append(versions, version)
		delete(of, uid)
	}
	delete(p.waiting, source)
	return versions, false
}

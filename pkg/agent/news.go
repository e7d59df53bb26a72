package agent

import (
	"sync"

	"github.com/workwire/workwire/pkg/agent/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// news is what watches tell of a work while a pass over it is under way. Most of
// it is the echo of what that pass writes, and comes before the answer to the write
// as often as not: the pass tells them apart when it ends, which saves the next
// one. It is safe for concurrent use.
type news struct {
	mu   sync.Mutex
	held map[string]map[object.Ref]string // of works under way: the newest resource versions
}

func newNews() *news { return &news{held: map[string]map[object.Ref]string{}} }

// begin holds what comes for name from now on.
func (n *news) begin(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[name] = nil
}

// hold keeps the version at which an object has changed, if a pass over name is
// under way; else it reports false.
func (n *news) hold(name string, ref object.Ref, version string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	held, underWay := n.held[name]
	if !underWay {
		return false
	}
	if held == nil {
		held = map[object.Ref]string{}
		n.held[name] = held
	}
	if before, ok := held[ref]; !ok || object.Newer(version, before) {
		held[ref] = version
	}
	return true
}

// end gives what came for name since begin.
func (n *news) end(name string) map[object.Ref]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	held := n.held[name]
	delete(n.held, name)
	return held
}

// objectChanged has a work looked at because one of its objects has changed, now
// or, while that is being done, if it has not seen that by itself.
func (a *Agent) objectChanged(name string, ref object.Ref, version string) {
	if !a.news.hold(name, ref, version) {
		a.queue.Add(name)
	}
}

// recordChanged does the same for a change of the work's record.
func (a *Agent) recordChanged(name, version string) {
	a.objectChanged(name, recordRef(name), version)
}

// recordRef names a record as an object.
func recordRef(name string) object.Ref {
	return object.Ref{GroupVersionResource: workv1.GroupVersion.WithResource("appliedmanifestworks"), Name: name}
}

// missed says whether news tells of something later than what the pass has seen
// or written.
func (u *under) missed(news map[object.Ref]string) bool {
	if len(news) == 0 {
		return false
	}
	seen := make(map[object.Ref]string, len(u.manifests)+1)
	if u.record != nil {
		seen[recordRef(u.name)] = u.record.ResourceVersion
	}
	for i := range u.outcomes {
		if live := u.liveOf(i); live != nil {
			seen[u.manifests[i].Ref] = live.GetResourceVersion()
		}
	}
	for ref, version := range news {
		if have, ok := seen[ref]; !ok || object.Newer(version, have) {
			return true
		}
	}
	return false
}

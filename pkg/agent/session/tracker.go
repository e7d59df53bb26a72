package session

import (
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

// maxRetryInterval is the longest wait before a silent source is asked again.
const maxRetryInterval = 10 * time.Minute

// resyncTracker remembers which sources have answered a resync request since the agent started.
// Each request names the probe, a work that no source has. By the protocol the answer to it is its
// deletion, so that a source which has no works, or no news, answers as well (docs/protocol.md,
// Spec resync). A resyncTracker is safe for concurrent use.
type resyncTracker struct {
	probe types.UID

	mu       sync.Mutex
	requests map[wire.SourceID]requests
	answered map[wire.SourceID]struct{}
}

// requests are the requests to a source.
type requests struct {
	retries int
	last    time.Time
}

func newResyncTracker() *resyncTracker {
	return &resyncTracker{
		probe: types.UID(uuid.NewString()), requests: map[wire.SourceID]requests{}, answered: map[wire.SourceID]struct{}{},
	}
}

// noteRequest notes a request to source. It returns what the request must name in addition to the
// works in the inbox.
func (t *resyncTracker) noteRequest(source wire.SourceID) []wire.SpecVersion {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests[source] = requests{retries: t.requests[source].retries, last: time.Now()}
	if _, done := t.answered[source]; done {
		return nil
	}
	return []wire.SpecVersion{{UID: t.probe}}
}

// retryAfter returns how long to wait before a silent source is asked again; 0 means now, and
// counts as a retry. A request is lost if the source was not connected. The wait starts with first
// and doubles.
func (t *resyncTracker) retryAfter(source wire.SourceID, first time.Duration, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := t.requests[source]
	wait := min(first<<min(asked.retries, 10), maxRetryInterval)
	if left := asked.last.Add(wait).Sub(now); left > 0 {
		return left
	}
	t.requests[source] = requests{retries: asked.retries + 1, last: now}
	return 0
}

// noteAnswer notes spec if it is an answer, and reports whether it is the first one of its source.
func (t *resyncTracker) noteAnswer(spec *wire.Spec) bool {
	if spec.UID != t.probe || !spec.IsDeletion() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, before := t.answered[spec.Source]
	t.answered[spec.Source] = struct{}{}
	return !before
}

// answeredBy reports whether source has answered; any source if it is empty.
func (t *resyncTracker) answeredBy(source wire.SourceID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if source == "" {
		return len(t.answered) > 0
	}
	_, done := t.answered[source]
	return done
}

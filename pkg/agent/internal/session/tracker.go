package session

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

// maxRetryInterval is the longest wait before a silent source is asked again.
const maxRetryInterval = 10 * time.Minute

// resyncTracker remembers which sources have answered a resync request since the agent started, and
// which requests are not answered. Each request names a probe, a work that no source has. By the
// protocol the answer to it is its deletion, so that a source which has no works, or no news,
// answers as well (docs/protocol.md, Spec resync). A resyncTracker is safe for concurrent use.
type resyncTracker struct {
	prefix string // of all probes

	mu        sync.Mutex
	last      uint64                     // number of the last probe
	questions map[wire.SourceID]question // not answered
	answered  map[wire.SourceID]struct{}
}

// question is a request that is not answered.
type question struct {
	probe   types.UID
	retries int
	last    time.Time
}

// probeDigits is the number of digits at the end of a UUID that tell probes apart.
const probeDigits = 12

func newResyncTracker() *resyncTracker {
	id := uuid.NewString()
	return &resyncTracker{
		prefix: id[:len(id)-probeDigits], questions: map[wire.SourceID]question{}, answered: map[wire.SourceID]struct{}{},
	}
}

// open opens a new question to source, which replaces the open one.
func (t *resyncTracker) open(source wire.SourceID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.questions[source] = question{probe: types.UID(fmt.Sprintf("%s%0*x", t.prefix, probeDigits, t.last)), last: now}
}

// isOpen reports whether a question to source is not answered yet.
func (t *resyncTracker) isOpen(source wire.SourceID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, open := t.questions[source]
	return open
}

// isOverdue reports whether an open question to source was asked longer than interval ago.
func (t *resyncTracker) isOverdue(source wire.SourceID, interval time.Duration, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q, open := t.questions[source]
	return open && now.Sub(q.last) > interval
}

// probeOf returns what the request must name in addition to the works in the inbox.
func (t *resyncTracker) probeOf(source wire.SourceID) []wire.SpecVersion {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q, open := t.questions[source]; open {
		return []wire.SpecVersion{{UID: q.probe, Probe: true}}
	}
	return nil // it was answered just now
}

// repeat reports whether the open question to source is to be repeated now, and counts that as a
// retry. wait is how long to wait until the next call, 0 if there is no question. The wait starts
// with first and doubles.
func (t *resyncTracker) repeat(source wire.SourceID, first time.Duration, now time.Time) (again bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q, open := t.questions[source]
	if !open {
		return false, 0
	}
	if left := q.last.Add(retryInterval(first, q.retries)).Sub(now); left > 0 {
		return false, left
	}
	q.retries++
	q.last = now
	t.questions[source] = q
	return true, retryInterval(first, q.retries)
}

func retryInterval(first time.Duration, retries int) time.Duration {
	return min(first<<min(retries, 10), maxRetryInterval)
}

// isProbe reports whether spec is the answer to a request.
func (t *resyncTracker) isProbe(spec *wire.Spec) bool {
	return spec.IsDeletion() && strings.HasPrefix(string(spec.UID), t.prefix)
}

// close closes the question that spec answers.
func (t *resyncTracker) close(spec *wire.Spec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeLocked(spec)
}

func (t *resyncTracker) closeLocked(spec *wire.Spec) {
	for _, source := range []wire.SourceID{spec.Source, ""} {
		if t.questions[source].probe == spec.UID {
			delete(t.questions, source)
		}
	}
}

// noteAnswer closes the question that spec answers, and reports whether spec is the first answer of
// its source.
func (t *resyncTracker) noteAnswer(spec *wire.Spec) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeLocked(spec)
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

package applied

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	// maxWait is how long a status that may wait is not written because others change.
	maxWait = time.Minute
	// minDraftDelay and maxDraftDelay bound the wait after a write that failed. It doubles.
	minDraftDelay = 100 * time.Millisecond
	maxDraftDelay = time.Minute
)

// content is what [Client.UpdateStatus] writes.
type content struct {
	list        []workv1.AppliedManifestResourceMeta
	transitions string
}

func (c *content) equal(other content) bool {
	return c.transitions == other.transitions && slices.Equal(c.list, other.list)
}

// draft is a status that is not written yet. Guarded by the mutex of its drafts.
type draft struct {
	content
	uid       types.UID     // of the AppliedManifestWork
	since     time.Time     // when it was first put off
	failures  int           // writes in a row
	notBefore time.Time     // after a failure
	writing   chan struct{} // closed at the end of a write in progress; nil: there is none
	echo      string        // newest version that the watch showed while it was being written
}

// dueAt returns when to write d: once nothing has been put off for quiet, last being the last time
// that something was, but no later than maxWait.
func (d *draft) dueAt(last time.Time, quiet time.Duration) time.Time {
	at := last.Add(quiet)
	if latest := d.since.Add(maxWait); latest.Before(at) {
		at = latest
	}
	if d.notBefore.After(at) {
		return d.notBefore
	}
	return at
}

// failed has d wait before the next attempt.
func (d *draft) failed(now time.Time) {
	d.notBefore = now.Add(min(minDraftDelay<<min(d.failures, 20), maxDraftDelay))
	d.failures++
}

// drafts are the statuses that wait to be written, by the name of their AppliedManifestWork. They
// are safe for concurrent use.
type drafts struct {
	quiet time.Duration
	first chan struct{} // has an element once there is a first draft

	mu     sync.Mutex
	byName map[string]*draft
	last   time.Time // when put was last called with something else
	ending bool      // all are due
}

func newDrafts(quiet time.Duration) *drafts {
	return &drafts{quiet: quiet, first: make(chan struct{}, 1), byName: map[string]*draft{}}
}

// put puts off a status. before is the draft that it replaces, as remove returned it, or nil.
func (s *drafts) put(name string, uid types.UID, c content, before *draft, now time.Time) {
	if before != nil && before.equal(c) { // nothing was applied
		s.restore(name, before)
		return
	}
	next := &draft{content: c, uid: uid, since: now}
	if before != nil {
		next.since = before.since
	}
	s.mu.Lock()
	s.last = now
	s.mu.Unlock()
	s.restore(name, next)
}

// restore puts back what remove returned.
func (s *drafts) restore(name string, d *draft) {
	if d == nil {
		return
	}
	s.mu.Lock()
	first := len(s.byName) == 0
	s.byName[name] = d
	s.mu.Unlock()
	if !first {
		return
	}
	select {
	case s.first <- struct{}{}:
	default:
	}
}

// remove removes the draft of name and returns it, nil if there is none. It waits for the end of a
// write in progress. A draft with another uid is of an AppliedManifestWork that is gone, and is dropped.
func (s *drafts) remove(ctx context.Context, name string, uid types.UID) (*draft, error) {
	for {
		s.mu.Lock()
		d := s.byName[name]
		if d == nil || d.writing == nil {
			delete(s.byName, name)
			s.mu.Unlock()
			if d != nil && d.uid != uid {
				d = nil
			}
			return d, nil
		}
		writing := d.writing
		s.mu.Unlock()
		select {
		case <-writing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// drop forgets the draft of the AppliedManifestWork with that name and UID, which is gone.
func (s *drafts) drop(name string, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byName[name]; d != nil && d.uid == uid {
		delete(s.byName, name)
	}
}

// overlay replaces the status of amw by its draft, if it has one.
func (s *drafts) overlay(amw *workv1.AppliedManifestWork) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byName[amw.Name]; d != nil && d.uid == amw.UID {
		amw.Status.AppliedResources = slices.Clone(d.list)
		amw.Status.Transitions = d.transitions
	}
}

// due returns the names of the drafts to write now, and how long to wait for the next one, 0 if
// there is none.
func (s *drafts) due(now time.Time) (names []string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.byName {
		left := d.dueAt(s.last, s.quiet).Sub(now)
		switch {
		case s.ending || left <= 0:
			names = append(names, name)
		case wait == 0 || left < wait:
			wait = left
		}
	}
	return names, wait
}

// end makes all drafts due from now on, and returns their names.
func (s *drafts) end() []string {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	names, _ := s.due(time.Now())
	return names
}

// beginWrite begins to write the draft of name, if it is due. The caller must call endWrite with the draft
// that it returns, which does not change until then.
func (s *drafts) beginWrite(name string, now time.Time) *draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.byName[name]
	if d == nil || d.writing != nil || !s.ending && now.Before(d.dueAt(s.last, s.quiet)) {
		return nil
	}
	d.writing = make(chan struct{})
	return d
}

// endWrite ends beginWrite: with the version of the AppliedManifestWork that was written, or "" if that failed.
// It returns a version that the watch has shown meanwhile and that is not this write, or "", and how
// many writes in a row have failed.
func (s *drafts) endWrite(name string, d *draft, version string, now time.Time) (missed string, failures int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(d.writing)
	d.writing = nil
	if version == "" {
		d.failed(now)
	} else if s.byName[name] == d {
		delete(s.byName, name)
	}
	missed, d.echo = d.echo, ""
	if missed != "" && version != "" && !object.Newer(missed, version) {
		missed = ""
	}
	return missed, d.failures
}

// hold keeps the version at which the watch has shown name to have changed, if the draft of name is
// being written: endWrite then tells whether it was that write.
func (s *drafts) hold(name, version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.byName[name]
	if d == nil || d.writing == nil || version == "" {
		return false
	}
	if d.echo == "" || object.Newer(version, d.echo) {
		d.echo = version
	}
	return true
}

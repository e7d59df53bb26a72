package source

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	// watchChunk is the maximum number of changes that a watch reads from the history at once.
	watchChunk = 64
	// bookmarkInterval is the interval of bookmarks in a watch that allows them.
	bookmarkInterval = time.Minute
)

// Watch returns the changes of the works that match, and begins like on an API server: after a
// resourceVersion, or with all existing works. It ends with Stop, with ctx, after TimeoutSeconds,
// and with the client's Run. A reader that is more than 4096 changes behind receives an Expired
// error and must list again.
func (m *manifestWorks) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	c := m.client
	if err := c.waitReady(ctx); err != nil {
		return nil, err
	}
	match, err := newMatcher(opts)
	if err != nil {
		return nil, err
	}
	w := &watcher{memory: c.memory, results: make(chan watch.Event)}
	w.match = func(work *workv1.ManifestWork) bool {
		return (m.namespace == "" || work.Namespace == m.namespace) && match(work)
	}
	if err := w.setStart(m, opts); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("source %q: Run has ended", c.config.SourceID))
	}
	if opts.TimeoutSeconds != nil {
		ctx, w.cancel = context.WithTimeout(ctx, time.Duration(*opts.TimeoutSeconds)*time.Second)
	} else {
		ctx, w.cancel = context.WithCancel(ctx)
	}
	c.watchers[w] = struct{}{}
	c.watching.Go(func() {
		w.run(ctx)
		close(w.results)
		w.cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, w)
	})
	return w, nil
}

// watcher is one watch. Its goroutine reads the memory's history.
type watcher struct {
	memory          *memory
	match           func(*workv1.ManifestWork) bool
	initial         []*workv1.ManifestWork // sent first, as ADDED
	initialBookmark bool                   // sent after initial
	bookmarks       bool
	version         int64 // of the last change read
	position        int64 // in the history, of the next change

	results chan watch.Event
	cancel  context.CancelFunc
}

// Stop ends the watch.
func (w *watcher) Stop() { w.cancel() }

// ResultChan returns the channel of events. It is closed when the watch ends.
func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

// setStart sets what the watch begins with.
func (w *watcher) setStart(m *manifestWorks, opts metav1.ListOptions) error {
	path := field.NewPath("sendInitialEvents")
	explicit := opts.SendInitialEvents != nil
	if explicit && opts.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "",
			field.ErrorList{field.Forbidden(path, "it requires resourceVersionMatch NotOlderThan")})
	}
	requested, err := m.client.parseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return err
	}
	w.bookmarks = opts.AllowWatchBookmarks
	works, version, position := w.memory.snapshot(m.namespace)
	w.version, w.position = version, position
	switch {
	case explicit && *opts.SendInitialEvents:
		w.initial, w.initialBookmark = works, w.bookmarks
	case requested == 0 && !explicit:
		w.initial = works
	case requested > 0:
		var known bool
		if w.position, known = w.memory.position(requested); !known {
			return expired(requested)
		}
		w.version = requested
	}
	return nil
}

func expired(version int64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", version))
}

// run sends events until ctx ends or the reader is too slow.
func (w *watcher) run(ctx context.Context) {
	var bookmark <-chan time.Time
	if w.bookmarks {
		ticker := time.NewTicker(bookmarkInterval)
		defer ticker.Stop()
		bookmark = ticker.C
	}
	for _, work := range w.initial {
		if w.match(work) && !w.send(ctx, watch.Added, work.DeepCopy()) {
			return
		}
	}
	w.initial = nil
	if w.initialBookmark && !w.sendBookmark(ctx, map[string]string{metav1.InitialEventsAnnotationKey: "true"}) {
		return
	}
	for {
		changes, ok, version, changed := w.memory.changesAfter(w.position, watchChunk)
		if !ok {
			w.send(ctx, watch.Error, &expired(w.version).ErrStatus)
			return
		}
		for _, ch := range changes {
			w.version = ch.version
			w.position++
			if kind, work, ok := ch.watchEvent(w.match); ok && !w.send(ctx, kind, work.DeepCopy()) {
				return
			}
		}
		if len(changes) > 0 {
			continue
		}
		w.version = version
		select {
		case <-changed:
		case <-bookmark:
			if !w.sendBookmark(ctx, nil) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// send reports whether the event was received before ctx ended.
func (w *watcher) send(ctx context.Context, kind watch.EventType, object runtime.Object) bool {
	select {
	case w.results <- watch.Event{Type: kind, Object: object}:
		return true
	case <-ctx.Done():
		return false
	}
}

// sendBookmark sends the version of the last change read.
func (w *watcher) sendBookmark(ctx context.Context, annotations map[string]string) bool {
	bookmark := &workv1.ManifestWork{}
	bookmark.ResourceVersion, bookmark.Annotations = strconv.FormatInt(w.version, 10), annotations
	return w.send(ctx, watch.Bookmark, bookmark)
}

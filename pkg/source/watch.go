package source

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	// watchChunk is how many changes a watch takes out of the history at a time.
	watchChunk = 64
	// bookmarkEvery is how often a watch that allows bookmarks gets one.
	bookmarkEvery = time.Minute
)

// Watch gives the changes of the works that match, beginning as on an API server:
// after a resourceVersion, or with all works that there are. It ends with Stop, with
// ctx, after TimeoutSeconds, and with the client's Run. A reader that falls behind
// more than 4096 changes gets an Expired error and must list again.
func (m *manifestWorks) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	c := m.client
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	w := &watcher{store: c.store, results: make(chan watch.Event), stop: make(chan struct{}), ending: c.ending}
	match, err := selects(opts)
	if err != nil {
		return nil, err
	}
	w.match = func(work *workv1.ManifestWork) bool {
		return (m.namespace == "" || work.Namespace == m.namespace) && match(work)
	}
	if err := w.start(m, opts); err != nil {
		return nil, err
	}
	var timeout <-chan time.Time
	if opts.TimeoutSeconds != nil {
		timeout = time.After(time.Duration(*opts.TimeoutSeconds) * time.Second)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("source %q: Run has ended", c.config.SourceID))
	}
	c.watching.Go(func() { w.run(ctx, timeout) })
	return w, nil
}

// watcher is one watch. Its goroutine reads the store's history from version on.
type watcher struct {
	store     *store
	match     func(*workv1.ManifestWork) bool
	initial   []*workv1.ManifestWork // to be sent as added first
	announce  bool                   // then the bookmark that says so
	bookmarks bool
	version   int64 // of the last change seen

	results chan watch.Event
	stop    chan struct{}
	once    sync.Once // closes stop
	ending  <-chan struct{}
}

// Stop ends the watch.
func (w *watcher) Stop() { w.once.Do(func() { close(w.stop) }) }

// ResultChan gives the events; it is closed at the end of the watch.
func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

// start decides where the watch begins.
func (w *watcher) start(m *manifestWorks, opts metav1.ListOptions) error {
	path := field.NewPath("sendInitialEvents")
	explicit := opts.SendInitialEvents != nil
	if explicit && opts.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "",
			field.ErrorList{field.Forbidden(path, "it goes with resourceVersionMatch NotOlderThan only")})
	}
	asked, err := m.client.atLeast(opts.ResourceVersion)
	if err != nil {
		return err
	}
	w.bookmarks = opts.AllowWatchBookmarks
	works, version := w.store.snapshot(m.namespace)
	w.version = version
	switch {
	case explicit && *opts.SendInitialEvents:
		w.initial, w.announce = works, w.bookmarks
	case asked == 0 && !explicit:
		w.initial = works
	case asked > 0:
		w.version = asked
		w.store.mu.RLock()
		_, ok := w.store.history.after(asked, 0)
		w.store.mu.RUnlock()
		if !ok {
			return expired(asked)
		}
	}
	return nil
}

func expired(version int64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", version))
}

// run sends events until the watch ends.
func (w *watcher) run(ctx context.Context, timeout <-chan time.Time) {
	defer close(w.results)
	var bookmark <-chan time.Time
	if w.bookmarks {
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		bookmark = ticker.C
	}
	send := func(kind watch.EventType, work *workv1.ManifestWork) bool {
		select {
		case w.results <- watch.Event{Type: kind, Object: work.DeepCopy()}:
			return true
		case <-w.stop:
		case <-w.ending:
		case <-timeout:
		case <-ctx.Done():
		}
		return false
	}
	for _, work := range w.initial {
		if w.match(work) && !send(watch.Added, work) {
			return
		}
	}
	w.initial = nil
	if w.announce && !send(watch.Bookmark, w.bookmark(true)) {
		return
	}
	for {
		w.store.mu.RLock()
		changes, ok := w.store.history.after(w.version, watchChunk)
		changed := w.store.changed
		w.store.mu.RUnlock()
		if !ok {
			w.fail(ctx, timeout)
			return
		}
		for _, ch := range changes {
			w.version++
			if kind, work, ok := ch.event(w.match); ok && !send(kind, work) {
				return
			}
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-bookmark:
			if !send(watch.Bookmark, w.bookmark(false)) {
				return
			}
		case <-w.stop:
			return
		case <-w.ending:
			return
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
}

// fail tells a reader that is too slow.
func (w *watcher) fail(ctx context.Context, timeout <-chan time.Time) {
	status := expired(w.version).ErrStatus
	select {
	case w.results <- watch.Event{Type: watch.Error, Object: &status}:
	case <-w.stop:
	case <-w.ending:
	case <-timeout:
	case <-ctx.Done():
	}
}

// bookmark says up to where the watch has come; initial marks the end of the
// works that there were at its start.
func (w *watcher) bookmark(initial bool) *workv1.ManifestWork {
	mark := &workv1.ManifestWork{}
	mark.ResourceVersion = strconv.FormatInt(w.version, 10)
	if initial {
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return mark
}

package kubeapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

func gr(o *Object) schema.GroupResource {
	return schema.GroupResource{Group: o.GroupVersionKind().Group, Resource: o.GetKind()}
}

// watcher is one watch. Its goroutine owns it.
type watcher struct {
	server   *Server
	request  *http.Request
	target   target
	selected func(*Object) bool
	faults   Faults
	out      io.Writer
	version  int64 // up to which the client knows
	initial  []*Object
	bookmark bool // say when the initial objects have ended
	broken   <-chan struct{}
}

// watch answers a request for a watch.
func (s *Server) watch(r *http.Request, t target, faults Faults) (*http.Response, error) {
	selected, failure := selector(r)
	if failure != nil {
		return refusal(r, failure), nil
	}
	query := r.URL.Query()
	w := &watcher{server: s, request: r, target: t, selected: selected, faults: faults, bookmark: query.Get("sendInitialEvents") == "true"}
	version := query.Get("resourceVersion")
	s.mu.Lock()
	w.broken, w.version = s.broken, s.store.version
	from, _ := strconv.ParseInt(version, 10, 64)
	if w.bookmark || from == 0 {
		w.version = w.past(version, from)
		w.initial = s.store.past(t.kind.GroupResource(), t.namespace, w.version)
	} else {
		w.version = from
	}
	_, known := s.store.since(w.version)
	s.mu.Unlock()
	if !known {
		return refusal(r, apierrors.NewResourceExpired("too old resource version")), nil
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
	}
	reader, writer := io.Pipe()
	w.out = writer
	go func() {
		defer cancel()
		_ = writer.CloseWithError(w.run(ctx))
	}()
	context.AfterFunc(ctx, func() { _ = writer.Close() }) // a reader may be slow
	response := answer(r, http.StatusOK, nil)
	response.ContentLength, response.Body = -1, reader
	return response, nil
}

// past returns the version as of which the initial objects are: with a version, the client allows all that is not older.
func (w *watcher) past(version string, from int64) int64 {
	now := w.server.store.version
	if version == "" || w.faults.Behind == nil {
		return now
	}
	return min(now, max(from, w.server.store.compacted, now-w.faults.Behind(w.target.kind.Resource)))
}

// stuck waits while the watch is, and reports whether it may go on.
func (w *watcher) stuck(ctx context.Context) (goesOn bool, err error) {
	if w.faults.Stuck == nil {
		return true, nil
	}
	for stuck := w.faults.Stuck(w.target.kind.Resource, true); stuck != nil; stuck = w.faults.Stuck(w.target.kind.Resource, true) {
		select {
		case <-stuck:
		case <-w.broken:
			return false, io.ErrUnexpectedEOF
		case <-ctx.Done():
			return false, nil
		}
	}
	return true, nil
}

// run sends events until ctx ends, the watch is broken, or the client goes. A watch ends without an error.
func (w *watcher) run(ctx context.Context) error {
	if goesOn, err := w.stuck(ctx); !goesOn {
		return err
	}
	for _, o := range w.initial {
		if w.selected(o) {
			if err := w.send(watch.Added, o); err != nil {
				return err
			}
		}
	}
	if w.bookmark {
		if err := w.sendBookmark(); err != nil {
			return err
		}
	}
	for {
		if goesOn, err := w.stuck(ctx); !goesOn {
			return err
		}
		w.server.mu.Lock()
		changes, known := w.server.store.since(w.version)
		changed := w.server.store.next(w.target.kind.GroupResource())
		w.server.mu.Unlock()
		if !known {
			status := apierrors.NewResourceExpired("the history was compacted").Status()
			return w.write(watch.Error, encode(status))
		}
		for _, c := range changes {
			if err := w.dispatch(c); err != nil {
				return nil //nolint:nilerr // the client has gone, or ctx has ended
			}
			w.version = c.version
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-w.broken:
			return io.ErrUnexpectedEOF
		case <-ctx.Done():
			return nil
		}
	}
}

// dispatch sends a change if it concerns the watch.
func (w *watcher) dispatch(c change) error {
	if c.key.resource != w.target.kind.GroupResource() || w.target.namespace != "" && c.key.namespace != w.target.namespace {
		return nil
	}
	before, after := w.selected(c.before), w.selected(c.after)
	if !before && !after {
		return nil
	}
	if w.faults.Lag != nil {
		if err := sleep(w.request, w.faults.Lag(w.target.kind.Resource)); err != nil {
			return err
		}
	}
	switch {
	case after && before:
		return w.send(watch.Modified, c.after)
	case after:
		return w.send(watch.Added, c.after)
	}
	last := c.after // it is not selected any more
	if last == nil {
		last = c.before
	}
	gone := last.DeepCopy()
	setVersion(gone, c.version)
	return w.send(watch.Deleted, gone)
}

func (w *watcher) send(event watch.EventType, o *Object) error {
	return w.write(event, w.server.asRequested(w.request, o))
}

// write sends an event as the API server does, its type first.
func (w *watcher) write(event watch.EventType, object []byte) error {
	_, err := fmt.Fprintf(w.out, "{\"type\":%q,\"object\":%s}\n", event, object)
	return err
}

// sendBookmark says that the initial objects have ended (KEP-3157).
func (w *watcher) sendBookmark() error {
	o := &Object{}
	o.SetAPIVersion(w.target.kind.GroupVersion().String())
	o.SetKind(w.target.kind.Kind)
	o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	setVersion(o, w.version)
	return w.send(watch.Bookmark, o)
}

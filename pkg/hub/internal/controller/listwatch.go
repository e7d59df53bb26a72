package controller

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listWatch reads one resource for its informer. Every full read is consistent: it returns all that
// was written before it began, whichever API server answers.
type listWatch struct {
	informers *Informers
	resource  schema.GroupResource
	api       *cache.ListWatch

	mu      sync.Mutex
	current watch.Interface // guarded by mu: the last watch, perhaps ended; nil before the first
	restart bool            // guarded by mu: the next request must be a full read
	woken   chan struct{}   // guarded by mu: closed by wake
}

// Pauses between requests that the API server does not answer.
const (
	minRetryPause = 200 * time.Millisecond
	maxRetryPause = 10 * time.Second
)

// listerWatcher returns l for an informer.
func (l *listWatch) listerWatcher() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(
		&cache.ListWatch{ListWithContextFunc: l.List, WatchFuncWithContext: l.Watch}, l.informers.cfg.Client)
}

// List lists for the informer.
func (l *listWatch) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	l.startFullRead(&options)
	return retry(ctx, l, func() (runtime.Object, error) { return l.api.ListWithContextFunc(ctx, options) })
}

// Watch watches for the informer, beginning with all objects if options say so.
func (l *listWatch) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		l.startFullRead(&options)
	} else if l.mustRestart() {
		return nil, apierrors.NewResourceExpired("the cache is read anew")
	}
	w, err := retry(ctx, l, func() (watch.Interface, error) {
		w, err := l.api.WatchFuncWithContext(ctx, options)
		if err == nil && reflect.TypeOf(w) == emptyWatch {
			err = errClosed
		}
		return w, err
	})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current = w; l.restart { // since the request began
		w.Stop()
	}
	return w, nil
}

// retry sends a request until the API server answers. An informer would retry as well, but its
// pauses of up to 30 seconds cannot be ended when the caches must be current.
func retry[R any](ctx context.Context, l *listWatch, request func() (R, error)) (R, error) {
	for delay := minRetryPause; ; delay = min(2*delay, maxRetryPause) {
		woken := l.wakes()
		result, err := request()
		if err == nil {
			l.informers.observeSuccess(l.resource)
			return result, nil
		}
		if status := apierrors.APIStatus(nil); ctx.Err() != nil || errors.As(err, &status) {
			return result, err
		}
		l.informers.observeFailure(l.resource, err)
		awaitFor(ctx, woken, wait.Jitter(delay, 0.2))
	}
}

// wakes returns a channel that wake closes.
func (l *listWatch) wakes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.woken
}

// wake ends the pause before the next request.
func (l *listWatch) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.woken)
	l.woken = make(chan struct{})
}

// client-go returns this in place of an error when the connection is closed before the response.
var (
	emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())
	errClosed  = errors.New("the connection was closed before the response to the watch")
)

// startFullRead makes options those of a consistent read. Informers ask for what some API server
// has in memory, which may be older.
func (l *listWatch) startFullRead(options *metav1.ListOptions) {
	if options.Continue == "" {
		options.ResourceVersion = ""
		if options.SendInitialEvents == nil {
			options.ResourceVersionMatch = ""
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restart = false
}

func (l *listWatch) mustRestart() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restart
}

// readAnew ends the watch, so that the informer replaces all that it holds by a full read. The
// cache stays as it is until then.
func (l *listWatch) readAnew() {
	defer l.wake()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restart = true
	if l.current != nil {
		l.current.Stop()
	}
}

package watchcache

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/pkg/runtime/logging"
)

// failures logs the failures of the lists and watches of a reflector: each cause once, with a
// reminder. It is safe for concurrent use.
type failures struct {
	name      string
	notServed string // what to do then; may be empty
	logger    *slog.Logger

	mu     sync.Mutex
	logged map[string]*logging.Repeated // by verb
}

// source returns list with its failures logged.
func (f *failures) source(list *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			listed, err := list.ListWithContextFunc(ctx, options)
			f.note(ctx, "list", err, time.Now())
			return listed, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			opened, err := list.WatchFuncWithContext(ctx, options)
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // an older API server: the reflector lists
				f.note(ctx, "watch", err, time.Now())
			}
			return opened, err
		},
	}
}

// note notes the result of a request at now.
func (f *failures) note(ctx context.Context, verb string, err error, now time.Time) {
	if ctx.Err() != nil || errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the end of the watch, or a reason to list again
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.logged, verb)
		return
	}
	if f.logged == nil {
		f.logged = map[string]*logging.Repeated{}
	}
	before := f.logged[verb]
	if before == nil {
		before = &logging.Repeated{}
		f.logged[verb] = before
	}
	cause := "no response" // ports differ from attempt to attempt
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		cause = err.Error()
	}
	log, notLogged := before.Failed(cause, now)
	switch {
	case !log:
	case apierrors.IsForbidden(err):
		f.logger.Warn("watch failed, retrying: a right is missing; until the agent has it, changes of these objects are noticed late",
			"resource", f.name, "missingVerb", verb, "notLogged", notLogged, "error", err)
	case apierrors.IsNotFound(err) && f.notServed != "":
		f.logger.Error("watch failed, retrying: the API server does not serve these objects",
			"resource", f.name, "verb", verb, "notLogged", notLogged, "error", err, "advice", f.notServed)
	default:
		f.logger.Warn("watch failed, retrying", "resource", f.name, "verb", verb, "notLogged", notLogged, "error", err)
	}
}

// quiet is the handler of a reflector's own log. What failures logs, the reflector logs at each
// attempt as an error, and therefore for debugging only.
type quiet struct{ slog.Handler }

// Enabled reports whether level, as quiet lowers it, is logged.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, lowered(level))
}

// Handle logs r with its level lowered. Of errors, logr does not ask before whether they are logged.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level = lowered(r.Level); !q.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs returns a quiet handler with attributes.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup returns a quiet handler with a group.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

func lowered(level slog.Level) slog.Level { return min(level, slog.LevelDebug) }

// Package watchedvalues holds the data of the ConfigMaps and Secrets that somebody asks for. Each is listed and
// watched by its name, so that the hub needs the right to read these, and no others.
package watchedvalues

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/pkg/hub/overrides"
	"github.com/workwire/workwire/pkg/runtime/redaction"
)

// Key names a ConfigMap or Secret.
type Key struct {
	Namespace string
	overrides.Reference
}

// Config configures a [Watcher].
type Config struct {
	// Client lists and watches; required.
	Client corev1client.CoreV1Interface
	// Changed is called, by several goroutines, for a user of an object that was read, has changed, or cannot be read; required.
	Changed func(user types.NamespacedName)
	// Logger gets a line about each object that cannot be read; default slog.Default().
	Logger *slog.Logger
}

// Watcher watches what its users ask for. It is safe for concurrent use.
type Watcher struct {
	cfg Config

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // from Start; nil before and after
	group   sync.WaitGroup  // of the goroutines of objects
	objects map[Key]*object // guarded by mu
}

// object is a watched object. Its fields are guarded by Watcher.mu.
type object struct {
	users map[types.NamespacedName]bool
	stop  context.CancelFunc
	known bool              // whether it has been read, or cannot be
	data  map[string]string // nil if it does not exist
	// version is another whenever data or err is.
	version int
	err     error
}

// New returns a Watcher. It starts nothing.
func New(cfg Config) *Watcher {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Watcher{cfg: cfg, objects: make(map[Key]*object)}
}

// Start lets the Watcher watch until ctx ends. The caller must call wait after that, which returns when all that was started
// has ended, and what was known is forgotten.
func (w *Watcher) Start(ctx context.Context) (wait func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx = ctx
	return w.end
}

func (w *Watcher) end() {
	w.mu.Lock()
	w.ctx = nil
	for key, o := range w.objects {
		o.stop()
		delete(w.objects, key)
	}
	w.mu.Unlock()
	w.group.Wait()
}

// Use declares which objects a user needs, in place of those of its last call. What nobody needs any more is no
// longer watched. Before [Watcher.Start] and after its end it does nothing.
func (w *Watcher) Use(user types.NamespacedName, keys []Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx == nil {
		return
	}
	wanted := make(map[Key]bool, len(keys))
	for _, key := range keys {
		wanted[key] = true
		o := w.objects[key]
		if o == nil {
			o = w.start(key)
		}
		o.users[user] = true
	}
	for key, o := range w.objects { // as many as are used on the whole hub, at a change of a set's overrides
		if o.users[user] && !wanted[key] {
			delete(o.users, user)
			if len(o.users) == 0 {
				o.stop()
				delete(w.objects, key)
			}
		}
	}
}

// Get returns the data of an object that is used, nil if it does not exist, and their version, or why it cannot be read. known
// reports whether any of this is known yet.
func (w *Watcher) Get(key Key) (data map[string]string, version int, err error, known bool) { //nolint:revive // known says whether err counts
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objects[key]
	if o == nil {
		return nil, 0, nil, false
	}
	return o.data, o.version, o.err, o.known
}

// start watches an object. mu is held.
func (w *Watcher) start(key Key) *object {
	ctx, stop := context.WithCancel(w.ctx)
	o := &object{users: make(map[types.NamespacedName]bool), stop: stop}
	w.objects[key] = o
	source, example := w.source(key)
	informer := cache.NewSharedInformer(source, example, 0)
	set := func(data map[string]string, err error) { w.set(key, o, data, err) }
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { // it has not started
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
			w.cfg.Logger.Warn("reading values of overrides failed, retrying", "kind", string(key.Kind), "namespace", key.Namespace, "name", key.Name,
				"error", redaction.WithoutValues(err, true))
			set(nil, fmt.Errorf("the hub may not read %s %s: grant it get, list and watch of it", key.Kind, key.Name))
		}
	})
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { set(overrides.DataOf(object), nil) },
		UpdateFunc: func(_, object any) { set(overrides.DataOf(object), nil) },
		DeleteFunc: func(any) { set(nil, nil) },
	})
	if err != nil { // only once it has stopped
		stop()
		return o
	}
	w.group.Go(func() { informer.RunWithContext(ctx) })
	w.group.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) && len(informer.GetStore().ListKeys()) == 0 {
			w.setAbsent(key, o)
		}
	})
	return o
}

// setAbsent notes that an object does not exist, unless it has been read in the meantime.
func (w *Watcher) setAbsent(key Key, o *object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !o.known || o.err != nil {
		w.note(key, o, nil, nil)
	}
}

// set notes what is known of an object, and tells its users.
func (w *Watcher) set(key Key, o *object, data map[string]string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(key, o, data, err)
}

// note is set with mu held.
func (w *Watcher) note(key Key, o *object, data map[string]string, err error) {
	if w.objects[key] != o || err != nil && o.known && o.err == nil && o.data != nil {
		return // nobody needs it, or it stays as it was until it can be read again
	}
	o.data, o.err, o.known = data, err, true
	o.version++
	for user := range o.users {
		w.cfg.Changed(user)
	}
}

// source returns what lists and watches one object by its name, and an example of it.
func (w *Watcher) source(key Key) (*cache.ListWatch, runtime.Object) {
	resource, example := "configmaps", runtime.Object(&corev1.ConfigMap{})
	if key.Kind == overrides.Secret {
		resource, example = "secrets", &corev1.Secret{}
	}
	named := fields.OneTermEqualSelector("metadata.name", key.Name)
	return cache.NewListWatchFromClient(w.cfg.Client.RESTClient(), resource, key.Namespace, named), example
}

package observe

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/workwire/workwire/pkg/agent/object"
)

// NamedConfig configures [NewNamed].
type NamedConfig[K comparable] struct {
	// Client for the agent's cluster. Required.
	Client dynamic.Interface
	// Max is how many watches there may be at a time; 0 or less: none.
	Max int
	// Changed is called with each key that wants an object which was added, changed
	// or deleted, or whose watch was lost. It must not block. Required.
	Changed func(K)
	// Logger; required.
	Logger *slog.Logger
}

// Named watches single objects by name, for objects that do not carry the label
// by which [Objects] selects. Each costs a watch of its own, hence the limit:
// objects beyond it wait, in the order in which they were first wanted, until
// nobody wants one that is watched. K identifies who wants objects. It is safe for
// concurrent use.
type Named[K comparable] struct {
	config NamedConfig[K]
	wake   chan struct{} // tells Run that a watch may be started

	mu      sync.Mutex
	objects map[object.Ref]*namedObject[K]
	waiting []*namedObject[K] // for a watch, the longest first
	running int               // watches that have not ended
}

// namedObject is an object that somebody wants. Named.mu guards its fields, but
// for what never changes: ref and feed.
type namedObject[K comparable] struct {
	ref  object.Ref
	feed *feed
	keys map[K]struct{}
	stop context.CancelFunc // ends the watch; nil while there is none
}

// NewNamed returns an empty store; Run makes it watch.
func NewNamed[K comparable](config NamedConfig[K]) *Named[K] {
	return &Named[K]{
		config:  config,
		wake:    make(chan struct{}, 1),
		objects: map[object.Ref]*namedObject[K]{},
	}
}

// Run watches what is wanted until ctx ends, and returns when all watches have.
// It must be called once.
func (n *Named[K]) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		for watching, o := n.next(ctx); o != nil; watching, o = n.next(ctx) {
			watches.Go(func() {
				o.feed.run(watching, n.source(o.ref))
				n.ended(o)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		}
	}
}

// Follow replaces the objects whose changes are reported to key: before, as of the previous call,
// by after. An object is watched as long as it is followed. Calls for one key must not run at the
// same time.
func (n *Named[K]) Follow(key K, before, after []object.Ref) {
	if slices.Equal(before, after) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ref := range after {
		n.add(key, ref)
	}
	for _, ref := range before {
		if !slices.Contains(after, ref) {
			n.remove(key, ref)
		}
	}
}

// Get returns what is known of ref: nothing, unless it is watched, and the watch
// has delivered and goes on. Then whoever wants it has to read it.
func (n *Named[K]) Get(ref object.Ref) object.Live {
	n.mu.Lock()
	o := n.objects[ref]
	watched := o != nil && o.stop != nil
	n.mu.Unlock()
	if !watched {
		return object.Live{}
	}
	return o.feed.live(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
}

// Watching is how many watches there are: never more than the limit. One that is
// refused counts, since it is tried again, with back-off.
func (n *Named[K]) Watching() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running
}

func (n *Named[K]) add(key K, ref object.Ref) {
	o := n.objects[ref]
	if o == nil {
		o = &namedObject[K]{ref: ref, keys: make(map[K]struct{}, 1)}
		changed := func() { n.changed(o) }
		o.feed = newFeed(func(types.NamespacedName, string) { changed() }, changed)
		n.objects[ref] = o
		n.waiting = append(n.waiting, o)
		n.look()
	}
	o.keys[key] = struct{}{}
}

func (n *Named[K]) remove(key K, ref object.Ref) {
	o := n.objects[ref]
	if o == nil { // it stood twice among what was wanted
		return
	}
	delete(o.keys, key)
	if len(o.keys) > 0 {
		return
	}
	delete(n.objects, ref)
	if o.stop != nil {
		o.stop()
		return
	}
	n.waiting = slices.DeleteFunc(n.waiting, func(other *namedObject[K]) bool { return other == o })
}

// look has Run see whether a watch may be started.
func (n *Named[K]) look() {
	select {
	case n.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// next takes the object that is to be watched next, and the context of its
// watch; nil when none may be.
func (n *Named[K]) next(ctx context.Context) (context.Context, *namedObject[K]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil || len(n.waiting) == 0 || n.running >= n.config.Max {
		return nil, nil
	}
	o := n.waiting[0]
	n.waiting = slices.Delete(n.waiting, 0, 1)
	n.running++
	watching, stop := context.WithCancel(ctx)
	o.stop = stop
	return watching, o
}

// ended gives the place of a watch that has ended to another.
func (n *Named[K]) ended(o *namedObject[K]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o.stop() // Run may have ended instead
	o.stop = nil
	n.running--
	n.look()
}

func (n *Named[K]) changed(o *namedObject[K]) {
	n.mu.Lock()
	keys := slices.Collect(maps.Keys(o.keys))
	n.mu.Unlock()
	for _, key := range keys {
		n.config.Changed(key)
	}
}

func (n *Named[K]) source(ref object.Ref) source {
	from := source{
		client: n.config.Client, resource: n.config.Client.Resource(ref.GroupVersionResource), name: ref.String(), logger: n.config.Logger,
		narrow: func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", ref.Name).String()
		},
	}
	if ref.Namespace != "" {
		from.resource = n.config.Client.Resource(ref.GroupVersionResource).Namespace(ref.Namespace)
	}
	return from
}

package observe

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	"github.com/workwire/workwire/pkg/agent/internal/object"
)

// NamedConfig configures [NewNamed].
type NamedConfig struct {
	// Client for the agent's cluster. Required.
	Client dynamic.Interface
	// Max is the maximum number of watches at a time; 0 or less: none.
	Max int
	// Changed is called with each name that follows an object which was added, changed or deleted,
	// or whose watch was lost. It must not block. Required.
	Changed func(name string)
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// Named watches single objects by name, for objects without the label that [Objects] selects. Each
// object costs a watch. Objects beyond the limit wait, in the order in which they were first
// followed, until a watched object is not followed any more. It is safe for concurrent use.
type Named struct {
	config NamedConfig
	wake   chan struct{} // holds a token when a watch may start

	mu      sync.Mutex
	objects map[object.Ref]*namedObject
	waiting []*namedObject // for a watch, the longest first
	running int            // watches that have not ended
}

// namedObject is an object with followers. Named.mu guards its fields, except ref and watcher,
// which never change.
type namedObject struct {
	ref       object.Ref
	watcher   *watcher
	followers sets.Set[string]
	stop      context.CancelFunc // ends the watch; nil while there is none
}

// NewNamed returns a Named without watches, which start with Run.
func NewNamed(config NamedConfig) *Named {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return &Named{config: config, wake: make(chan struct{}, 1), objects: map[object.Ref]*namedObject{}}
}

// Run watches the followed objects until ctx ends. It returns when all watches have ended, and must
// be called once.
func (n *Named) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		for watching, o := n.next(ctx); o != nil; watching, o = n.next(ctx) {
			watches.Go(func() {
				o.watcher.run(watching, n.selection(o.ref))
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

// Follow replaces the objects whose changes are reported to name: before, as of the previous call,
// by after. An object is watched as long as it is followed. Calls for one name must not run at the
// same time.
func (n *Named) Follow(name string, before, after []object.Ref) {
	n.mu.Lock()
	defer n.mu.Unlock()
	follow(name, before, after, n.add, n.remove)
}

// Get returns what is known of ref. That is nothing unless it is watched, and its watch has
// delivered and goes on.
func (n *Named) Get(ref object.Ref) object.Live {
	n.mu.Lock()
	o := n.objects[ref]
	watched := o != nil && o.stop != nil
	n.mu.Unlock()
	if !watched {
		return object.Live{}
	}
	return o.watcher.live(namespacedName(ref))
}

func (n *Named) add(name string, ref object.Ref) {
	o := n.objects[ref]
	if o == nil {
		o = &namedObject{ref: ref, followers: sets.Set[string]{}}
		changed := func() { n.changed(o) }
		o.watcher = newWatcher(func(types.NamespacedName, string) { changed() }, changed)
		n.objects[ref] = o
		n.waiting = append(n.waiting, o)
		n.wakeRun()
	}
	o.followers.Insert(name)
}

func (n *Named) remove(name string, ref object.Ref) {
	o := n.objects[ref]
	if o == nil { // ref was followed twice, and is removed
		return
	}
	if o.followers.Delete(name); o.followers.Len() > 0 {
		return
	}
	delete(n.objects, ref)
	if o.stop != nil {
		o.stop()
		return
	}
	n.waiting = slices.DeleteFunc(n.waiting, func(other *namedObject) bool { return other == o })
}

// wakeRun has Run start the watches that may start.
func (n *Named) wakeRun() {
	select {
	case n.wake <- struct{}{}:
	default: // Run has yet to receive the last token
	}
}

// next returns the object to watch next, and the context of its watch; nil if none may start.
func (n *Named) next(ctx context.Context) (context.Context, *namedObject) {
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

// ended notes that the watch of o has ended, so that another may start.
func (n *Named) ended(o *namedObject) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o.stop() // it may have ended with Run
	o.stop = nil
	n.running--
	n.wakeRun()
}

func (n *Named) changed(o *namedObject) {
	n.mu.Lock()
	followers := o.followers.UnsortedList()
	n.mu.Unlock()
	for _, name := range followers {
		n.config.Changed(name)
	}
}

func (n *Named) selection(ref object.Ref) selection {
	s := selection{
		client: n.config.Client, resource: n.config.Client.Resource(ref.GroupVersionResource), name: ref.String(), logger: n.config.Logger,
		restrict: func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", ref.Name).String()
		},
	}
	if ref.Namespace != "" {
		s.resource = n.config.Client.Resource(ref.GroupVersionResource).Namespace(ref.Namespace)
	}
	return s
}

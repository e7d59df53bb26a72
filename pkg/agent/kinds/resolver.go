package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	defaultMissInterval = 3 * time.Second
	// goneFor is how long discovery is not believed about a kind whose
	// CustomResourceDefinition was seen to go: longer than it lags behind.
	goneFor = 15 * time.Second
)

// Config configures [New].
type Config struct {
	// Client for the agent's cluster, made from a configuration that
	// dynamic.ConfigFor gave. Required.
	Client rest.Interface
	// Changed is called when a kind of a CustomResourceDefinition has become
	// known, has gone, or is served otherwise than before; also once for each of
	// them at start. It is called from one goroutine and must not block. Nil:
	// nobody is told.
	Changed func(schema.GroupKind)
	// MissInterval is the least time between two discovery requests for one group
	// and version, while a kind is not found in it or the request fails. Default:
	// 3 s.
	MissInterval time.Duration
	// Clock; nil for the real one.
	Clock clock.PassiveClock
	// Logger; nil for slog.Default().
	Logger *slog.Logger
}

// Resolver maps kinds to resources. It is safe for concurrent use, before and
// while Run runs; without Run it works by discovery alone.
type Resolver struct {
	config Config

	mu         sync.Mutex
	names      map[string]schema.GroupKind // of established CustomResourceDefinitions
	defined    map[schema.GroupKind]definition
	gone       map[schema.GroupKind]time.Time
	discovered map[schema.GroupVersion]*discovery
}

// discovery is what one group and version was last found to hold. Resolver.mu
// guards it.
type discovery struct {
	kinds   map[string]Mapping
	err     error // of the last request; kinds are of an earlier one
	asked   time.Time
	running chan struct{} // not nil while a request is under way; closed at its end
}

// New returns a resolver that knows nothing yet.
func New(config Config) *Resolver {
	if config.MissInterval <= 0 {
		config.MissInterval = defaultMissInterval
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Changed == nil {
		config.Changed = func(schema.GroupKind) {}
	}
	return &Resolver{
		config:     config,
		names:      map[string]schema.GroupKind{},
		defined:    map[schema.GroupKind]definition{},
		gone:       map[schema.GroupKind]time.Time{},
		discovered: map[schema.GroupVersion]*discovery{},
	}
}

// Resolve gives the mapping of a kind. The error is an [*UnknownKindError] if
// the cluster does not serve it; any other says why it could not be found out,
// and may be gone on the next call. What is known costs no request. What is not
// costs at most one for each group and version in [Config.MissInterval], however
// many ask.
func (r *Resolver) Resolve(ctx context.Context, kind schema.GroupVersionKind) (Mapping, error) {
	for {
		mapping, wait, err := r.lookup(kind)
		if wait == nil {
			return mapping, err
		}
		if wait.running != nil {
			select {
			case <-wait.running:
				continue
			case <-ctx.Done():
				return Mapping{}, fmt.Errorf("find the resource of %s: %w", kind, context.Cause(ctx))
			}
		}
		r.discover(ctx, kind.GroupVersion(), wait.begun)
		if ctx.Err() != nil {
			return Mapping{}, fmt.Errorf("find the resource of %s: %w", kind, context.Cause(ctx))
		}
	}
}

// Forget drops what discovery said about a group and version. Call it when the
// cluster answers that it serves no such resource after all, as after an
// upgrade.
func (r *Resolver) Forget(gv schema.GroupVersion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(gv)
}

// forget is Forget with Resolver.mu held. A request under way keeps its entry,
// so that those who wait for it are woken.
func (r *Resolver) forget(gv schema.GroupVersion) {
	if known := r.discovered[gv]; known != nil {
		known.kinds, known.err = nil, nil
		if known.running == nil {
			delete(r.discovered, gv)
		}
	}
}

// request is a discovery request: one under way to wait for, or one that the
// caller is to make.
type request struct {
	running <-chan struct{}
	begun   *discovery
}

// lookup answers from memory, or says which request to wait for or to make.
func (r *Resolver) lookup(kind schema.GroupVersionKind) (Mapping, *request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.config.Clock.Now()
	if def, ok := r.defined[kind.GroupKind()]; ok {
		if mapping, ok := def.mapping(kind.Version); ok {
			return mapping, nil, nil
		}
		return Mapping{}, nil, &UnknownKindError{Kind: kind}
	}
	if since, ok := r.gone[kind.GroupKind()]; ok {
		if now.Sub(since) < goneFor {
			return Mapping{}, nil, &UnknownKindError{Kind: kind}
		}
		delete(r.gone, kind.GroupKind())
	}
	known := r.discovered[kind.GroupVersion()]
	if known == nil {
		known = &discovery{}
		r.discovered[kind.GroupVersion()] = known
	}
	if mapping, ok := known.kinds[kind.Kind]; ok {
		return mapping, nil, nil
	}
	switch {
	case known.running != nil:
		return Mapping{}, &request{running: known.running}, nil
	case known.asked.IsZero() || now.Sub(known.asked) >= r.config.MissInterval:
		known.running = make(chan struct{})
		return Mapping{}, &request{begun: known}, nil
	case known.err != nil:
		return Mapping{}, nil, known.err
	default:
		return Mapping{}, nil, &UnknownKindError{Kind: kind}
	}
}

// discover makes the request that lookup asked for and keeps its answer.
func (r *Resolver) discover(ctx context.Context, gv schema.GroupVersion, entry *discovery) {
	found, err := r.fetch(ctx, gv)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(entry.running)
	entry.running = nil
	if ctx.Err() != nil {
		return // says nothing about the cluster
	}
	entry.asked, entry.err = r.config.Clock.Now(), err
	if err == nil {
		entry.kinds = found
	}
}

// fetch asks for the resources of one group and version. One that the cluster
// does not serve has none.
func (r *Resolver) fetch(ctx context.Context, gv schema.GroupVersion) (map[string]Mapping, error) {
	path := []string{"/apis", gv.Group, gv.Version}
	if gv.Group == "" {
		path = []string{"/api", gv.Version}
	}
	body, err := r.config.Client.Get().AbsPath(path...).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return map[string]Mapping{}, nil
	case err != nil:
		return nil, fmt.Errorf("discover the resources of %s: %w", gv, err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("discover the resources of %s: %w", gv, err)
	}
	found := make(map[string]Mapping, len(list.APIResources))
	for _, resource := range list.APIResources {
		if strings.Contains(resource.Name, "/") {
			continue // a subresource
		}
		found[resource.Kind] = Mapping{Resource: gv.WithResource(resource.Name), Namespaced: resource.Namespaced}
	}
	return found, nil
}

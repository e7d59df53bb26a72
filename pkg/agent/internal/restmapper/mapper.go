// Package restmapper maps the kinds that manifests name to the resources that serve them on the
// agent's cluster.
//
// Built-in and aggregated kinds are looked up by discovery of a single group and version, and
// cached. Kinds of CustomResourceDefinitions come from a watch and are mapped as soon as they are
// established: discovery documents lag behind by seconds. The watch also reports when a kind
// appears or disappears, so that works that wait for it are retried at once.
//
// It does not use client-go's restmapper package, which fetches the whole discovery document on
// each miss and cannot follow CustomResourceDefinitions.
//
//	mapper, err := restmapper.New(restmapper.Config{Client: client, Changed: retry, Logger: logger})
//	go mapper.Run(ctx)
//	mapping, err := mapper.RESTMapping(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
//	// mapping.Resource is apps/v1, deployments; mapping.Scope is meta.RESTScopeNamespace
package restmapper

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/runtime/required"
)

const (
	// missInterval is the minimum time between two discovery requests for one group and version while
	// a kind is not found in it or the request fails.
	missInterval = 3 * time.Second
	// removalGrace is how long discovery is not trusted for a kind whose CustomResourceDefinition
	// was deleted. Discovery lags behind by less than this.
	removalGrace = 15 * time.Second
	// maxDiscovered is how many groups and versions are known before those that the cluster does not
	// serve are forgotten: sources may name any.
	maxDiscovered = 1024
)

// Config configures [New].
type Config struct {
	// Client for the agent's cluster, made from a configuration that dynamic.ConfigFor returned.
	// Required.
	Client rest.Interface
	// Changed is called when the kind of a CustomResourceDefinition appears, disappears or is
	// served differently, and once for each of them at start. It is called from one goroutine and
	// must not block. Optional.
	Changed func(schema.GroupKind)
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// Mapper maps kinds to resources. It is safe for concurrent use, before and while Run runs; without
// Run it works by discovery alone.
type Mapper struct {
	config Config
	now    func() time.Time

	mu         sync.Mutex
	defined    map[schema.GroupKind]definition // by established CustomResourceDefinitions
	removed    map[schema.GroupKind]time.Time
	discovered map[schema.GroupVersion]*discovery
}

// discovery is the last known content of one group and version. Mapper.mu guards its fields, except
// for request.
type discovery struct {
	request chan struct{} // holds a token while a discovery request is in progress
	kinds   map[string]*meta.RESTMapping
	err     error // of the last request; kinds are of an earlier one
	asked   time.Time
}

// New returns a mapper with an empty cache.
func New(cfg Config) (*Mapper, error) {
	if err := required.Fields(cfg, "Client"); err != nil {
		return nil, fmt.Errorf("create the REST mapper: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Changed == nil {
		cfg.Changed = func(schema.GroupKind) {}
	}
	return &Mapper{
		config:     cfg,
		now:        time.Now,
		defined:    map[schema.GroupKind]definition{},
		removed:    map[schema.GroupKind]time.Time{},
		discovered: map[schema.GroupVersion]*discovery{},
	}, nil
}

// noMatchError is a [*meta.NoKindMatchError] with the text that kubectl shows.
type noMatchError struct{ meta.NoKindMatchError }

func newNoMatchError(gvk schema.GroupVersionKind) error {
	return &noMatchError{meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}}
}

func (e *noMatchError) Error() string {
	return fmt.Sprintf("the server doesn't have a resource type %q", e.GroupKind.Kind)
}

func (e *noMatchError) Unwrap() error { return &e.NoKindMatchError }

// RESTMapping returns the resource that serves a kind; it is shared and must not be changed. The
// error wraps a [*meta.NoKindMatchError] if the cluster does not serve the kind; any other error is
// of a failed request and may be temporary. A cached kind costs no request. Concurrent misses share
// one request for each group and version in three seconds.
func (m *Mapper) RESTMapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, miss, err := m.lookup(gvk)
	if miss == nil {
		return mapping, err
	}
	select {
	case miss.request <- struct{}{}:
		defer func() { <-miss.request }()
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		// Another caller may have completed the request in the meantime.
		if mapping, miss, err := m.lookup(gvk); miss == nil {
			return mapping, err
		}
		m.discover(ctx, gvk.GroupVersion(), miss)
	}
	return nil, fmt.Errorf("find the resource of %s: %w", gvk, context.Cause(ctx))
}

// Forget drops the discovery result of a group and version. Call it when the API server answers
// that it does not serve a resource, for example after an upgrade.
func (m *Mapper) Forget(gv schema.GroupVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The entry stays, so that callers that wait for its request and later ones share it.
	if known := m.discovered[gv]; known != nil {
		known.kinds, known.err, known.asked = nil, nil, time.Time{}
	}
}

// lookup answers from the cache. It returns the entry to discover if the cache cannot answer.
func (m *Mapper) lookup(gvk schema.GroupVersionKind) (*meta.RESTMapping, *discovery, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if def, ok := m.defined[gvk.GroupKind()]; ok {
		if mapping := def.mappings[gvk.Version]; mapping != nil {
			return mapping, nil, nil
		}
		return nil, nil, newNoMatchError(gvk)
	}
	if since, ok := m.removed[gvk.GroupKind()]; ok {
		if now.Sub(since) < removalGrace {
			return nil, nil, newNoMatchError(gvk)
		}
		delete(m.removed, gvk.GroupKind())
	}
	known := m.discovered[gvk.GroupVersion()]
	if known == nil {
		m.prune()
		known = &discovery{request: make(chan struct{}, 1)}
		m.discovered[gvk.GroupVersion()] = known
	}
	switch mapping := known.kinds[gvk.Kind]; {
	case mapping != nil:
		return mapping, nil, nil
	case known.asked.IsZero() || now.Sub(known.asked) >= missInterval:
		return nil, known, nil
	case known.err != nil:
		return nil, nil, known.err
	default:
		return nil, nil, newNoMatchError(gvk)
	}
}

// prune makes room for a group and version. m.mu must be held.
func (m *Mapper) prune() {
	if len(m.discovered) < maxDiscovered {
		return
	}
	maps.DeleteFunc(m.discovered, func(_ schema.GroupVersion, known *discovery) bool {
		return known.kinds == nil && len(known.request) == 0
	})
}

// discover fetches the resources of a group and version into its entry.
func (m *Mapper) discover(ctx context.Context, gv schema.GroupVersion, entry *discovery) {
	found, err := m.fetch(ctx, gv)
	if ctx.Err() != nil {
		return // the result does not describe the cluster
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.discovered[gv] = entry // prune may have dropped it before its request began
	entry.asked, entry.err = m.now(), err
	if err == nil {
		entry.kinds = found
	}
}

// fetch requests the resources of one group and version. A group and version that the cluster does
// not serve has none. client-go's discovery client is no help: it hides that a request for the core
// group was forbidden.
func (m *Mapper) fetch(ctx context.Context, gv schema.GroupVersion) (map[string]*meta.RESTMapping, error) {
	path := []string{"/apis", gv.Group, gv.Version}
	if gv.Group == "" {
		path = []string{"/api", gv.Version}
	}
	body, err := m.config.Client.Get().AbsPath(path...).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("discover the resources of %s: %w", gv, err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("discover the resources of %s: %w", gv, err)
	}
	found := make(map[string]*meta.RESTMapping, len(list.APIResources))
	for _, resource := range list.APIResources {
		if strings.Contains(resource.Name, "/") {
			continue // a subresource
		}
		found[resource.Kind] = newMapping(gv.WithKind(resource.Kind), resource.Name, resource.Namespaced)
	}
	return found, nil
}

func newMapping(gvk schema.GroupVersionKind, plural string, namespaced bool) *meta.RESTMapping {
	scope := meta.RESTScopeRoot
	if namespaced {
		scope = meta.RESTScopeNamespace
	}
	return &meta.RESTMapping{Resource: gvk.GroupVersion().WithResource(plural), GroupVersionKind: gvk, Scope: scope}
}

package tracing

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

const (
	// maxChanges bounds the changes under way; further ones have no trace.
	maxChanges = 100_000
	// maxLinks bounds the steps that a step is linked to because it replaces their results.
	maxLinks = 8
	// maxAttempts bounds the spans of one step that is repeated.
	maxAttempts = 10
)

// Change is what the next step of a change continues.
type Change struct {
	// Parent is the context of the step before. At the source it is that of the caller, if any.
	Parent trace.SpanContext
	// Links are the contexts of steps that were replaced before the next step began.
	Links []trace.SpanContext
	// Generation of the work.
	Generation int64
	// Since is when the change was seen.
	Since time.Time

	mu       sync.Mutex
	before   *Change // see Changes.Withdraw; guarded by Changes.mu
	attempts int
	root     Span              // of a change at its source, once it has begun
	current  trace.SpanContext // of the attempt that runs, or ran last
}

// Changes are the changes under way of the works of a program, by key. The newest change of a work
// counts: one that it replaces becomes a link. A nil *Changes holds nothing. All methods cost O(1) and
// are safe for concurrent use.
type Changes[K comparable] struct {
	mu  sync.Mutex
	all map[K]*Change
}

// NewChanges returns an empty table; nil if t is nil.
func NewChanges[K comparable](t *Tracer) *Changes[K] {
	if t == nil {
		return nil
	}
	return &Changes[K]{all: make(map[K]*Change)}
}

// Enabled reports whether c is not nil.
func (c *Changes[K]) Enabled() bool { return c != nil }

// Seen adds the change of a work to generation at its source, unless that is under way. parent is the
// context of the caller; it may be invalid.
func (c *Changes[K]) Seen(key K, generation int64, parent trace.SpanContext) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.all[key]; now == nil || now.Generation != generation {
		c.replace(key, &Change{Parent: parent, Generation: generation, Since: time.Now()})
	}
}

// Add adds the change that parent has brought here. It does nothing if parent is not recorded.
func (c *Changes[K]) Add(key K, generation int64, parent trace.SpanContext) (added *Change) {
	if c == nil || !parent.IsSampled() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	added = &Change{Parent: parent, Generation: generation, Since: time.Now()}
	c.replace(key, added)
	return added
}

// replace makes next the change of key. c.mu is held.
func (c *Changes[K]) replace(key K, next *Change) {
	before := c.all[key]
	if before == nil && len(c.all) >= maxChanges {
		return
	}
	if before != nil {
		next.Links = before.end()
		before.before = nil
	}
	next.before = before
	c.all[key] = next
}

// Withdraw removes n, which turned out to be no change, and puts back the one that it has replaced. n
// may be nil.
func (c *Changes[K]) Withdraw(key K, n *Change) {
	if c == nil || n == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.all[key] != n:
	case n.before == nil:
		delete(c.all, key)
	default:
		c.all[key] = n.before
	}
}

// end ends a change that another one replaces, and returns what that is linked to.
func (n *Change) end() (links []trace.SpanContext) {
	n.mu.Lock()
	defer n.mu.Unlock()
	last := n.Parent
	if n.root.span != nil {
		last = n.root.Context()
		n.root.End("")
		n.root = Span{}
	}
	links = n.Links
	if last.IsValid() {
		links = append(links[:len(links):len(links)], last)
	}
	return links[max(0, len(links)-maxLinks):]
}

// Get returns the change of key, nil if there is none.
func (c *Changes[K]) Get(key K) *Change {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[key]
}

// Take removes and returns the change of key, nil if there is none.
func (c *Changes[K]) Take(key K) *Change {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.all[key]
	delete(c.all, key)
	return n
}

// Return puts a change back that [Changes.Take] has returned and whose step failed. If there is a newer
// one by now, that is linked to it.
func (c *Changes[K]) Return(key K, n *Change) {
	if c == nil || n == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if newer := c.all[key]; newer != nil {
		replaced := n.end()
		newer.mu.Lock()
		defer newer.mu.Unlock()
		newer.Links = append(replaced, newer.Links...)
		newer.Links = newer.Links[max(0, len(newer.Links)-maxLinks):]
		return
	}
	c.all[key] = n
}

// Done removes n, which has ended, unless another change of key has replaced it. n may be nil.
func (c *Changes[K]) Done(key K, n *Change) {
	if c == nil || n == nil {
		return
	}
	c.mu.Lock()
	if c.all[key] == n {
		delete(c.all, key)
	}
	c.mu.Unlock()
	n.end()
}

// Attempt begins the span of an attempt at the next step of n, and returns ctx with it. It does
// nothing if n is nil, or has had many attempts.
func (t *Tracer) Attempt(ctx context.Context, n *Change, name string, w Work) (context.Context, Span) {
	if t == nil || n == nil {
		return ctx, Span{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.attempts++; n.attempts > maxAttempts {
		return ctx, Span{}
	}
	ctx, span := t.Step(ctx, n.Parent, n.Links, name, w)
	n.current = span.Context()
	return ctx, span
}

// Current returns the context of the attempt that runs or ran last.
func (n *Change) Current() trace.SpanContext {
	if n == nil {
		return trace.SpanContext{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current
}

// Root returns the context of the span of the whole change, which the first call begins and which ends
// with the change. It is not valid if n is nil.
func (t *Tracer) Root(n *Change, w Work) trace.SpanContext {
	if t == nil || n == nil {
		return trace.SpanContext{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.root.span == nil {
		n.root = t.Begin(n.Parent, n.Links, n.Since, w)
	}
	return n.root.Context()
}

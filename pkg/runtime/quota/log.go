package quota

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LimitLog returns a handler that passes records to handler. Of warnings and errors with an attribute key, whose
// value is an identity, it passes one a second for each identity, 50 at once after a pause. The next one
// says how many were left out, as leftOut.
func LimitLog(handler slog.Handler, key string) slog.Handler {
	return limited{Handler: handler, key: key, lines: NewLines(Rate{PerSecond: 1, Burst: 50})}
}

// Lines limits the lines of a log that each identity causes. It is safe for concurrent use.
type Lines struct {
	quotas *Quotas[string]

	mu      sync.Mutex
	leftOut map[string]int // guarded by mu; an identity is in it until its next line
}

// NewLines returns Lines that allow each identity this rate.
func NewLines(rate Rate) *Lines {
	return &Lines{quotas: New[string](Config{Rates: Rates{Records: rate}}), leftOut: map[string]int{}}
}

type limited struct {
	slog.Handler
	key, id string
	lines   *Lines // shared by all handlers that derive from one
}

// Handle implements [slog.Handler].
func (h limited) Handle(ctx context.Context, r slog.Record) error {
	id := h.id
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == h.key {
			id = a.Value.String()
		}
		return true
	})
	if r.Level < slog.LevelWarn || id == "" {
		return h.Handler.Handle(ctx, r)
	}
	leftOut, ok := h.lines.Allow(id, 1, r.Time)
	if !ok {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("leftOut", leftOut))
	}
	return h.Handler.Handle(ctx, r)
}

// Allow reports whether id may write a line, which counts as cost lines, and how many were left out before.
func (l *Lines) Allow(id string, cost float64, now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.quotas.Spend(id, Cost{Records: cost}, now) {
		l.leftOut[id]++
		return 0, false
	}
	leftOut = l.leftOut[id]
	delete(l.leftOut, id)
	return leftOut, true
}

// WithAttrs implements [slog.Handler].
func (h limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == h.key {
			h.id = a.Value.String()
		}
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements [slog.Handler].
func (h limited) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

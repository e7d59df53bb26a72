package limits

import (
	"sync"
	"time"
)

// Log kinds are constants of the caller, so that their number is bounded.
type logs struct {
	mu    sync.Mutex
	kinds map[string]*logKind
}

func newLogs() logs { return logs{kinds: map[string]*logKind{}} }

type logKind struct {
	lines   float64 // that may be written now
	at      time.Time
	leftOut uint64 // since the last line
	total   uint64 // left out since the start
}

// Log reports whether a line of a kind may be written now, and how many were left out since the last
// one; the line should say so.
func (l *Limiter) Log(kind string) (leftOut uint64, ok bool) {
	rate, now := float64(l.config().LogLinesPerSecond), l.now()
	l.logs.mu.Lock()
	defer l.logs.mu.Unlock()
	k := l.logs.kinds[kind]
	if k == nil {
		k = &logKind{lines: rate * logBurst, at: now}
		l.logs.kinds[kind] = k
	}
	k.lines = min(k.lines+max(now.Sub(k.at).Seconds(), 0)*rate, rate*logBurst)
	k.at = now
	if k.lines < 1 {
		k.leftOut++
		k.total++
		return 0, false
	}
	k.lines--
	leftOut, k.leftOut = k.leftOut, 0
	return leftOut, true
}

func (l *logs) stats() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]uint64{}
	for kind, k := range l.kinds {
		out[kind] = k.total
	}
	return out
}

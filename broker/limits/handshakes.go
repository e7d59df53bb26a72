package limits

import (
	"context"
	"sync"

	"github.com/workwire/workwire/pkg/runtime/fairqueue"
)

// handshakes orders TLS handshakes, so that those of one address do not delay those of others, nor
// all of them the clients that are connected. They run in the goroutines of their callers.
type handshakes struct {
	mu      sync.Mutex
	waiting *fairqueue.Queue[handshake, string]
	running int
}

type handshake struct {
	address string
	start   chan struct{} // closed when it may run
}

func newHandshakes() handshakes {
	return handshakes{waiting: fairqueue.New(func(h handshake) string { return h.address })}
}

// EnterHandshake waits until a TLS handshake of address may use a CPU, and returns an error if ctx
// ends before. Call LeaveHandshake while the handshake waits for its client, and at its end. At most
// Config.Handshakes are between the two, and addresses take turns.
func (l *Limiter) EnterHandshake(ctx context.Context, address string) error {
	h, own := &l.handshakes, handshake{address, make(chan struct{})}
	h.mu.Lock()
	h.waiting.Push(own)
	l.startHandshakes()
	h.mu.Unlock()
	select {
	case <-own.start:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.waiting.Remove(own) { // its turn came at the same moment
		h.running--
		l.startHandshakes()
	}
	return ctx.Err()
}

// LeaveHandshake ends what EnterHandshake has begun.
func (l *Limiter) LeaveHandshake() {
	l.handshakes.mu.Lock()
	defer l.handshakes.mu.Unlock()
	l.handshakes.running--
	l.startHandshakes()
}

// startHandshakes starts those that may run. Callers hold handshakes.mu.
func (l *Limiter) startHandshakes() {
	h, limit := &l.handshakes, l.config().Handshakes
	for h.running < limit && h.waiting.Len() > 0 {
		close(h.waiting.Pop().start)
		h.running++
	}
}

// stats returns how many handshakes wait for their turn.
func (h *handshakes) stats() (waiting int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting.Len()
}

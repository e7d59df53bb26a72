package limits

import (
	"context"
	"slices"
	"sync"
)

// handshakes orders TLS handshakes, so that those of one address do not delay those of others, nor
// all of them the clients that are connected. They run in the goroutines of their callers.
type handshakes struct {
	mu      sync.Mutex
	turns   []string                   // addresses with waiting handshakes, the next one first
	waiting map[string][]chan struct{} // by address, oldest first; closed when it may run
	running int
}

func newHandshakes() handshakes { return handshakes{waiting: map[string][]chan struct{}{}} }

// EnterHandshake waits until a TLS handshake of address may use a CPU, and returns an error if ctx
// ends before. Call LeaveHandshake while the handshake waits for its client, and at its end. At most
// Config.Handshakes are between the two, and addresses take turns.
func (l *Limiter) EnterHandshake(ctx context.Context, address string) error {
	h, start := &l.handshakes, make(chan struct{})
	h.mu.Lock()
	if len(h.waiting[address]) == 0 {
		h.turns = append(h.turns, address)
	}
	h.waiting[address] = append(h.waiting[address], start)
	l.startHandshakes()
	h.mu.Unlock()
	select {
	case <-start:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.waiting[address], start)
	if i < 0 { // its turn came at the same moment
		h.running--
		l.startHandshakes()
		return ctx.Err()
	}
	if h.waiting[address] = slices.Delete(h.waiting[address], i, i+1); len(h.waiting[address]) == 0 {
		delete(h.waiting, address)
		h.turns = slices.DeleteFunc(h.turns, func(a string) bool { return a == address })
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
	for h.running < limit && len(h.turns) > 0 {
		address := h.turns[0]
		h.turns = h.turns[1:]
		close(h.waiting[address][0])
		h.running++
		if h.waiting[address] = h.waiting[address][1:]; len(h.waiting[address]) > 0 {
			h.turns = append(h.turns, address)
		} else {
			delete(h.waiting, address)
		}
	}
}

// stats returns how many handshakes wait for their turn.
func (h *handshakes) stats() (waiting int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.waiting {
		waiting += len(of)
	}
	return waiting
}

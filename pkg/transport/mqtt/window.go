package mqtt

import "sync"

// window holds the messages received on one connection that the broker has not
// been told to be done with. They may be acknowledged in any order; the broker
// is told in the order of arrival, as MQTT demands, so that a message holds up
// those behind it.
type window struct {
	mu      sync.Mutex
	entries []*received // in order of arrival; the broker's receive maximum bounds them

	ready chan struct{} // holds one token while the first entries may be acknowledged
}

type received struct {
	id    uint16 // packet identifier
	qos   byte   // 1 or 2
	acked bool   // guarded by window.mu
}

func newWindow() *window { return &window{ready: make(chan struct{}, 1)} }

// add takes the next message and returns what acknowledges it.
func (w *window) add(id uint16, qos byte) (ack func()) {
	entry := &received{id: id, qos: qos}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, entry)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		entry.acked = true
		if len(w.entries) > 0 && w.entries[0].acked {
			select {
			case w.ready <- struct{}{}:
			default:
			}
		}
	}
}

// take removes and returns the messages to acknowledge now, in order.
func (w *window) take() []received {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ready []received
	for _, entry := range w.entries {
		if !entry.acked {
			break
		}
		ready = append(ready, *entry)
	}
	clear(w.entries[:len(ready)])
	w.entries = w.entries[len(ready):]
	return ready
}

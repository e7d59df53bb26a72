package mqtt

import "sync"

// ackWindow contains the messages of one connection that are not acknowledged to the broker yet.
// They may be acknowledged in any order; the acknowledgements are sent in the order of arrival, as
// MQTT requires.
type ackWindow struct {
	mu      sync.Mutex
	entries []*unackedMessage // in order of arrival; the broker's receive maximum bounds them

	ready chan struct{} // contains a token if the first entries may be acknowledged
}

type unackedMessage struct {
	id    uint16 // packet identifier
	qos   byte   // 1 or 2
	acked bool   // guarded by ackWindow.mu
}

func newAckWindow() *ackWindow { return &ackWindow{ready: make(chan struct{}, 1)} }

// add adds a message and returns the function that acknowledges it.
func (w *ackWindow) add(id uint16, qos byte) (ack func()) {
	entry := &unackedMessage{id: id, qos: qos}
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

// takeAcked removes and returns the messages to acknowledge to the broker, in order.
func (w *ackWindow) takeAcked() []unackedMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ready []unackedMessage
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

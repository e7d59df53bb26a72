package session

// systemLevel is the first level of the broker's own topics.
const systemLevel = "$SYS"

// HasSystemSubscribers reports whether a session subscribes to a topic below $SYS/.
func (r *Router) HasSystemSubscribers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index.root.children[systemLevel] != nil
}

// PublishSystem publishes a message of the broker itself. It does not count as received.
func (r *Router) PublishSystem(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.publish(nil, m) // a queue that is full does without it
	r.stats.Received--
}

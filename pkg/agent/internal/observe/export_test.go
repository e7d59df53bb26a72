package observe

// Watching returns the number of watches, which never exceeds the limit. A watch that is refused
// counts, since it is retried.
func (n *Named) Watching() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running
}

package observe

// Watching returns the number of watches, which never exceeds the limit. A watch that is refused
// counts, since it is retried.
func (w *Watches) Watching() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

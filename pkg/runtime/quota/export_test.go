package quota

// Len returns the number of identities that take memory.
func (q *Quotas[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.accounts)
}

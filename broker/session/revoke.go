package session

// Revoke ends every session for which revoked returns true, with its queue, its connection, and its
// will, which is not published. It returns the number of sessions. It visits every session; revoked
// must return at once and must not use the router.
func (r *Router) Revoke(revoked func(owner, credential string) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ends []*session
	for _, s := range r.sessions {
		if revoked(s.owner, s.credential) {
			ends = append(ends, s)
		}
	}
	for _, s := range byID(ends) {
		r.end(s, Revoked)
	}
	return len(ends)
}

// RevokeSession is like Revoke, for one session.
func (r *Router) RevokeSession(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[id]; s != nil {
		r.end(s, Revoked)
	}
}

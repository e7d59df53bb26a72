package session

import "slices"

// Subscribe adds or replaces a subscription. It returns ErrQuota if the sessions of the owner have the
// maximum number of subscriptions: each one that matches a message delays all other messages.
func (c *Conn) Subscribe(sub Subscription) error {
	r, s := c.router, c.s
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.conn != c {
		return nil // the client is gone: nobody reads the result
	}
	before, existed := s.subs[sub.Filter]
	if !existed && r.subscriptionsOf(s.owner) >= maxSubscriptions {
		return ErrQuota
	}
	if before != sub {
		s.subs[sub.Filter] = sub
		r.index.add(s, sub)
		r.storeSession(s)
		s.subscribed = r.barrier()
	}
	return nil
}

// subscriptionsOf returns how many subscriptions the sessions of owner have. It visits each of them.
// Callers hold r.mu.
func (r *Router) subscriptionsOf(owner string) (n int) {
	for s := range r.owners[owner] {
		n += len(s.subs)
	}
	return n
}

// Unsubscribe removes a subscription, and reports whether the session had it. Queued messages stay
// queued.
func (c *Conn) Unsubscribe(filter string) bool {
	r, s := c.router, c.s
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := s.subs[filter]; !ok || s.conn != c {
		return false
	}
	delete(s.subs, filter)
	r.index.remove(s, filter)
	r.storeSession(s)
	return true
}

// Durable returns a channel that is closed when the subscriptions of the session are durable. It is
// closed at once for a session that ends with its connection, or if they have not changed: while
// the disk is full, clients that reconnect must be able to take their messages.
func (c *Conn) Durable() <-chan struct{} {
	r := c.router
	r.mu.Lock()
	defer r.mu.Unlock()
	done := make(chan struct{})
	batch := c.s.subscribed
	if !c.s.durable() || batch <= r.committed {
		close(done)
		return done
	}
	r.barriers = append(r.barriers, barrier{batch: batch, done: done})
	return done
}

// barrier is a waiter for a batch of the store.
type barrier struct {
	batch uint64
	done  chan struct{}
}

// releaseBarriers releases the waiters for batches up to batch.
func (r *Router) releaseBarriers(batch uint64) {
	n := 0
	for n < len(r.barriers) && r.barriers[n].batch <= batch {
		close(r.barriers[n].done)
		n++
	}
	r.barriers = slices.Delete(r.barriers, 0, n)
}

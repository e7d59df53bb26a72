package session

import "slices"

// Subscribe adds or replaces a subscription and queues the retained messages that it asks
// for. It returns ErrQuota when the session holds too many.
func (l *Conn) Subscribe(sub Subscription) error {
	r, s := l.router, l.s
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.conn != l {
		return nil // the client is gone and so is who would read the answer
	}
	_, existed := s.subs[sub.Filter]
	if !existed && len(s.subs) >= maxSubscriptions {
		return ErrQuota
	}
	s.subs[sub.Filter] = sub
	r.index.add(s, sub)
	r.record(s)
	if group, _ := splitShare(sub.Filter); group != "" || sub.RetainHandling == 2 || sub.RetainHandling == 1 && existed {
		return nil
	}
	for topic, m := range r.retained { // a few, if any: the protocol retains nothing
		if s.conn != l {
			break // the retained messages were too many for it
		}
		if matches(sub.Filter, topic) {
			e := &entry{qos: min(sub.QoS, m.QoS), retain: true}
			if sub.ID > 0 {
				e.subIDs = []int{sub.ID}
			}
			r.enqueue(s, newShared(m), e)
		}
	}
	return nil
}

// Unsubscribe removes a subscription, if the session has it. What is queued stays.
func (l *Conn) Unsubscribe(filter string) {
	r, s := l.router, l.s
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := s.subs[filter]; !ok || s.conn != l {
		return
	}
	delete(s.subs, filter)
	r.index.remove(s, filter)
	r.record(s)
}

// Subscriptions returns a copy of the session's subscriptions, in no order.
func (l *Conn) Subscriptions() []Subscription {
	l.router.mu.Lock()
	defer l.router.mu.Unlock()
	var subs []Subscription
	for _, sub := range l.s.subs {
		subs = append(subs, sub)
	}
	return subs
}

// Durable returns a channel that is closed when the session as it is now is durable, which
// is at once for a session that ends with its connection.
func (l *Conn) Durable() <-chan struct{} {
	r := l.router
	r.mu.Lock()
	defer r.mu.Unlock()
	done := make(chan struct{})
	batch := r.barrier()
	if !l.s.durable() || batch <= r.committed {
		close(done)
		return done
	}
	r.barriers = append(r.barriers, barrier{batch: batch, done: done})
	return done
}

// barrier is someone who waits for a batch.
type barrier struct {
	batch uint64
	done  chan struct{}
}

// release lets those go who waited for batches up to this one. Later waiters never wait for
// smaller batches.
func (r *Router) release(batch uint64) {
	n := 0
	for n < len(r.barriers) && r.barriers[n].batch <= batch {
		close(r.barriers[n].done)
		n++
	}
	r.barriers = slices.Delete(r.barriers, 0, n)
}

package session

// limitTotal ends sessions until the limits of all queues are kept: of the identity whose queues are
// the largest together, the session with the largest one. Each end visits every session.
func (r *Router) limitTotal() {
	for r.cfg.MaxTotalBytes > 0 && r.totalBytes > r.cfg.MaxTotalBytes {
		if !r.endLargest(StoreFull, func(s *session) int64 { return s.queued.bytes }) {
			return
		}
	}
	for r.cfg.MaxTotalMemory > 0 && r.totalMemory > r.cfg.MaxTotalMemory {
		if !r.endLargest(MemoryFull, func(s *session) int64 { return s.memory }) {
			return
		}
	}
}

// endLargest ends the largest session of the identity whose sessions are the largest together. It
// returns false if none has a size.
func (r *Router) endLargest(reason Reason, size func(*session) int64) bool {
	var fullest *session
	var most int64
	for _, sessions := range r.owners {
		var sum int64
		var largest *session
		for s := range sessions {
			sum += size(s)
			if largest == nil || size(s) > size(largest) || size(s) == size(largest) && s.id < largest.id {
				largest = s
			}
		}
		if sum > most || sum == most && sum > 0 && largest.id < fullest.id {
			most, fullest = sum, largest
		}
	}
	if fullest == nil {
		return false
	}
	r.end(fullest, reason)
	return true
}

package session

import "time"

const (
	// shareDivisor: a publisher may hold an eighth of a queue that is more than half full.
	shareDivisor = 8
	// sharesAfterDisconnect is how long publishers have shares of the queue of an absent client.
	// Later nothing may depend on a queue that nobody reads: it ends as a whole.
	sharesAfterDisconnect = 15 * time.Minute
)

// amount is a number of messages and their bytes.
type amount struct {
	messages int
	bytes    int64
}

func (a amount) plus(b amount) amount { return amount{a.messages + b.messages, a.bytes + b.bytes} }

func (a amount) minus(b amount) amount { return amount{a.messages - b.messages, a.bytes - b.bytes} }

// exceeds reports whether a is more than the given part of limit, in messages or bytes. A limit of 0
// does not limit.
func (a amount) exceeds(limit amount, part int) bool {
	return limit.messages > 0 && a.messages > limit.messages/part || limit.bytes > 0 && a.bytes > limit.bytes/int64(part)
}

// verdict is what happens to a message that arrives for a session.
type verdict int

const (
	accepted   verdict = iota
	dropped            // the message is QoS 0 and there is no room for it
	refused            // the publisher has more than its share: PUBACK 0x97
	endSession         // the session is full: it ends, and its client resyncs
)

// arrival is what [admit] decides by. The amounts include the message.
type arrival struct {
	qos          byte
	shares       bool // publishers have shares of the queue
	queue, limit amount
	own          amount // what the publisher has in the queue
	total        int64  // bytes of all queues
	totalOwn     int64  // what the publisher has in all queues
	totalLimit   int64  // 0: none

	// In memory only; all 0 if the store keeps the message.
	memory, memoryLimit           int64 // of the queue
	allMemory, ownMemory, maximum int64 // of all queues, and what the publisher has in them
}

// admit decides about a message for one session. While its queue, or all queues together, are more
// than half full, a publisher that holds more than an eighth is refused: one publisher alone cannot
// fill a queue, and so cannot end another client's session.
func admit(a arrival) verdict {
	over := func(bytes, limit int64, part int) bool {
		return amount{bytes: bytes}.exceeds(amount{bytes: limit}, part)
	}
	greedy := a.shares && (a.queue.exceeds(a.limit, 2) && a.own.exceeds(a.limit, shareDivisor) ||
		over(a.total, a.totalLimit, 2) && over(a.totalOwn, a.totalLimit, shareDivisor) ||
		over(a.allMemory, a.maximum, 2) && over(a.ownMemory, a.maximum, shareDivisor))
	full := a.queue.exceeds(a.limit, 1)
	switch {
	case a.qos == 0 && (full || greedy || over(a.total, a.totalLimit, 1) || over(a.memory, a.memoryLimit, 1) || over(a.allMemory, a.maximum, 1)):
		return dropped
	case greedy:
		return refused
	case full:
		return endSession
	}
	return accepted
}

// hasShares reports whether publishers have shares of the queue of s. Callers hold r.mu.
func (r *Router) hasShares(s *session) bool {
	if r.cfg.Shares == nil || !r.cfg.Shares(s.owner) {
		return false
	}
	return s.conn != nil || r.cfg.Now().Sub(s.disconnectedAt) < sharesAfterDisconnect
}

// arrival returns what decides about msg of publisher for s. Callers hold r.mu.
func (r *Router) arrival(s *session, publisher string, msg *shared, e *entry) arrival {
	add := amount{1, msg.bytes + entryBytes}
	out := arrival{
		qos: e.qos, shares: r.hasShares(s),
		queue: s.queued.plus(add), own: s.publishers[publisher].plus(add),
		limit:      amount{r.cfg.MaxQueuedMessages, r.cfg.MaxQueuedBytes},
		total:      r.totalBytes + add.bytes,
		totalOwn:   r.publishers[publisher].bytes + add.bytes,
		totalLimit: r.cfg.MaxTotalBytes,
	}
	if e.stored {
		return out
	}
	out.memory, out.memoryLimit = s.memory+add.bytes, r.cfg.MaxQueuedMemory
	out.allMemory, out.ownMemory, out.maximum = r.totalMemory+add.bytes, r.publishers[publisher].memory+add.bytes, r.cfg.MaxTotalMemory
	if e.qos > 0 && out.memoryLimit > 0 { // nothing of this queue is on disk
		out.limit.bytes = min(out.limit.bytes, out.memoryLimit)
	}
	return out
}

package session

import "maps"

// Reason is why a connection or a session ended, or why a message was dropped.
type Reason string

// The reasons.
const (
	// Reasons for the end of connections and sessions. The end of a session drops its queue.
	CleanStart      Reason = "clean_start"       // the client asked for a clean start
	Disconnected    Reason = "disconnected"      // the connection ended, and with it QoS 0 messages or the session
	Expired         Reason = "session_expired"   // the client did not reconnect in time
	QueueFull       Reason = "queue_full"        // the queue exceeded its limits
	TooManySessions Reason = "too_many_sessions" // the identity has too many sessions
	StoreFull       Reason = "store_full"        // all queues together exceeded their limit, and this one was the largest
	MemoryFull      Reason = "memory_full"       // all queues in memory only exceeded their limit, and this one was the largest
	Unreadable      Reason = "unreadable"        // a queued message cannot be read from disk
	Revoked         Reason = "revoked"           // the client's certificate or password is no longer accepted

	// Reasons for dropping single messages.
	MessageExpired  Reason = "message_expired"   // the message expiry interval elapsed
	TooLarge        Reason = "too_large"         // the message exceeds the client's maximum packet size
	RefusedByClient Reason = "refused_by_client" // the client acknowledged it with an error
	QoS0            Reason = "qos0"              // a QoS 0 message found no room in a queue
)

// Reasons returns every reason for which messages are dropped.
func Reasons() []Reason {
	return []Reason{CleanStart, Disconnected, Expired, QueueFull, TooManySessions, StoreFull, MemoryFull, Unreadable, Revoked, MessageExpired, TooLarge, RefusedByClient, QoS0}
}

// Stats holds current numbers, and counts since the start of the router.
type Stats struct {
	Sessions      int               // current sessions, with and without a connection
	Connected     int               // current connections
	Subscriptions int               // current subscriptions
	Queued        int               // messages in all queues, including sent and unacknowledged ones
	QueuedBytes   int64             // size of the queued messages
	TotalBytes    int64             // what counts against MaxTotalBytes
	MaxTotalBytes int64             // the current limit
	TotalMemory   int64             // what counts against Config.MaxTotalMemory
	Received      uint64            // messages accepted from clients, including wills
	Refused       uint64            // messages refused because the publisher had more than its share of a queue, or too much waits for the store
	Sent          uint64            // messages returned by Next, including repetitions
	Dropped       map[Reason]uint64 // messages that were queued and dropped
}

// Stats returns the current statistics. It visits every session.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.stats
	out.Dropped = maps.Clone(r.stats.Dropped)
	out.TotalBytes, out.MaxTotalBytes, out.TotalMemory = r.totalBytes, r.cfg.MaxTotalBytes, r.totalMemory
	out.Sessions = len(r.sessions)
	for _, s := range r.sessions {
		if s.conn != nil {
			out.Connected++
		}
		out.Subscriptions += len(s.subs)
	}
	return out
}

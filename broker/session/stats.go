package session

import "maps"

// Reason says why a connection or a session ended, or a message was not delivered.
type Reason string

// The reasons.
const (
	// Why connections and sessions end. Messages that wait for a session end with it.
	CleanStart      Reason = "clean_start"       // its client began anew
	Disconnected    Reason = "disconnected"      // the connection ended, and QoS 0 messages or the whole session with it
	Expired         Reason = "session_expired"   // its client did not come back in time
	QueueFull       Reason = "queue_full"        // more was waiting for it than allowed
	TooManySessions Reason = "too_many_sessions" // its identity made too many sessions

	// Why single messages are not delivered.
	MessageExpired  Reason = "message_expired"   // its publisher gave it that long
	TooLarge        Reason = "too_large"         // its receiver takes no packet as large as that
	RefusedByClient Reason = "refused_by_client" // its receiver acknowledged it with an error
)

// Reasons returns every reason for which messages are dropped.
func Reasons() []Reason {
	return []Reason{CleanStart, Disconnected, Expired, QueueFull, TooManySessions, MessageExpired, TooLarge, RefusedByClient}
}

// Stats are figures of a router since it was made.
type Stats struct {
	Sessions      int               // now, with and without clients
	Connected     int               // clients now
	Subscriptions int               // now
	Retained      int               // messages now
	Queued        int               // messages in all queues now, those in flight included
	QueuedBytes   int64             // of these
	Received      uint64            // messages accepted from clients, wills included
	Sent          uint64            // messages given out for sending, repetitions included
	Dropped       map[Reason]uint64 // messages that were queued and will not be delivered
}

// Stats returns the figures of this moment. It looks at every session.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.stats
	out.Dropped = maps.Clone(r.stats.Dropped)
	out.Sessions, out.Retained = len(r.sessions), len(r.retained)
	for _, s := range r.sessions {
		if s.conn != nil {
			out.Connected++
		}
		out.Subscriptions += len(s.subs)
	}
	return out
}

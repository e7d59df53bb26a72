// Package session keeps the sessions of the broker's clients: their subscriptions, and the messages
// queued for them, in order, until the clients acknowledge them. It does not know network
// connections; package broker passes packets in and takes packets out.
//
//	router, err := session.New(session.Config{Store: st, …})
//	conn, present := router.Connect(session.Connect{ID: "agent:c1/x", Expiry: 3600})
//	conn.Subscribe(session.Subscription{Filter: "sources/+/clusters/c1/sourceevents", QoS: 1})
//	for {
//		packet, ok, err := conn.Next() // write it, or return until Connect.Wake is called
//	}
//	conn.Ack(packetID, 0)
//	conn.Disconnect(session.Disconnect{})
//
// transitions.go has the lives of sessions and of the messages in them. admit.go decides about a message that arrives for one session, total.go
// ends sessions when all queues together are full, queue.go has the queue of a session, persist.go what is on disk.
//
// Guarantees:
//
//   - A QoS 1 message is acknowledged to its publisher when it is on disk for every matching
//     session that outlives its connection, and in memory for every other connected session; not before the
//     sessions that have ended are gone from disk.
//   - A session receives its messages in their order of arrival. A QoS 1 message is sent until it
//     is acknowledged: with the same packet identifier and DUP after a reconnect, as a new message
//     after a restart of the broker.
//   - A session that exceeds its limits is ended as a whole: its client finds no session and
//     resyncs (docs/protocol.md, Spec resync). Single QoS 1 messages are never dropped from a full
//     queue; QoS 0 messages that find no room are.
//   - One publisher cannot fill the queue of a source: above half of it, a publisher that has more
//     than an eighth is refused with 0x97. Its message may have reached other sessions.
//   - The same calls at the same times have the same effects in the same order: a Router reads no clock but Config.Now,
//     starts no goroutine and takes no random decision.
//   - A will is kept in memory only: a broker that stops publishes no wills.
package session

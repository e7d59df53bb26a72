// Package session is what the broker remembers of its clients: their subscriptions, and the
// messages that wait for them, in order, until the clients acknowledge them. It knows
// nothing of connections; package broker puts packets in and takes packets out.
//
//	router, err := session.New(session.Config{Store: st, …})
//	conn, present := router.Connect(session.Connect{ID: "agent:c1/x", Expiry: 3600})
//	conn.Subscribe(session.Subscription{Filter: "sources/+/clusters/c1/sourceevents", QoS: 1})
//	for {
//		out, ok := conn.Next() // write it, or wait for conn.Wake()
//	}
//	conn.Ack(packetID, 0)
//	conn.Disconnect(session.Disconnect{})
//
// What is promised:
//
//   - A QoS 1 message is acknowledged to its publisher when it is on disk for every session
//     that outlives its connection, and in memory for every other one that is connected.
//   - A session gets its messages in the order in which the broker received them, each of
//     QoS 1 until it is acknowledged; with the same packet identifier and DUP when its client
//     reconnects, as a new message after a restart of the broker.
//   - Messages are never thinned out. A session beyond its limits is ended as a whole, and
//     its client, finding no session, resyncs (docs/protocol.md, Spec resync).
//   - A will is kept in memory only: a broker that ends publishes no wills.
package session

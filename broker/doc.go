// Package broker is an MQTT 5 broker for the topics of the protocol (docs/protocol.md, Topics).
// Every client is the agent of one cluster, one source, or a monitor, and may use only its own
// topics (package acl). A QoS 1 message is acknowledged once it is on disk for every session that
// outlives its connection (package session).
//
//	b, err := broker.New(broker.Config{
//		Listeners: []broker.Listener{{Address: "127.0.0.1:1883"}},
//		Users:     []broker.User{{Username: "cluster1", PasswordHash: hash, Role: acl.Agent}},
//		DataDir:   "/var/lib/work-broker",
//	})
//	err = b.Run(ctx)
//
// Package packet decodes and encodes MQTT. A client has two goroutines: one reads its packets and
// passes them to its session, the sender writes what the session has for it. work-broker.yaml in
// this directory shows every key of the configuration file. Package brokertest starts a broker in a
// test.
package broker

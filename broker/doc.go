// Package broker is an MQTT 5 broker that knows the topics of the protocol (docs/protocol.md,
// Topics): every client is the agent of one cluster, one source, or a monitor, and can
// reach nothing but its own topics (package acl). Messages of QoS 1 are acknowledged once
// they are on disk for every session that outlives its connection, and are never thinned
// out (package session).
//
//	b, err := broker.New(broker.Config{
//		Listeners: []broker.Listener{{Address: "127.0.0.1:1883"}},
//		Users:     []broker.User{{Username: "cluster1", PasswordHash: hash, Role: acl.Agent}},
//		DataDir:   "/var/lib/work-broker",
//	})
//	err = b.Run(ctx)
//
// The MQTT protocol itself is spoken by mochi-mqtt; work-broker.yaml beside this file shows
// every key of the configuration file, and package brokertest starts a broker in a test.
package broker

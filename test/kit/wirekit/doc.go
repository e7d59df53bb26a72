// Package wirekit speaks the wire protocol in tests, over any transport.
//
// [Agent] is a scripted agent: it reports whatever it is sent as applied, in the order and with the
// faults that a test configures.
//
//	agent := wirekit.StartAgent(t, wirekit.AgentConfig{
//		Cluster: "cluster1", Source: "hub1", Topics: topics, Transport: broker.Client("agent1"),
//	})
//	agent.Await(t, "the spec", func(s *wire.Spec) bool { return s.Generation == 1 })
//
// [Peer] sends and receives single messages: a scripted source, or an observer.
//
//	source := wirekit.Connect(t, broker.Client("hub1"), "sources/hub1/clusters/+/agentevents")
//	source.Publish(t, "sources/hub1/clusters/cluster1/sourceevents", spec, nil)
//	wirekit.Next(t, source, "applied", func(s *wire.Status) bool { return s.Generation == 1 })
//
// It imports pkg/wire, pkg/transport and the API types, and none of the packages that use them.
package wirekit

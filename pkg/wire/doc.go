// Package wire is the protocol that sources and agents speak: ManifestWork
// specs, statuses and resync requests as CloudEvents. It is pure: no I/O, no
// clock, no goroutines. docs/protocol.md describes the protocol; names here
// refer to its sections.
//
// Every event is one of four messages, a [Spec], a [Status], a [SpecResync] or
// a [StatusResync]. [Encode] turns a message into a CloudEvent, [Decode] turns a
// CloudEvent into a message:
//
//	event, err := wire.Encode(&wire.Spec{UID: uid, Generation: 2, Source: "hub1", Cluster: "cluster1",
//		Action: wire.Update, Meta: meta, Bundle: bundle}, time.Now())
//	...
//	message, err := wire.Decode(event)
//	switch m := message.(type) {
//	case *wire.Spec:
//		...
//	}
//
// A spec that cannot be decoded gives a [*DecodeError] that still names the
// work, so that the agent can answer for it instead of dropping it.
//
// [Topics] holds the four topic patterns of a configuration and derives from
// them what an agent or a source subscribes and publishes to. [StatusHash],
// [Sequence] and the Answer methods of the resync requests are the rules by
// which both sides decide what the other one is missing.
package wire

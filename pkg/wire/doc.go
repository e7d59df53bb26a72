// Package wire implements the protocol between sources and agents: ManifestWork specs, statuses,
// resync requests, presence and digests as CloudEvents. It does no I/O, reads no clock and starts no
// goroutines. docs/protocol.md describes the protocol; comments refer to its sections.
//
// An event is one of six messages: [Spec], [Status], [SpecResync], [StatusResync], [Presence] or
// [Digest].
// [Encode] returns the CloudEvent of a message, [Decode] the message of a CloudEvent:
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
// For a spec that cannot be decoded, Decode returns a [*DecodeError] with the identity of the work,
// so that the agent can report the failure in the work's status.
//
// [Topics] contains the four topic patterns of a configuration and derives the topics that agents
// and sources subscribe and publish to. [StatusHash], [Sequence] and the Answer methods of the
// resync requests decide which specs and statuses the other side lacks.
package wire

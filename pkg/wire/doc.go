// Package wire implements the protocol between sources and agents: ManifestWork specs, statuses,
// resync requests, presence and digests as CloudEvents. It does no I/O, reads no clock and starts no
// goroutines. docs/protocol.md describes the protocol; comments refer to its sections.
//
// There are eleven messages, each with its type, its rules and its form on the wire in a file of its own:
//
//   - works: [Spec] and [SpecDelta] from sources, [Status] and [StatusDelta] from agents
//   - after a connect, and when something was lost: [SpecResync], [StatusResync] and [Digest]
//   - who is there: [Presence] of agents, [Instance] of the programs of a source
//   - questions: [DryRun] and [DryRunAnswer]
//
// message.go has the table of all of them by event type, extensions.go the extensions that they share.
//
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

// Package delivery implements a source's side of the protocol: it publishes the works of a source
// to their agents and receives their statuses, over a transport whose connection may be lost and
// restored at any time.
//
// An [Engine] does not store works. It reads them from a [WorkStore], which the hub implements with
// the cache of a Kubernetes API and package source with a store of its own, and writes statuses
// back to it:
//
//	engine, err := delivery.New(delivery.Config{Source: "hub1", Topics: topics, Transport: t, Works: store})
//	...
//	go engine.Run(ctx)
//	...
//	engine.WorkChanged(work.UID) // created, changed, or marked for deletion
//	engine.WorkRemoved(work)     // no longer in the store
//
// # Core and shell
//
// A core decides (core.go). It owns one record of each cluster, which is in one state ([ClusterState]), and one of
// each work, which is in one phase (transitions.go). It takes inputs: a work has changed, a message was received,
// an action has ended, time has passed. It returns actions: publish a work, answer and ask a cluster, store a status,
// and events that somebody may want to know. It is pure.
//
// The Engine is the shell around it, which carries out actions and passes their ends to the core: it publishes what is
// planned from the newest work (plan.go), reads the store for an answer, and writes to it. Whoever wants to know
// what happens, the metrics and the audit log too, observes one stream of events, in order, see [Event].
//
// inputs.go has what the core does when something has happened, attempt.go when a publish has ended, asks.go when
// what is asked, answered and stored begins and ends (jobs.go has their queues), answer.go how each work of a resync
// request is answered, divergence.go what follows from digests, cluster.go and work.go the records. question.go is what a cluster asks for,
// expected.go what its agent should hold, sequence.go the order of its statuses, overtake.go the wait before another program's
// generation is exceeded, waiting.go and quota.go the bounds of one cluster, roundtrip.go how long an answer takes, distrust.go
// whose statuses are refused. verdict.go says whether a message counts, refusal.go why a spec cannot be published, delta.go and
// specdelta.go keep what a delta is made from. publish.go,
// receive.go, status.go, resync.go and digest.go are of the shell, in the order of docs/protocol.md: they read works,
// compute hashes, encode and publish. A test holds that files of the core know nothing of the shell.
//
// # Delivery guarantees
//
// The newest state of every work reaches its cluster, whichever messages are lost. At most one
// publish per work is in flight, many works are published concurrently, and clusters are served
// round robin, so that no cluster waits behind another. Without a connection, changes wait for the
// next one, and only the newest state of each work is published then.
//
// A publish is confirmed when the agent sends a status of that generation, or lists the generation
// in a resync request. Unconfirmed works are published again at the next connect. On the same
// connection they are published again, with growing pauses, if the cluster sent other messages
// since and none about the work. Nothing is published again to a cluster that is silent: its agent
// asks for specs when it reconnects. A change of labels or annotations alone does not change the
// generation, so the broker's acknowledgement is its only confirmation.
//
// Deletions are published until the agent reports the condition Deleted, also for works that were
// removed from the store before that.
//
// # Rejected statuses and refused publishes
//
// A status is dropped, acknowledged and counted when it comes from another cluster than the work's,
// when the source does not have the work, when its generation is higher than the source's, or when
// a later status was received before (docs/protocol.md, Ordering). A status with Deleted=True of a
// work that is not being deleted is dropped too, and the work is published again.
//
// A publish that the broker refuses is not retried until the spec changes or a new connection may
// accept it. [WorkStore.SetCondition] receives the reason.
//
// # Resync
//
// Every spec resync request is answered, also when there is nothing to send. An id that this source
// does not have is answered with a deletion without metadata (docs/protocol.md, Spec resync), even
// if the request is addressed to all sources: the deletion is published on this source's own topic
// with its own id, so it reaches only agents that serve this source, and an agent that serves
// several sources must not let one source delete the works of another.
//
// The store must be complete before Run: works that are missing from it are deleted from clusters
// that send a resync request, unless [WorkStore].Unknown decides otherwise.
//
// A source with an identity (docs/protocol.md, Source identity) sends it on every spec and status
// resync request. It compares the content hashes that agents list (docs/protocol.md, Content hash),
// and publishes a work as authoritative if the agent holds other content of its generation, or a
// higher generation: after the store was restored from a backup, the store wins. The hash of a spec
// is computed once per generation, and only when an agent lists the work.
//
// On each connect, and whenever an agent requests specs (which it does on each connect of its own),
// the Engine requests from the cluster the statuses that differ from the stored ones. The lists fit
// the broker's packet limit.
package delivery

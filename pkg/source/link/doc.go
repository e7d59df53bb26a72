// Package link is a source's side of the protocol: it keeps agents told what
// works a source has, and the source told how they are, over a transport that
// comes and goes.
//
// A [Link] knows nothing about where works are kept. It reads them from a
// [Works], which a hub backs by the cache of a Kubernetes API and package source
// by a store of its own, and hands back statuses:
//
//	l, err := link.New(link.Config{Source: "hub1", Topics: topics, Transport: t, Works: works})
//	...
//	go l.Run(ctx)
//	...
//	l.Changed(work.UID) // created, changed, or marked for deletion
//	l.Gone(work)        // no longer in Works
//
// # What it promises
//
// Every work's newest state reaches its cluster, whatever is lost in between.
// One publish of a work is under way at a time, many works are published at once,
// and clusters take turns, so that none waits behind another. While there is no
// connection, changes wait for the next one and only the newest goes out.
//
// A publish counts as delivered when the agent says so: by a status of that
// generation, or by listing it in a resync request. What is not confirmed is
// published again at the next connect, and on a standing connection when the
// cluster was heard from meanwhile and still says nothing about the work, with
// growing pauses. A cluster that is silent is left alone: it asks when it comes
// back. A change of labels or annotations alone has no generation of its own, so
// the broker's word is all the confirmation it gets.
//
// Deletions are repeated until the agent reports Deleted, also for works that
// have vanished from Works before that.
//
// # What it refuses
//
// A status is dropped, acknowledged and counted when it comes from another
// cluster than the work's, for a work that the source does not have, for a
// generation that the source has not made yet, or when a later one was seen
// already (docs/protocol.md, Ordering). Deleted for a work that is not being
// deleted is not believed either: the work is published again.
//
// What the broker will not take is not tried again until the spec changes or the
// next connection promises better; [Works.Refused] is told why.
//
// # Resync
//
// Every spec resync request is answered, also with nothing. An id that this
// source does not have is answered by a deletion without metadata, as the
// protocol asks (docs/protocol.md, Spec resync), even when the request is
// addressed to all sources: the deletion goes out on this source's own topic and
// in its own name, so it reaches only agents that serve this source, and an agent
// that serves several must not let one source delete another's works.
//
// Works must be complete before Run, since whatever is missing from it then would
// be deleted from clusters that ask.
//
// At each connect, and whenever an agent asks for specs (which is what it does
// after a connect of its own), the cluster is asked for the statuses that differ
// from those held, in lists that fit the broker's packet limit.
package link

// Package observe keeps what the agent's cluster holds in memory, from watches.
//
// A [View] holds one resource type: what a watch delivers, and, ahead of it, what
// the agent's own writes returned. [Objects] holds a View of every resource type
// that some work is interested in, each from one watch that selects by the
// agent's label, and tells which works a change concerns:
//
//	objects := observe.NewObjects(observe.ObjectsConfig[Key]{Client: client, Selector: selector, Changed: changed})
//	go objects.Run(ctx)
//	objects.Follow(key, nil, refs) // watches their types, and has Changed called with key
//	live := objects.Get(ref)    // from memory
//	objects.Learn(ref, updated) // the answer to a write of ours
//
// [Named] is for the few objects that do not carry the label: a watch each, by
// name, and no more than it is allowed.
//
//	named := observe.NewNamed(observe.NamedConfig[Key]{Client: client, Max: 50, Changed: queue.Add})
//	go named.Run(ctx)
//	named.Follow(key, nil, refs)
//	live := named.Get(ref) // Unknown: not watched, read it
//
// Nothing here polls: where a type may not be watched, Get answers that it does
// not know, and [Objects.Watched] reports it, so that the caller can read.
package observe

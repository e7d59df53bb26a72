// Package observe watches the objects that works declare.
//
// With a label selector there is one watch for each resource type. Each change is reported to the
// names that follow the object:
//
//	objects := observe.New(observe.Config{Client: client, Selector: selector, Max: math.MaxInt, Changed: changed})
//	go objects.Run(ctx)
//	objects.Follow(name, nil, refs) // watches their types, and has Changed called with name
//	live := objects.Get(ref)        // from memory
//	objects.Learn(ref, updated)     // the response to a write
//
// Without one there is a watch for each object, up to a limit: for the few without the agent's label.
//
//	named := observe.New(observe.Config{Client: client, Max: 50, Changed: changed})
//	...
//	live := named.Get(ref) // Unknown: not watched, read it
//
// Nothing here polls. Where a type cannot be watched, Get returns Unknown, and [Watches.Watched]
// returns false, so that the caller reads the object.
package observe

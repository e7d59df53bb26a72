// Package observe watches the objects that works declare.
//
// [Objects] has one watch for each resource type, which selects the agent's label. It reports each
// change to the names that follow the object:
//
//	objects := observe.NewObjects(observe.ObjectsConfig{Client: client, Selector: selector, Changed: changed})
//	go objects.Run(ctx)
//	objects.Follow(name, nil, refs) // watches their types, and has Changed called with name
//	live := objects.Get(ref)        // from memory
//	objects.Learn(ref, updated)     // the response to a write
//
// [Named] has a watch for each object, for the few objects without the label, up to a limit:
//
//	named := observe.NewNamed(observe.NamedConfig{Client: client, Max: 50, Changed: enqueue})
//	go named.Run(ctx)
//	named.Follow(name, nil, refs)
//	live := named.Get(ref) // Unknown: not watched, read it
//
// Nothing here polls. Where a type cannot be watched, Get returns Unknown, and [Objects.Watched]
// returns false, so that the caller reads the object.
package observe

// Package replicaset keeps ManifestWorkReplicaSets: it makes a ManifestWork from
// the template of a set in the namespace of every cluster that the set's
// placements chose, as fast as their rollout strategies allow, brings changes to
// them, deletes those that are not wanted any more, and sums up in the status of
// the set how they do.
//
//	controller, err := replicaset.New(replicaset.Config{Works: cache, Client: client, Logger: logger})
//	...
//	err = controller.Run(ctx)
//
// Everything is decided by one pure function, decide, from the set, its
// placements and their decisions, its works, and the time; which clusters a
// rollout reaches is for package rollout to say. A pass over a set looks these up
// in caches, decides, writes the status if it is another, and then the works in
// parallel. The first change of a set is answered at once; those within the 200 ms
// after it are answered together.
//
// A work's name follows from its set and placement ([WorkName]), so that a cluster
// can not get a second one, even if the caches lag behind or the hub is
// restarted between two passes. Works that were made under other names, as by
// Open Cluster Management, are found by their labels and used as they are.
//
// A cluster that two placements of one set chose gets a work from each. Its agent
// applies the same objects for both, and removes them with the last.
package replicaset

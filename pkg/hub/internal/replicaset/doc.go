// Package replicaset serves ManifestWorkReplicaSets. For each set it creates a ManifestWork from
// the template in the namespace of every cluster that the placements of the set selected, as fast
// as their rollout strategies allow. It updates these works when the template changes, deletes the
// works that are no longer wanted, and summarizes their state in the status of the set.
//
// A pure function, decide, makes all decisions from the set, its placements and their decisions,
// its works and the time. Package rollout decides which clusters a rollout reaches. A reconcile
// reads these objects from caches, decides, writes the status if it differs, and then writes the
// works in parallel. The first change of a set is handled at once. Changes within the following 200
// ms are handled together.
//
// The name of a work follows from its set and its placement ([WorkName]), so that a cluster cannot
// get a second one, even if the caches are behind or the hub restarts between two reconciles. Works
// with other names, as Open Cluster Management creates them, are found by their labels and kept.
//
// A cluster that two placements of a set selected gets a work from each. Its agent applies the same
// objects for both, and deletes them with the last.
package replicaset

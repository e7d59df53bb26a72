// Package clustersets answers which clusters a namespace of the hub may choose from, and serves
// ManagedClusterSets and ManagedClusterSetBindings.
//
// A Placement, and a ManifestWorkReplicaSet, reaches only the clusters of sets that are bound to its
// namespace ([Bindings.Of]). Whether a cluster belongs to a set is a pure function of the set and of
// the labels of the cluster ([Set.Has]).
//
// [Sets] writes the condition ClusterSetEmpty of each set, and creates the sets default and global.
// [BindingStatus] writes the condition Bound of each binding. All state is on the API server.
package clustersets

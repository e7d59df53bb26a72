// +k8s:deepcopy-gen=package
// +groupName=cluster.open-cluster-management.io

// Package v1beta2 contains the types for sets of clusters, of the API group
// cluster.open-cluster-management.io.
//
// A [ManagedClusterSet] is a set of clusters. A [ManagedClusterSetBinding] in a namespace gives this
// namespace the right to the clusters of a set: its Placements choose from them, and from no others.
//
// The JSON names are those of Open Cluster Management. Register the types with [AddToScheme]. The
// CustomResourceDefinitions are in deploy/crds, clients in pkg/client. Values of these types are
// plain data: not safe for concurrent writes, copied with DeepCopy.
package v1beta2

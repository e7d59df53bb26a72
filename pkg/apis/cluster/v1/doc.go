// +k8s:deepcopy-gen=package
// +groupName=cluster.open-cluster-management.io

// Package v1 contains the stable types of the API group cluster.open-cluster-management.io.
//
// A [ManagedCluster] represents one cluster: whether an administrator has accepted it, the labels
// and claims by which placements choose it, and whether it is available. The namespace with its
// name contains its works.
//
// The JSON names are those of Open Cluster Management, so that its users, YAML and clients work
// unchanged:
//
//	cluster, err := clients.ClusterV1().ManagedClusters().Get(ctx, "cluster1", metav1.GetOptions{})
//	available := meta.IsStatusConditionTrue(cluster.Status.Conditions, v1.ManagedClusterConditionAvailable)
//
// Register the types with [AddToScheme]. The CustomResourceDefinitions are in deploy/crds, clients
// in pkg/client. Values of these types are plain data: not safe for concurrent writes, copied with
// DeepCopy.
package v1

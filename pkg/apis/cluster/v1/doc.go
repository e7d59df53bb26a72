// +k8s:deepcopy-gen=package
// +groupName=cluster.open-cluster-management.io

// Package v1 holds the stable types of the API group cluster.open-cluster-management.io.
//
// A [ManagedCluster] is what the hub knows about one cluster: whether an administrator lets it in, its labels and
// claims, by which it is chosen, and whether it is there. The namespace of its name holds its works.
//
// The JSON names are those of Open Cluster Management, so that its users, YAML and clients work unchanged:
//
//	cluster, err := clients.ClusterV1().ManagedClusters().Get(ctx, "cluster1", metav1.GetOptions{})
//	available := meta.IsStatusConditionTrue(cluster.Status.Conditions, v1.ManagedClusterConditionAvailable)
//
// Register the types with [AddToScheme]. The CustomResourceDefinitions are in deploy/crds, clients in pkg/client.
// Values of these types are plain data: not safe for concurrent writes, copied with DeepCopy.
package v1

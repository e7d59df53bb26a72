// +k8s:deepcopy-gen=package
// +groupName=cluster.open-cluster-management.io

// Package v1beta1 contains the types for choosing clusters, of the API group
// cluster.open-cluster-management.io.
//
// A [Placement] defines which clusters to choose: by labels, claims and expressions, how many, which
// rather than others, and in which groups. The chosen clusters are in [PlacementDecision] objects in its namespace, at most
// [MaxDecisions] clusters in each. Consumers of a set of clusters read the decisions:
//
//	selector := v1beta1.PlacementLabel + "=" + placement.Name
//	decisions, err := clients.ClusterV1beta1().PlacementDecisions(placement.Namespace).
//		List(ctx, metav1.ListOptions{LabelSelector: selector})
//
// The JSON names are those of Open Cluster Management.
//
// Register the types with [AddToScheme]. The CustomResourceDefinitions are in deploy/crds, clients
// in pkg/client. Values of these types are plain data: not safe for concurrent writes, copied with
// DeepCopy.
package v1beta1

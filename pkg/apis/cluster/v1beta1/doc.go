// +k8s:deepcopy-gen=package
// +groupName=cluster.open-cluster-management.io

// Package v1beta1 holds the types by which clusters are chosen, of the API group cluster.open-cluster-management.io.
//
// A [Placement] says which clusters are wanted: by labels, by claims, how many, and in which groups. What was chosen
// is written to [PlacementDecision] objects beside it, at most [MaxDecisions] clusters in each, so that everything
// that works on a set of clusters reads decisions and need not know how they came about:
//
//	selector := v1beta1.PlacementLabel + "=" + placement.Name
//	decisions, err := clients.ClusterV1beta1().PlacementDecisions(placement.Namespace).
//		List(ctx, metav1.ListOptions{LabelSelector: selector})
//
// The JSON names are those of Open Cluster Management. Its prioritizerPolicy and spreadPolicy are not served here:
// the schema does not have them, and a strict client is told so.
//
// Register the types with [AddToScheme]. The CustomResourceDefinitions are in deploy/crds, clients in pkg/client.
// Values of these types are plain data: not safe for concurrent writes, copied with DeepCopy.
package v1beta1

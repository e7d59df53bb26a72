// +k8s:deepcopy-gen=package
// +groupName=work.open-cluster-management.io

// Package v1alpha1 contains the types of the API group work.open-cluster-management.io for sets of
// works.
//
// A [ManifestWorkReplicaSet] is one ManifestWork for many clusters: the hub creates a work from its
// template in the namespace of every cluster that its placements chose, by the rollout strategy of
// each placement, and summarizes the works in its status.
//
//	set, err := clients.WorkV1alpha1().ManifestWorkReplicaSets("shop").Get(ctx, "till", metav1.GetOptions{})
//	done := meta.IsStatusConditionTrue(set.Status.Conditions, v1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut)
//
// The JSON names are those of Open Cluster Management, so that its users, YAML and clients work
// unchanged. Register the types with [AddToScheme]. The CustomResourceDefinitions are in
// deploy/crds, clients in pkg/client. Values of these types are plain data: not safe for concurrent
// writes, copied with DeepCopy.
package v1alpha1

// +k8s:deepcopy-gen=package
// +groupName=cluster.open-cluster-management.io

// Package v1alpha1 contains types of the API group cluster.open-cluster-management.io: what placements
// choose clusters by, and how a rollout goes over them.
//
// An [AddOnPlacementScore] on the hub has scores of a cluster. A [ClusterClaim] on a cluster is a
// property that its agent reports to the hub. A ManifestWorkReplicaSet carries a [RolloutStrategy] for
// each of its placements:
//
//	strategy := v1alpha1.RolloutStrategy{
//		RolloutType: v1alpha1.Progressive,
//		Progressive: &v1alpha1.RolloutProgressive{
//			RolloutConfig:  v1alpha1.RolloutConfig{MaxFailures: intstr.FromString("5%")},
//			MaxConcurrency: intstr.FromInt32(10),
//		},
//	}
//
// pkg/hub/internal/rollout implements the strategies. Register the types with [AddToScheme]. The
// CustomResourceDefinitions are in deploy/crds, a client of AddOnPlacementScores in pkg/client. Values of these types are plain data: not safe for
// concurrent writes, copied with DeepCopy.
package v1alpha1

// +k8s:deepcopy-gen=package
// +groupName=cluster.open-cluster-management.io

// Package v1alpha1 contains the types that describe a rollout over clusters, of the API group
// cluster.open-cluster-management.io. They have no objects of their own: a ManifestWorkReplicaSet
// carries a [RolloutStrategy] for each of its placements.
//
//	strategy := v1alpha1.RolloutStrategy{
//		RolloutType: v1alpha1.Progressive,
//		Progressive: &v1alpha1.RolloutProgressive{
//			RolloutConfig:  v1alpha1.RolloutConfig{MaxFailures: intstr.FromString("5%")},
//			MaxConcurrency: intstr.FromInt32(10),
//		},
//	}
//
// pkg/hub/internal/rollout implements the strategies. Values of these types are plain data: not safe for
// concurrent writes, copied with DeepCopy.
package v1alpha1

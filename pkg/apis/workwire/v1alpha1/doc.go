// +k8s:deepcopy-gen=package
// +groupName=workwire.dev

// Package v1alpha1 contains the types of the API group workwire.dev: what the hub stores that Open
// Cluster Management has no type for.
//
// A [ManifestWorkReplicaSetRevision] is an earlier template of a ManifestWorkReplicaSet, to which a
// rollout can be undone. Package revisions reads them and undoes rollouts. A [WorkOverride] changes the
// template of a ManifestWorkReplicaSet for some of its clusters; package overrides evaluates it. A [RolloutPlan] says in
// which order and when the template reaches its clusters.
//
// Register the types with [AddToScheme]. The CustomResourceDefinitions are in deploy/crds, clients
// in pkg/client. Values of these types are plain data: not safe for concurrent writes, copied with
// DeepCopy.
package v1alpha1

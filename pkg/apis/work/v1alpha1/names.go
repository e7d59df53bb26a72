package v1alpha1

// ManifestWorkReplicaSetFinalizer holds a ManifestWorkReplicaSet until its works are deleted. The
// labels of its works are in work/v1.
const ManifestWorkReplicaSetFinalizer = "work.open-cluster-management.io/manifest-work-cleanup"

// RolledOutAtAnnotationKey annotates a work of a ManifestWorkReplicaSet with the time, as RFC 3339,
// at which the hub gave it the template that it has. Rollouts measure deadlines from then.
const RolledOutAtAnnotationKey = "workwire.dev/rolled-out-at"

// Condition types of a ManifestWorkReplicaSet.
const (
	// ManifestWorkReplicaSetConditionPlacementVerified is True when every placement exists and
	// chose a cluster.
	ManifestWorkReplicaSetConditionPlacementVerified = "PlacementVerified"
	// ManifestWorkReplicaSetConditionPlacementRolledOut is True when every chosen cluster succeeded
	// with the current template.
	ManifestWorkReplicaSetConditionPlacementRolledOut = "PlacementRolledOut"
	// ManifestWorkReplicaSetConditionManifestworkApplied is True when all works of the current
	// template are available, and none is progressing or degraded.
	ManifestWorkReplicaSetConditionManifestworkApplied = "ManifestworkApplied"
)

// Reasons of these conditions.
const (
	// ReasonAsExpected (PlacementVerified, ManifestworkApplied True): there is nothing to complain
	// of.
	ReasonAsExpected = "AsExpected"
	// ReasonNotAsExpected (PlacementVerified, ManifestworkApplied False): a strategy cannot be
	// followed; or works are missing, not available or degraded.
	ReasonNotAsExpected = "NotAsExpected"
	// ReasonPlacementDecisionNotFound (PlacementVerified False): a placement does not exist.
	ReasonPlacementDecisionNotFound = "PlacementDecisionNotFound"
	// ReasonPlacementDecisionEmpty (PlacementVerified, ManifestworkApplied False): no cluster is
	// chosen.
	ReasonPlacementDecisionEmpty = "PlacementDecisionEmpty"
	// ReasonProgressing (PlacementRolledOut False): clusters have yet to succeed.
	ReasonProgressing = "Progressing"
	// ReasonComplete (PlacementRolledOut True): every cluster succeeded.
	ReasonComplete = "Complete"
	// ReasonProcessing (ManifestworkApplied False): works are progressing, and none is degraded.
	ReasonProcessing = "Processing"
	// ReasonInvalidManifestWorkName (ManifestworkApplied False): <namespace>.<name> of the set is
	// no label value.
	ReasonInvalidManifestWorkName = "InvalidManifestWorkName"
)

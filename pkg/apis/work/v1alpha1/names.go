package v1alpha1

// ManifestWorkReplicaSetFinalizer holds a ManifestWorkReplicaSet until its works are deleted. The
// labels of its works are in work/v1.
const ManifestWorkReplicaSetFinalizer = "work.open-cluster-management.io/manifest-work-cleanup"

// RolledOutAtAnnotationKey annotates a work of a ManifestWorkReplicaSet with the time, as RFC 3339,
// at which the hub gave it the template that it has, or at which its cluster was to apply it if that was later. Rollouts measure
// deadlines from then.
const RolledOutAtAnnotationKey = "workwire.dev/rolled-out-at"

// RolloutSuccessAnnotationKey annotates a ManifestWorkReplicaSet with what a cluster must report to have
// succeeded: RolloutSuccessAvailable, or anything else for the default, that the objects are ready.
const (
	RolloutSuccessAnnotationKey = "workwire.dev/rollout-success"
	RolloutSuccessAvailable     = "Available"
)

// OnFailureAnnotationKey annotates a ManifestWorkReplicaSet with what happens when its rollout fails: OnFailureRollback,
// or by default nothing more than that it stops.
const (
	OnFailureAnnotationKey = "workwire.dev/on-failure"
	OnFailureRollback      = "Rollback"
)

// Annotations of a ManifestWorkReplicaSet about what a new template would change (docs/preview.md).
const (
	// PreviewAnnotationKey annotates a set of which no cluster gets a template before its preview was looked at: PreviewRequired.
	// Any other value holds the template too.
	PreviewAnnotationKey = "workwire.dev/preview"
	PreviewRequired      = "Required"
	// PreviewLimitAnnotationKey annotates a set with how much a template may change on each cluster without an approval, such
	// as "changed=5,deleted=0".
	PreviewLimitAnnotationKey = "workwire.dev/preview-limit"
	// PreviewedAnnotationKey annotates a set with what the preview of a template has found, as JSON. `workctl diff set
	// --record` writes it.
	PreviewedAnnotationKey = "workwire.dev/previewed"
)

// RolloutPlanAnnotationKey annotates a ManifestWorkReplicaSet with the name of the RolloutPlan, in its namespace, that says
// in which order and when its template reaches the clusters.
const RolloutPlanAnnotationKey = "workwire.dev/rollout-plan"

// AllowRemovalsAnnotationKey annotates a ManifestWorkReplicaSet with the number of works whose deletion may
// go on although the condition RemovalsHeld holds it.
const AllowRemovalsAnnotationKey = "workwire.dev/allow-removals"

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
	// ManifestWorkReplicaSetConditionRemovalsHeld is True while works are not deleted although their
	// clusters are no longer chosen, because they are many and nobody has edited the set or a placement.
	ManifestWorkReplicaSetConditionRemovalsHeld = "RemovalsHeld"
	// ManifestWorkReplicaSetConditionProgressing is True while the template reaches clusters, Unknown
	// while the rollout is paused, and False otherwise. Its message says which clusters it waits for,
	// and why. Its transition time is when its status or reason changed last.
	ManifestWorkReplicaSetConditionProgressing = "Progressing"
	// ManifestWorkReplicaSetConditionReady is True when every chosen cluster succeeded with the template of
	// status.observedGeneration, and nothing holds the set. Its reason is otherwise that of Progressing, or RemovalsHeld.
	ManifestWorkReplicaSetConditionReady = "Ready"
	// ManifestWorkReplicaSetConditionStalled is True, with reason and message of Ready, while the set does not go on by
	// itself: failures stop it, removals are held, or its spec is invalid. It is absent otherwise.
	ManifestWorkReplicaSetConditionStalled = "Stalled"
	// ManifestWorkReplicaSetConditionRolledBack is True while clusters receive an earlier template because the rollout of
	// that of the set has failed, and False where OnFailureAnnotationKey asks for what cannot be done. Its message says why. A
	// set that never went back does not have it.
	ManifestWorkReplicaSetConditionRolledBack = "RolledBack"
	// ManifestWorkReplicaSetConditionOverridesRendered is False while WorkOverrides of the set fail for some clusters. A
	// set without WorkOverrides does not have the condition.
	ManifestWorkReplicaSetConditionOverridesRendered = "OverridesRendered"
	// ManifestWorkReplicaSetConditionStaged is True when every stage of the RolloutPlan of the set is complete. Its message
	// has a line for each stage. A set without a plan does not have it.
	ManifestWorkReplicaSetConditionStaged = "Staged"
	// ManifestWorkReplicaSetConditionStopped is True while failures stop the rollout. A set whose
	// rollout never stopped does not have it.
	ManifestWorkReplicaSetConditionStopped = "Stopped"
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
	// ReasonComplete (PlacementRolledOut True, Progressing False): every cluster succeeded.
	ReasonComplete = "Complete"
	// ReasonRollingOut (Progressing True): clusters have yet to get the template, or to succeed.
	ReasonRollingOut = "RollingOut"
	// ReasonSoaking (Progressing True): all that the rollout waits for is minSuccessTime, or the soak time of a stage.
	ReasonSoaking = "Soaking"
	// ReasonPaused (Progressing Unknown): the annotation workwire.dev/paused holds the rollout.
	ReasonPaused = "Paused"
	// ReasonWaitsForPreview (Progressing Unknown): clusters have yet to get the template, which waits for its preview, or for
	// the approval of it.
	ReasonWaitsForPreview = "WaitsForPreview"
	// ReasonStopped (Progressing False): more clusters failed than allowed.
	ReasonStopped = "Stopped"
	// ReasonRollingBack (Progressing True): the rollout has failed, and an earlier template reaches the clusters.
	ReasonRollingBack = "RollingBack"
	// ReasonRolledBack (Progressing False): every cluster succeeded with an earlier template in place of that of the set.
	ReasonRolledBack = "RolledBack"
	// ReasonNoProvenRevision (RolledBack False): no earlier template succeeded everywhere it was, or the failing one did itself.
	ReasonNoProvenRevision = "NoProvenRevision"
	// ReasonInvalidAnnotation (RolledBack False): the value of the annotation workwire.dev/on-failure is not known.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonOverrideFailed (OverridesRendered, Progressing False): the message names cluster, rule and expression.
	ReasonOverrideFailed = "OverrideFailed"
	// ReasonWaitsForApproval (Progressing True): the next stage of the RolloutPlan waits until somebody approves it.
	ReasonWaitsForApproval = "WaitsForApproval"
	// ReasonOutsideWindow (Progressing True): no window of the RolloutPlan is open for the clusters that come next.
	ReasonOutsideWindow = "OutsideWindow"
	// ReasonFrozen (Progressing True): the RolloutPlan has a freeze now.
	ReasonFrozen = "Frozen"
	// ReasonEarlierStage (Progressing True): a stage before it is not complete.
	ReasonEarlierStage = "EarlierStage"
	// ReasonStagedAhead (Progressing True): clusters have the template, and apply it when their window opens.
	ReasonStagedAhead = "StagedAhead"
	// ReasonInvalidPlan (Progressing, Staged False): the RolloutPlan does not exist, or is invalid. Nothing starts.
	ReasonInvalidPlan = "InvalidPlan"
	// ReasonNoClusters (Progressing False): no cluster is chosen.
	ReasonNoClusters = "NoClusters"
	// ReasonInvalid (Progressing False): the set, a strategy or a placement must be changed first.
	ReasonInvalid = "Invalid"
	// ReasonTooManyFailures (Stopped, RolledBack True): the message names the clusters.
	ReasonTooManyFailures = "TooManyFailures"
	// ReasonTestFailed (Stopped, RolledBack True): the same, and a test of the stage has timed out on some of the clusters; the
	// message says which, and on how many.
	ReasonTestFailed = "TestFailed"
	// ReasonProcessing (ManifestworkApplied False): works are progressing, and none is degraded.
	ReasonProcessing = "Processing"
	// ReasonTooManyRemovals (RemovalsHeld True): the message names the clusters.
	ReasonTooManyRemovals = "TooManyRemovals"
	// ReasonInvalidManifestWorkName (ManifestworkApplied False): <namespace>.<name> of the set is
	// no label value.
	ReasonInvalidManifestWorkName = "InvalidManifestWorkName"
)

// Reasons of the events on a ManifestWorkReplicaSet, besides those of its conditions and [ManifestWorkReplicaSetConditionRemovalsHeld].
const (
	EventRolledOut         = "RolledOut"
	EventGroupRolledOut    = "GroupRolledOut"
	EventRolloutPaused     = "RolloutPaused"
	EventRolloutResumed    = "RolloutResumed"
	EventRolloutStopped    = "RolloutStopped"
	EventStageApproved     = "StageApproved"
	EventNewTemplate       = "NewTemplate"
	EventRevisionNotStored = "RevisionNotStored"
	EventWriteFailed       = "WriteFailed"
)

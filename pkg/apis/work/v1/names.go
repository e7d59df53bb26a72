package v1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizers.
const (
	// ManifestWorkFinalizer holds a ManifestWork on the hub until its objects are gone from the
	// cluster.
	ManifestWorkFinalizer = "cluster.open-cluster-management.io/manifest-work-cleanup"
	// AppliedManifestWorkFinalizer holds an AppliedManifestWork until the objects it lists are
	// gone.
	AppliedManifestWorkFinalizer = "cluster.open-cluster-management.io/applied-manifest-work-cleanup"
)

// Labels and annotations.
const (
	// OriginalSourceLabelKey labels a work held by an agent, and its AppliedManifestWork, with the
	// id of the source that it came from.
	OriginalSourceLabelKey = "cloudevents.open-cluster-management.io/originalsource"
	// DataTypeAnnotationKey annotates a work held by an agent with the CloudEvents data type that
	// it came as.
	DataTypeAnnotationKey = "cloudevents.open-cluster-management.io/datatype"
	// ReplicaSetLabelKey labels a work generated from a ManifestWorkReplicaSet with
	// "<namespace>.<name>" of it.
	ReplicaSetLabelKey = "work.open-cluster-management.io/manifestworkreplicaset"
	// PlacementNameLabelKey labels a work generated from a ManifestWorkReplicaSet with the name of
	// the Placement.
	PlacementNameLabelKey = "work.open-cluster-management.io/placementname"
	// ManifestConfigSpecHashAnnotationKey annotates an object applied with ignoreFields with the
	// hash of the manifest that was last applied.
	ManifestConfigSpecHashAnnotationKey = "open-cluster-management.io/config-spec-hash"
	// SpecHashAnnotationKey annotates Services and CSIDrivers written by the Update strategy with
	// the hash of their spec.
	SpecHashAnnotationKey = "operator.openshift.io/spec-hash"
)

// RecreateAnnotationKey on a manifest allows the Update strategy to delete the object and create it
// again, where the API server refuses a change because a field is immutable. Its value is
// RecreateOnImmutable.
const (
	RecreateAnnotationKey = "workwire.dev/recreate"
	RecreateOnImmutable   = "OnImmutable"
)

// WaveAnnotationKey on a manifest has the integer of its wave, 0 without it: the objects of a wave are applied once those of all
// lower ones are ready, and removed once those of all higher ones are gone.
const WaveAnnotationKey = "workwire.dev/wave"

// HookAnnotationKey on the manifest of a Job has it run once for each spec of the work: with HookBefore before all other objects,
// with HookAfter once they are ready.
const (
	HookAnnotationKey = "workwire.dev/hook"
	HookBefore        = "Before"
	HookAfter         = "After"
)

// HookSpecAnnotationKey is on the Job of a hook, by the agent: a digest of the spec that it runs for, with a number if the work
// had other specs before.
const HookSpecAnnotationKey = "workwire.dev/hook-spec"

// HookOfAnnotationKey is on the Job of a hook, by the agent: the name of the AppliedManifestWork of its work.
const HookOfAnnotationKey = "workwire.dev/hook-of"

// DependsOnAnnotationKey annotates a ManifestWork with the names, separated by commas, of works of the same cluster and source: its
// spec is applied once their newest specs are applied and ready.
const DependsOnAnnotationKey = "workwire.dev/depends-on"

// DependsOn returns the names in [DependsOnAnnotationKey] of a work, each once.
func DependsOn(work metav1.Object) []string {
	var names []string
	for name := range strings.SplitSeq(work.GetAnnotations()[DependsOnAnnotationKey], ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ReportReadinessAnnotationKey annotates a ManifestWork, with the value "true", for which the agent
// reports Progressing and Degraded, as the well-known condition rules of these names do. The hub publishes its
// works with it, but for those with another value, such as "false".
const ReportReadinessAnnotationKey = "workwire.dev/report-readiness"

// PausedAnnotationKey, with the value PausedValue, stops the delivery of newer specs: on a
// ManifestWork of that work, on a ManagedCluster of all works of the cluster, and on a
// ManifestWorkReplicaSet its rollout. Deletions are not paused. Without it the newest spec is sent.
const (
	PausedAnnotationKey = "workwire.dev/paused"
	PausedValue         = "true"
)

// ReportsReadiness reports whether object carries [ReportReadinessAnnotationKey].
func ReportsReadiness(object metav1.Object) bool {
	return object.GetAnnotations()[ReportReadinessAnnotationKey] == "true"
}

// IsPaused reports whether object carries [PausedAnnotationKey].
func IsPaused(object metav1.Object) bool {
	return object.GetAnnotations()[PausedAnnotationKey] == PausedValue
}

// ForgottenAnnotationKey, with the value ForgottenValue, on a ManifestWork has the hub say nothing about it any more, not even
// that it is deleted: its cluster is gone for good. Should the cluster return, it keeps the objects of the work.
const (
	ForgottenAnnotationKey = "workwire.dev/forgotten"
	ForgottenValue         = "true"
)

// IsForgotten reports whether a work carries [ForgottenAnnotationKey].
func IsForgotten(work metav1.Object) bool {
	return work.GetAnnotations()[ForgottenAnnotationKey] == ForgottenValue
}

// DefaultFieldManager is the field manager of an agent's writes, unless the manifest's strategy
// names another. It is also the User-Agent of its requests.
const DefaultFieldManager = "work-agent"

// MaxManifestsSize is the number of bytes that all manifests of a work together may take up as
// JSON: 500 KiB.
const MaxManifestsSize = 500 * 1024

// Condition types of a ManifestWork.
const (
	// WorkDelivered is written by the hub about the generation in its observedGeneration: True when
	// the agent has answered it, Unknown while the broker has it and no answer has come, False while
	// it cannot be delivered. The reason says why.
	WorkDelivered = "Delivered"
	// WorkReady is written by the hub, unless a condition rule sets it, as the sum of the others: True when the newest spec is
	// applied and its objects are ready, or it is complete. The reason is the cause if it is not.
	WorkReady = "Ready"
	// WorkStalled is written by the hub beside WorkReady, with its reason and message, unless a condition rule sets it. It is
	// True while no retry helps, because the work or its object must be changed, and absent otherwise.
	WorkStalled = "Stalled"
	// WorkApplied is True when every manifest was applied.
	WorkApplied = "Applied"
	// WorkAvailable is True when every object exists on the cluster. It says nothing about
	// readiness.
	WorkAvailable = "Available"
	// WorkProgressing is set by condition rules or ReportReadinessAnnotationKey: True while objects are on their way to the
	// spec.
	WorkProgressing = "Progressing"
	// WorkDegraded is set by condition rules or ReportReadinessAnnotationKey: True when objects do worse than they should.
	WorkDegraded = "Degraded"
	// WorkComplete is set by condition rules only: True when the work is finished and is no longer
	// applied.
	WorkComplete = "Complete"
	// WorkDeleting is True while the objects of a deleted work are being removed.
	WorkDeleting = "Deleting"
	// WorkDeleted is True when they are gone: the last status of a work.
	WorkDeleted = "Deleted"
	// WorkDeletionHeld is True while the agent keeps a work that its source does not know, because the
	// source may have lost its memory.
	WorkDeletionHeld = "DeletionHeld"
	// WorkSpecUntrusted is True if an event of the work was refused because of its signature, until
	// an event of the work is accepted.
	WorkSpecUntrusted = "SpecUntrusted"
	// WorkStatusStored is False on a work whose reported status the hub's API refuses. The next status
	// that it accepts removes the condition.
	WorkStatusStored = "StatusStored"
)

// ReasonStatusRefused is the reason of WorkStatusStored.
const ReasonStatusRefused = "Refused"

// Reasons of WorkReady, beside the causes of package workstate.
const (
	// ReasonObjectsReady (True): the objects are ready, or the work is complete.
	ReasonObjectsReady = "ObjectsReady"
	// ReasonReadinessNotWatched (Unknown): the spec is applied, and nobody watches whether its objects are ready.
	ReasonReadinessNotWatched = "ReadinessNotWatched"
	// ReasonNotReported (False): the agent has not reported yet what it has done.
	ReasonNotReported = "NotReported"
	// ReasonBeingDeleted (False): the work is being deleted.
	ReasonBeingDeleted = "BeingDeleted"
)

// IsOfHub reports whether the hub has written a condition of a work, and not its agent.
func IsOfHub(c *metav1.Condition) bool {
	return c.Type == WorkDelivered || (c.Type == WorkReady || c.Type == WorkStalled) && !strings.HasPrefix(c.Reason, "ConditionRule")
}

// Condition types of one manifest of a ManifestWork.
const (
	// ManifestApplied is True when the manifest was applied.
	ManifestApplied = "Applied"
	// ManifestAvailable is True when the object exists on the cluster.
	ManifestAvailable = "Available"
	// ManifestStatusFeedbackSynced is True when all feedback values could be read, or none is asked
	// for.
	ManifestStatusFeedbackSynced = "StatusFeedbackSynced"
	// ManifestProgressing is set by condition rules only; it aggregates into WorkProgressing.
	ManifestProgressing = "Progressing"
	// ManifestDegraded is set by condition rules only; it aggregates into WorkDegraded.
	ManifestDegraded = "Degraded"
	// ManifestComplete is set by condition rules only: a manifest that is complete is no longer
	// applied.
	ManifestComplete = "Complete"
)

// Reasons of the Delivered condition.
const (
	// ReasonAnswered (True): a status of the agent for this generation has arrived.
	ReasonAnswered = "Answered"
	// ReasonPublished (Unknown): the broker has the spec, and no status has arrived.
	ReasonPublished = "Published"
	// ReasonClusterNotFound (False): no ManagedCluster has the name of the work's namespace.
	ReasonClusterNotFound = "ClusterNotFound"
	// ReasonClusterNotAccepted (False): the hub does not accept the cluster.
	ReasonClusterNotAccepted = "ClusterNotAccepted"
	// ReasonClusterAway (False): the agent of the cluster is not connected.
	ReasonClusterAway = "ClusterAway"
	// ReasonBrokerUnreachable (False): the hub has no connection to the broker.
	ReasonBrokerUnreachable = "BrokerUnreachable"
	// ReasonNobodyListens (False): the broker took the spec, and no client subscribes to its topic.
	ReasonNobodyListens = "NobodyListens"
	// ReasonTooLarge (False): the spec is larger than the protocol or the broker allows.
	ReasonTooLarge = "TooLarge"
	// ReasonAccessRefused (False): the broker does not allow the hub to publish to the cluster.
	ReasonAccessRefused = "AccessRefused"
	// ReasonNoSealKey (False): the cluster must not get data in clear, and the hub has no key of it.
	ReasonNoSealKey = "NoSealKey"
	// ReasonHeldBack (False): the hub does not send the spec now; the message says what holds it.
	ReasonHeldBack = "HeldBack"
	// ReasonPaused (False): PausedAnnotationKey is on the work or its cluster.
	ReasonPaused = "Paused"
)

// Reasons of the Applied condition.
const (
	// ReasonAppliedManifestComplete (True): the manifest was applied.
	ReasonAppliedManifestComplete = "AppliedManifestComplete"
	// ReasonAppliedManifestFailed (False): it was not; the message says why.
	ReasonAppliedManifestFailed = "AppliedManifestFailed"
	// ReasonAppliedManifestSSAIgnoreFieldError (False): its ignoreFields could not be evaluated.
	ReasonAppliedManifestSSAIgnoreFieldError = "AppliedManifestSSAIgnoreFieldError"
	// ReasonFlapping (False, of a manifest and of its work): somebody else changes or deletes the
	// object again and again; the message names both parties. It is also the reason of the events
	// about the object meanwhile.
	ReasonFlapping = "Flapping"
	// ReasonWaitsForWave (Unknown, of a manifest and of its work): it is applied once the objects of lower waves are ready; the
	// message says which are not.
	ReasonWaitsForWave = "WaitsForWave"
	// ReasonWaitsForHook (Unknown, of a manifest and of its work): a hook has not run yet, for this manifest or for others that wait for it.
	ReasonWaitsForHook = "WaitsForHook"
	// ReasonWaitsForWork (Unknown, of a manifest and of its work): a work that this one depends on is not ready; the message names it.
	ReasonWaitsForWork = "WaitsForWork"
	// ReasonStaged (Unknown, of a manifest and of its work): it is applied at the time in [ApplyAtAnnotationKey], which the message names.
	ReasonStaged = "Staged"
	// ReasonWindowMissed (Unknown, of a manifest and of its work): that time was over before it could be applied.
	ReasonWindowMissed = "WindowMissed"
	// ReasonInvalidApplyAt (False): [ApplyAtAnnotationKey] has no such time. Nothing new of the work is applied.
	ReasonInvalidApplyAt = "InvalidApplyAt"
	// ReasonDependencyCycle (False): the work depends on itself, by the works that the message names. Nothing new of it is applied.
	ReasonDependencyCycle = "DependencyCycle"
	// ReasonInvalidDependsOn (False): [DependsOnAnnotationKey] has what no work can have as its name. Nothing new of the work is applied.
	ReasonInvalidDependsOn = "InvalidDependsOn"
	// ReasonHookFailed (False, of a manifest and of its work): the Job of a hook has failed.
	ReasonHookFailed = "HookFailed"
	// ReasonNoUnsealKey (False): the spec is sealed to a key that the agent does not have.
	ReasonNoUnsealKey = "NoUnsealKey"
	// ReasonInvalidSeal (False): the spec was sealed for another work, or is damaged.
	ReasonInvalidSeal = "InvalidSeal"
	// ReasonTooManySpecs (False): the agent holds as many bytes of specs of the source as it may.
	ReasonTooManySpecs = "TooManySpecs"
	// ReasonNotSealed (False): the spec is not sealed, which the agent demands of its source.
	ReasonNotSealed = "NotSealed"
	// ReasonNotAuthorized (False, by the hub, as ReasonTooLarge and ReasonNoSealKey): the broker does not
	// allow the hub to publish to the cluster.
	ReasonNotAuthorized = "NotAuthorized"
	// ReasonInvalidClusterName (False, by the hub): the namespace of the work cannot be part of a topic, or
	// is not the cluster that the topics name.
	ReasonInvalidClusterName = "InvalidClusterName"
	// ReasonAppliedManifestWorkComplete (True): every manifest of the work was applied.
	ReasonAppliedManifestWorkComplete = "AppliedManifestWorkComplete"
	// ReasonAppliedManifestWorkFailed (False): at least one was not.
	ReasonAppliedManifestWorkFailed = "AppliedManifestWorkFailed"
	// ReasonInvalidManifestWork (False): the agent refused the spec as a whole; the message says
	// why. An earlier spec stays in force.
	ReasonInvalidManifestWork = "InvalidManifestWork"
)

// Reasons of the Available condition.
const (
	// ReasonResourceAvailable (True): the object exists.
	ReasonResourceAvailable = "ResourceAvailable"
	// ReasonResourceNotAvailable (False): it does not, or the executor of the work may not get it.
	ReasonResourceNotAvailable = "ResourceNotAvailable"
	// ReasonFetchingResourceFailed (Unknown): it could not be read; the message says why.
	ReasonFetchingResourceFailed = "FetchingResourceFailed"
	// ReasonIncompleteResourceMeta (Unknown): its resource, version or name is not known.
	ReasonIncompleteResourceMeta = "IncompleteResourceMeta"
	// ReasonResourcesAvailable (True): every object of the work exists.
	ReasonResourcesAvailable = "ResourcesAvailable"
	// ReasonResourcesNotAvailable (False): at least one does not.
	ReasonResourcesNotAvailable = "ResourcesNotAvailable"
	// ReasonResourcesStatusUnknown (Unknown): none is known to be missing, but at least one could
	// not be read.
	ReasonResourcesStatusUnknown = "ResourcesStatusUnknown"
)

// Reasons of the StatusFeedbackSynced condition.
const (
	// ReasonNoStatusFeedbackSynced (True): no values are asked for.
	ReasonNoStatusFeedbackSynced = "NoStatusFeedbackSynced"
	// ReasonStatusFeedbackSynced (True): all values are reported.
	ReasonStatusFeedbackSynced = "StatusFeedbackSynced"
	// ReasonStatusFeedbackSyncFailed (False): some could not be read; the message says which and
	// why.
	ReasonStatusFeedbackSyncFailed = "StatusFeedbackSyncFailed"
	// ReasonStatusTooLarge (False, also of the work): the message says what was left out of a status because
	// it exceeded the broker's packet size (docs/protocol.md, Limits).
	ReasonStatusTooLarge = "StatusTooLarge"
)

// Reasons of conditions set by condition rules.
const (
	// ReasonConditionRuleEvaluated (True or False): the rule was evaluated.
	ReasonConditionRuleEvaluated = "ConditionRuleEvaluated"
	// ReasonConditionRuleExpressionError (False): an expression does not compile, failed, or gave
	// no bool.
	ReasonConditionRuleExpressionError = "ConditionRuleExpressionError"
	// ReasonConditionRuleInternalError (Unknown): the rule could not be prepared for evaluation.
	ReasonConditionRuleInternalError = "ConditionRuleInternalError"
	// ReasonConditionRuleInvalid (Unknown): the agent does not know the type of the rule.
	ReasonConditionRuleInvalid = "ConditionRuleInvalid"
	// ReasonConditionRulesAggregated: a condition of the work, made from those of its manifests.
	ReasonConditionRulesAggregated = "ConditionRulesAggregated"
)

// Reasons of the Deleting and Deleted conditions.
const (
	// ReasonWorkDeleting (True): the objects of the work are being removed.
	ReasonWorkDeleting = "WorkDeleting"
	// ReasonManifestsDeleted (True): they are gone.
	ReasonManifestsDeleted = "ManifestsDeleted"
)

// Reasons of the DeletionHeld condition.
const (
	// ReasonSourceIdentityChanged (True): the source has another identity than when it sent the work, or has registered the
	// cluster again.
	ReasonSourceIdentityChanged = "SourceIdentityChanged"
	// ReasonSourceKnowsTooFew (True): the source does not know many other works either.
	ReasonSourceKnowsTooFew = "SourceKnowsTooFew"
)

// Reasons of the SpecUntrusted condition.
const (
	// ReasonUnsigned (True): the event had no signature.
	ReasonUnsigned = "Unsigned"
	// ReasonUnknownKey (True): the key is not trusted.
	ReasonUnknownKey = "UnknownKey"
	// ReasonWrongSource (True): the key is trusted for other sources only.
	ReasonWrongSource = "WrongSource"
	// ReasonInvalidSignature (True): the event is not the one that was signed.
	ReasonInvalidSignature = "InvalidSignature"
)

// Reasons of events, besides those of conditions.
const (
	// EventFinished: the hub has deleted a work because of ttlSecondsAfterFinished.
	EventFinished = "Finished"
	// EventOutdated: the agent holds a newer generation of the work than the hub.
	EventOutdated = "Outdated"
	// EventDriftRepaired: the agent has repaired an object that does not flap.
	EventDriftRepaired = "DriftRepaired"
)

// Annotations of AppliedManifestWorks.
const (
	// HeldAnnotation is set on the AppliedManifestWork of a work whose deletion is held. Its value is
	// the reason.
	HeldAnnotation = "workwire.dev/deletion-held"
	// ReleaseAnnotation releases the deletion of a held work when somebody sets it to "true" on its
	// AppliedManifestWork.
	ReleaseAnnotation = "workwire.dev/release-deletion"
)

// IsRefusal reports whether reason is one that a source gives in the Applied condition of a work whose spec it cannot publish.
func IsRefusal(reason string) bool {
	return reason == ReasonTooLarge || reason == ReasonNotAuthorized || reason == ReasonInvalidClusterName || reason == ReasonNoSealKey
}

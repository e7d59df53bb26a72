package v1

// Condition types of a ManagedCluster.
const (
	// ManagedClusterConditionHubAccepted is True when an administrator of the hub accepts the
	// cluster.
	ManagedClusterConditionHubAccepted = "HubAcceptedManagedCluster"
	// ManagedClusterConditionJoined is True once the agent of the cluster has sent a message.
	ManagedClusterConditionJoined = "ManagedClusterJoined"
	// ManagedClusterConditionAvailable is True while the agent of the cluster is connected.
	ManagedClusterConditionAvailable = "ManagedClusterConditionAvailable"
	// ManagedClusterConditionWorksHeld is True while the agent of the cluster keeps works that the hub
	// does not know, because the hub may have lost its memory.
	ManagedClusterConditionWorksHeld = "WorksHeld"
	// ManagedClusterConditionStatusesTrusted is False while statuses in the name of the cluster are
	// refused because of their signature, if the hub trusts signed ones only. A cluster of which none
	// was ever refused has no such condition.
	ManagedClusterConditionStatusesTrusted = "StatusesTrusted"
	// ManagedClusterConditionNoisy is True while a cluster sends more than its quota: what is over it is dropped or
	// stored later, and other clusters do not wait for it.
	ManagedClusterConditionNoisy = "Noisy"
	// ManagedClusterConditionWorksInSync is False while the works that the agent holds have differed
	// from those of the hub for more than a minute.
	ManagedClusterConditionWorksInSync = "WorksInSync"
)

// Reasons of ManagedClusterConditionHubAccepted and ManagedClusterConditionJoined.
const (
	// ReasonAccepted (HubAcceptedManagedCluster True) and ReasonNotAccepted (False): spec.hubAcceptsClient.
	ReasonAccepted    = "HubClusterAdminAccepted"
	ReasonNotAccepted = "HubClusterAdminNotAccepted"
	// ReasonJoined (ManagedClusterJoined True): the agent has sent a message.
	ReasonJoined = "ManagedClusterJoined"
)

// Reasons of ManagedClusterConditionAvailable.
const (
	// ReasonAvailable (True): the agent is present.
	ReasonAvailable = "ManagedClusterAvailable"
	// ReasonNotSeen (Unknown): the agent has never sent a message.
	ReasonNotSeen = "ManagedClusterNotSeen"
	// ReasonDisconnected (Unknown): the agent has stopped, or its connection is lost.
	ReasonDisconnected = "ManagedClusterDisconnected"
	// ReasonSilent (Unknown): the agent does not announce itself and has sent no message for too long.
	ReasonSilent = "ManagedClusterSilent"
	// ReasonMissing (Unknown): the agent did not announce itself when it should have, as when the hub's own
	// connection was restored.
	ReasonMissing = "ManagedClusterMissing"
	// ReasonHubDisconnected (Unknown): the hub itself has had no connection to the broker for more than a
	// minute, and until the agent is heard from again: the agent may well be there.
	ReasonHubDisconnected = "HubDisconnected"
)

// Reasons of ManagedClusterConditionWorksHeld. While works are held and none is released, its reason is
// that of the works' condition DeletionHeld.
const (
	// ReasonHeldWorksDeleting (True): the works that were held are being deleted.
	ReasonHeldWorksDeleting = "HeldWorksDeleting"
	// ReasonNoWorksHeld (False): none is held.
	ReasonNoWorksHeld = "NoWorksHeld"
)

// Reasons of ManagedClusterConditionStatusesTrusted.
const (
	// ReasonSigned (True): none is refused any more.
	ReasonSigned = "Signed"
	// ReasonUnsigned (False): they have no signature.
	ReasonUnsigned = "Unsigned"
	// ReasonUnknownKey (False): the key that signs them is not trusted.
	ReasonUnknownKey = "UnknownKey"
	// ReasonWrongCluster (False): the key that signs them is that of another cluster.
	ReasonWrongCluster = "WrongCluster"
	// ReasonExpired (False): they were signed too long ago.
	ReasonExpired = "Expired"
	// ReasonSignedInFuture (False): they were signed in the future.
	ReasonSignedInFuture = "SignedInFuture"
	// ReasonInvalidSignature (False): they are not what was signed.
	ReasonInvalidSignature = "InvalidSignature"
)

// Reasons of ManagedClusterConditionNoisy, and of the events about it.
const (
	// ReasonOverQuota (True): the cluster sends more than its quota.
	ReasonOverQuota = "OverQuota"
	// ReasonWithinQuota (False): it does not any more.
	ReasonWithinQuota = "WithinQuota"
)

// Reasons of ManagedClusterConditionWorksInSync.
const (
	// ReasonDiverged (False): the works of the agent differ from those of the hub.
	ReasonDiverged = "Diverged"
	// ReasonInSync (True): they do not differ any more.
	ReasonInSync = "InSync"
)

// Reasons of the events on a ManagedCluster, besides [ReasonNoWorksHeld], [ReasonOverQuota] and [ReasonWithinQuota].
const (
	EventRegistered  = "Registered"
	EventAccepted    = "Accepted"
	EventNotAccepted = "NotAccepted"
	EventAvailable   = "Available"
	EventUnavailable = "Unavailable"
	// EventFleetAbsent and EventFleetBack: the fleet brake was engaged, or released, with this cluster.
	EventFleetAbsent = "FleetAbsent"
	EventFleetBack   = "FleetBack"
	// EventWorksDiverged and EventWorksInSync: [ManagedClusterConditionWorksInSync] has become False, or True again.
	EventWorksDiverged = "WorksDiverged"
	EventWorksInSync   = "WorksInSync"
	// EventStatusesRefused and EventStatusesTrusted: likewise [ManagedClusterConditionStatusesTrusted].
	EventStatusesRefused = "StatusesRefused"
	EventStatusesTrusted = "StatusesTrusted"
	// EventWorksHeld: the agent keeps works that the hub does not know. EventDeletingHeld and EventDeletionDeclined: they are being deleted
	// because of [DeleteHeldWorksAnnotationKey], or are not.
	EventWorksHeld        = "WorksHeld"
	EventDeletingHeld     = "DeletingHeldWorks"
	EventDeletionDeclined = "HeldWorksNotDeleted"
	// EventTwoHubs: two hubs select the cluster.
	EventTwoHubs = "TwoHubsSelectCluster"
)

// Reasons of the events on the ConfigMap workwire-source-identity about other programs under the source id of a hub.
const (
	EventTwoPrograms = "TwoProgramsOneSource"
	EventOneProgram  = "OneProgramOneSource"
)

// HubPresenceLeaseName is the name of the Lease that the hub renews while it is connected to the
// broker. Once it has expired, nobody vouches for the statuses of works and clusters.
const HubPresenceLeaseName = "work-hub-presence"

// HubPresenceLease returns the name of that Lease of the hub that serves a cluster whose annotation
// [HubAnnotationKey] has the value hub; empty if it has none.
func HubPresenceLease(hub string) string {
	if hub == "" {
		return HubPresenceLeaseName
	}
	return HubPresenceLeaseName + "." + hub
}

// Labels and annotations.
const (
	// HubAnnotationKey annotates a ManagedCluster with the name of the hub that serves it, which is that
	// of its Lease, if several hubs share the API (docs/hub.md). The hubs write it.
	HubAnnotationKey = "workwire.dev/hub"
	// ClusterSetLabelKey labels a ManagedCluster with the name of the exclusive set that it belongs
	// to; without it, that is the set default.
	ClusterSetLabelKey = "cluster.open-cluster-management.io/clusterset"
	// NamespaceLabelKey labels the namespace of a cluster, which the hub has made, with the cluster's name.
	NamespaceLabelKey = "cluster.open-cluster-management.io/managedCluster"
	// LastSeenAnnotationKey annotates a ManagedCluster with the time, as RFC 3339, at which its
	// agent last sent a message.
	LastSeenAnnotationKey = "workwire.dev/last-seen"
	// DeleteHeldWorksAnnotationKey on a ManagedCluster has the hub delete all held works, if its value
	// is their number. The hub removes it.
	DeleteHeldWorksAnnotationKey = "workwire.dev/delete-held-works"
	// DeletingHeldWorksAnnotationKey lists the held works that are being deleted, as NAME/UID,… The hub
	// writes it.
	DeletingHeldWorksAnnotationKey = "workwire.dev/deleting-held-works"
)

// Keys of the taints that the hub puts on clusters, with the effect NoSelect.
const (
	// ManagedClusterTaintUnavailable is on a cluster whose ManagedClusterConditionAvailable is
	// False.
	ManagedClusterTaintUnavailable = "cluster.open-cluster-management.io/unavailable"
	// ManagedClusterTaintUnreachable is on a cluster whose ManagedClusterConditionAvailable is
	// Unknown.
	ManagedClusterTaintUnreachable = "cluster.open-cluster-management.io/unreachable"
)

// Claims that every cluster has, of what its agent knows (docs/clusters.md). A ClusterClaim of the same name counts only if the agent does
// not know the value.
const (
	ClaimID          = "id.k8s.io"
	ClaimKubeVersion = "kubeversion.open-cluster-management.io"
	ClaimPlatform    = "platform.open-cluster-management.io"
	ClaimRegion      = "region.open-cluster-management.io"
	ClaimZone        = "zone.open-cluster-management.io"
	// ClaimApplyAt is ClaimApplyAtObeyed of a cluster whose agent applies works when their annotation workwire.dev/apply-at says.
	ClaimApplyAt       = "apply-at.workwire.dev"
	ClaimApplyAtObeyed = "true"
)

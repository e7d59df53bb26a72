package feedback

import "k8s.io/apimachinery/pkg/runtime/schema"

// value is the name of a feedback value and its path.
type value struct{ name, path string }

var (
	replicas = []value{
		{"ReadyReplicas", ".status.readyReplicas"},
		{"Replicas", ".status.replicas"},
		{"AvailableReplicas", ".status.availableReplicas"},
	}
	scaled = []value{{"CurrentReplicas", ".status.currentReplicas"}, {"DesiredReplicas", ".status.desiredReplicas"}}
)

// wellKnown lists the values of a WellKnownStatus rule by kind. A path without a match has no
// value. The first four kinds are those of OCM. The others follow the same pattern: counts have the
// name of their field, other values the kind as prefix.
var wellKnown = map[schema.GroupVersionKind][]value{
	{Group: "apps", Version: "v1", Kind: "Deployment"}: replicas,
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}: {
		{"NumberReady", ".status.numberReady"},
		{"DesiredNumberScheduled", ".status.desiredNumberScheduled"},
		{"NumberAvailable", ".status.numberAvailable"},
	},
	{Group: "batch", Version: "v1", Kind: "Job"}: {
		{"JobComplete", `.status.conditions[?(@.type=="Complete")].status`},
		{"JobSucceeded", ".status.succeeded"},
	},
	{Version: "v1", Kind: "Pod"}: {
		{"PodReady", `.status.conditions[?(@.type=="Ready")].status`},
		{"PodPhase", ".status.phase"},
	},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"}: replicas,
	{Group: "apps", Version: "v1", Kind: "ReplicaSet"}:  replicas,
	{Group: "batch", Version: "v1", Kind: "CronJob"}: {
		{"CronJobLastScheduleTime", ".status.lastScheduleTime"},
		{"CronJobLastSuccessfulTime", ".status.lastSuccessfulTime"},
	},
	{Version: "v1", Kind: "PersistentVolumeClaim"}: {
		{"PersistentVolumeClaimPhase", ".status.phase"},
		{"PersistentVolumeClaimCapacity", ".status.capacity.storage"},
	},
	{Version: "v1", Kind: "Service"}: {
		{"ServiceClusterIP", ".spec.clusterIP"},
		{"ServiceLoadBalancerIP", ".status.loadBalancer.ingress[*].ip"},
		{"ServiceLoadBalancerHostname", ".status.loadBalancer.ingress[*].hostname"},
	},
	{Version: "v1", Kind: "Namespace"}: {
		{"NamespacePhase", ".status.phase"},
	},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}: scaled,
	{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"}: scaled,
}

// HasWellKnown reports whether a rule of type WellKnownStatus reports values of a kind.
func HasWellKnown(kind schema.GroupVersionKind) bool { return wellKnown[kind] != nil }

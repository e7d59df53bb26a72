package v1

import "k8s.io/apimachinery/pkg/runtime/schema"

var (
	replicas = []JsonPath{
		{Name: "ReadyReplicas", Path: ".status.readyReplicas"},
		{Name: "Replicas", Path: ".status.replicas"},
		{Name: "AvailableReplicas", Path: ".status.availableReplicas"},
	}
	scaled = []JsonPath{{Name: "CurrentReplicas", Path: ".status.currentReplicas"}, {Name: "DesiredReplicas", Path: ".status.desiredReplicas"}}
)

// wellKnownStatus lists the values of a WellKnownStatus rule by kind. A path without a match has no
// value. The first four kinds are those of OCM. The others follow the same pattern: counts have the
// name of their field, other values the kind as prefix.
var wellKnownStatus = map[schema.GroupVersionKind][]JsonPath{
	{Group: "apps", Version: "v1", Kind: "Deployment"}: replicas,
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}: {
		{Name: "NumberReady", Path: ".status.numberReady"},
		{Name: "DesiredNumberScheduled", Path: ".status.desiredNumberScheduled"},
		{Name: "NumberAvailable", Path: ".status.numberAvailable"},
	},
	{Group: "batch", Version: "v1", Kind: "Job"}: {
		{Name: "JobComplete", Path: `.status.conditions[?(@.type=="Complete")].status`},
		{Name: "JobSucceeded", Path: ".status.succeeded"},
	},
	{Version: "v1", Kind: "Pod"}: {
		{Name: "PodReady", Path: `.status.conditions[?(@.type=="Ready")].status`},
		{Name: "PodPhase", Path: ".status.phase"},
	},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"}: replicas,
	{Group: "apps", Version: "v1", Kind: "ReplicaSet"}:  replicas,
	{Group: "batch", Version: "v1", Kind: "CronJob"}: {
		{Name: "CronJobLastScheduleTime", Path: ".status.lastScheduleTime"},
		{Name: "CronJobLastSuccessfulTime", Path: ".status.lastSuccessfulTime"},
	},
	{Version: "v1", Kind: "PersistentVolumeClaim"}: {
		{Name: "PersistentVolumeClaimPhase", Path: ".status.phase"},
		{Name: "PersistentVolumeClaimCapacity", Path: ".status.capacity.storage"},
	},
	{Version: "v1", Kind: "Service"}: {
		{Name: "ServiceClusterIP", Path: ".spec.clusterIP"},
		{Name: "ServiceLoadBalancerIP", Path: ".status.loadBalancer.ingress[*].ip"},
		{Name: "ServiceLoadBalancerHostname", Path: ".status.loadBalancer.ingress[*].hostname"},
	},
	{Version: "v1", Kind: "Namespace"}: {
		{Name: "NamespacePhase", Path: ".status.phase"},
	},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}: scaled,
	{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"}: scaled,
}

// WellKnownStatus returns the values of a rule of type WellKnownStatus for a kind, nil if there are none. They are shared: do not
// modify them.
func WellKnownStatus(kind schema.GroupVersionKind) []JsonPath { return wellKnownStatus[kind] }

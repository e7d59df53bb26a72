package wrap

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// applyOrder has the kinds of an object before the kinds that need it. Kinds that it does not have
// come after the workloads, before lastKinds.
var applyOrder = [][]string{
	{"CustomResourceDefinition"},
	{"Namespace"},
	{"PriorityClass", "RuntimeClass", "StorageClass", "CSIDriver", "IngressClass", "ResourceQuota", "LimitRange", "NetworkPolicy"},
	{"ServiceAccount"},
	{"ClusterRole", "Role"},
	{"ClusterRoleBinding", "RoleBinding"},
	{"Secret", "ConfigMap"},
	{"PersistentVolume", "PersistentVolumeClaim"},
	{"Service"},
	{"DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Pod", "Job", "CronJob"},
	{"HorizontalPodAutoscaler", "PodDisruptionBudget", "Ingress"},
}

// lastKinds intercept requests, which their servers must be able to answer.
var lastKinds = []string{
	"APIService", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
}

// rank returns the place of a kind in the order of application, smallest first.
func rank(kind schema.GroupVersionKind) int {
	if !builtIn(kind.Group) {
		return len(applyOrder)
	}
	for i, kinds := range applyOrder {
		if slices.Contains(kinds, kind.Kind) {
			return i
		}
	}
	if i := slices.Index(lastKinds, kind.Kind); i >= 0 {
		return len(applyOrder) + 1 + i
	}
	return len(applyOrder)
}

// sorted returns manifests in the order in which they are to be applied. Those of one rank keep
// their order.
func sorted(manifests []Manifest) []Manifest {
	manifests = slices.Clone(manifests)
	slices.SortStableFunc(manifests, func(a, b Manifest) int {
		return cmp.Compare(rank(a.Object.GroupVersionKind()), rank(b.Object.GroupVersionKind()))
	})
	return manifests
}

// builtIn reports whether a group is one of Kubernetes' own. The kinds of the others are defined by
// CRDs.
func builtIn(group string) bool {
	switch strings.TrimSuffix(group, ".k8s.io") {
	case "", "apps", "batch", "autoscaling", "policy", "admissionregistration", "apiextensions", "apiregistration", "authentication",
		"authorization", "certificates", "coordination", "discovery", "events", "flowcontrol.apiserver", "networking", "node",
		"rbac.authorization", "resource", "scheduling", "storage", "storagemigration":
		return true
	}
	return false
}

// clusterScoped has the kinds of built-in groups that have no namespace.
var clusterScoped = map[string]bool{
	"Namespace": true, "Node": true, "PersistentVolume": true, "CustomResourceDefinition": true, "APIService": true, "ClusterRole": true,
	"ClusterRoleBinding": true, "PriorityClass": true, "RuntimeClass": true, "StorageClass": true, "CSIDriver": true, "CSINode": true,
	"VolumeAttachment": true, "VolumeAttributesClass": true, "IngressClass": true, "MutatingWebhookConfiguration": true,
	"ValidatingWebhookConfiguration": true, "ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
	"MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true, "CertificateSigningRequest": true, "ClusterTrustBundle": true,
	"FlowSchema": true, "PriorityLevelConfiguration": true, "IPAddress": true, "ServiceCIDR": true, "StorageVersion": true,
	"StorageVersionMigration": true, "DeviceClass": true, "ResourceSlice": true, "DeviceTaintRule": true, "ComponentStatus": true,
}

// scope is whether objects of a kind have a namespace.
type scope int

const (
	unknownScope scope = iota
	namespacedScope
	clusterScope
)

// scopes returns the scopes of the kinds that CRDs among the manifests define.
func scopes(manifests []Manifest) map[schema.GroupKind]scope {
	defined := make(map[schema.GroupKind]scope)
	for _, m := range manifests {
		if m.Object.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
			continue
		}
		spec, _ := m.Object.Object["spec"].(map[string]any)
		names, _ := spec["names"].(map[string]any)
		group, _ := spec["group"].(string)
		kind, _ := names["kind"].(string)
		defined[schema.GroupKind{Group: group, Kind: kind}] = clusterScope
		if spec["scope"] == "Namespaced" {
			defined[schema.GroupKind{Group: group, Kind: kind}] = namespacedScope
		}
	}
	return defined
}

// scopeOf returns the scope of a kind, by the CRDs of the input or, for built-in groups, by name.
func scopeOf(kind schema.GroupVersionKind, defined map[schema.GroupKind]scope) scope {
	if s := defined[kind.GroupKind()]; s != unknownScope {
		return s
	}
	switch {
	case !builtIn(kind.Group):
		return unknownScope
	case clusterScoped[kind.Kind]:
		return clusterScope
	default:
		return namespacedScope
	}
}

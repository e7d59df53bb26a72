package condition

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReadyOnceCreated reports whether objects of kind have no status to wait for.
func ReadyOnceCreated(kind schema.GroupKind) bool {
	switch kind.Group {
	case "rbac.authorization.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "node.k8s.io", "admissionregistration.k8s.io":
		return true
	case "":
		return slices.Contains([]string{"ConfigMap", "Secret", "ServiceAccount", "LimitRange", "ResourceQuota", "Endpoints", "Event"}, kind.Kind)
	case "batch":
		return kind.Kind == "CronJob"
	case "networking.k8s.io":
		return kind.Kind == "NetworkPolicy" || kind.Kind == "IngressClass"
	}
	return false
}

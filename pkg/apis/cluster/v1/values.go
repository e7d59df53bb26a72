package v1

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsAway reports whether a condition [ManagedClusterConditionAvailable], which may be nil, says that the agent is not there. While
// nobody knows, because the hub has no connection, it does not say so.
func IsAway(available *metav1.Condition) bool {
	return available != nil && available.Status != metav1.ConditionTrue && available.Reason != ReasonHubDisconnected
}

// SteadyAnnotations returns the annotations of c without the one that changes all the time, [LastSeenAnnotationKey]. The caller must not
// modify them.
func SteadyAnnotations(c *ManagedCluster) map[string]string {
	if _, seen := c.Annotations[LastSeenAnnotationKey]; !seen {
		return c.Annotations
	}
	others := maps.Clone(c.Annotations)
	delete(others, LastSeenAnnotationKey)
	return others
}

// Texts returns the quantities of l as texts, by the names of the resources; never nil.
func (l ResourceList) Texts() map[string]string {
	texts := make(map[string]string, len(l))
	for name, quantity := range l {
		texts[string(name)] = quantity.String()
	}
	return texts
}

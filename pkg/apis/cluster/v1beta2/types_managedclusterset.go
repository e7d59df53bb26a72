package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=managedclustersets,scope=Cluster,shortName={mclset,mclsets}
// +kubebuilder:printcolumn:name="Empty",type=string,JSONPath=`.status.conditions[?(@.type=="ClusterSetEmpty")].status`
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.status.conditions[?(@.type=="ClusterSetEmpty")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// ManagedClusterSet is a set of clusters. A ManagedClusterSetBinding lets the Placements of a
// namespace choose from it.
type ManagedClusterSet struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines which clusters belong to the set.
	// +optional
	// +kubebuilder:default={clusterSelector:{selectorType:ExclusiveClusterSetLabel}}
	Spec ManagedClusterSetSpec `json:"spec,omitzero"`

	// status says whether the set has clusters.
	// +optional
	Status ManagedClusterSetStatus `json:"status,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetList is a list of ManagedClusterSets.
type ManagedClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the sets.
	Items []ManagedClusterSet `json:"items"`
}

// ManagedClusterSetSpec defines which clusters belong to a set.
type ManagedClusterSetSpec struct {
	// clusterSelector selects the clusters of the set. The sets default and global ignore it.
	// +optional
	// +kubebuilder:default={selectorType:ExclusiveClusterSetLabel}
	ClusterSelector ManagedClusterSelector `json:"clusterSelector,omitzero"`
}

// +kubebuilder:validation:Enum=ExclusiveClusterSetLabel;LabelSelector

// SelectorType defines how a set selects its clusters.
type SelectorType string

// The types of selectors.
const (
	// ExclusiveClusterSetLabel selects the clusters whose label
	// cluster.open-cluster-management.io/clusterset is the name of the set. A cluster is in one such
	// set at most.
	ExclusiveClusterSetLabel SelectorType = "ExclusiveClusterSetLabel"
	// LabelSelector selects by any labels.
	LabelSelector SelectorType = "LabelSelector"
)

// ManagedClusterSelector selects the clusters of a set.
type ManagedClusterSelector struct {
	// selectorType is ExclusiveClusterSetLabel, for the clusters that are labelled with the name of
	// the set, or LabelSelector.
	// +optional
	// +kubebuilder:default=ExclusiveClusterSetLabel
	SelectorType SelectorType `json:"selectorType,omitempty"`

	// labelSelector selects by the labels of clusters, for selectorType LabelSelector. Absent: none.
	// Empty: all clusters.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ManagedClusterSetStatus says whether a set has clusters.
type ManagedClusterSetStatus struct {
	// conditions of the set: ClusterSetEmpty.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

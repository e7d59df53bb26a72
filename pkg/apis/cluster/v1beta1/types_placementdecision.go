package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=placementdecisions,scope=Namespaced
// +kubebuilder:printcolumn:name="Placement",type=string,JSONPath=`.metadata.labels.cluster\.open-cluster-management\.io/placement`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.metadata.labels.cluster\.open-cluster-management\.io/decision-group-index`
// +kubebuilder:printcolumn:name="Group name",type=string,JSONPath=`.metadata.labels.cluster\.open-cluster-management\.io/decision-group-name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// PlacementDecision lists clusters that a Placement chose, of one decision group. Its labels name
// the placement, and the index and name of the group; a group of more than 100 clusters has
// several. Whoever serves Placement writes it.
type PlacementDecision struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status lists the clusters.
	// +optional
	Status PlacementDecisionStatus `json:"status,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PlacementDecisionList is a list of PlacementDecisions.
type PlacementDecisionList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the decisions.
	Items []PlacementDecision `json:"items"`
}

// PlacementDecisionStatus lists chosen clusters.
type PlacementDecisionStatus struct {
	// decisions are the clusters, at most 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Decisions []ClusterDecision `json:"decisions,omitempty"`
}

// ClusterDecision is one chosen cluster.
type ClusterDecision struct {
	// clusterName is the name of the ManagedCluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	ClusterName string `json:"clusterName"`

	// reason says why it was chosen, in one word; may be empty.
	// +optional
	Reason string `json:"reason"`
}

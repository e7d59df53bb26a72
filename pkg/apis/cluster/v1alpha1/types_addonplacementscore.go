package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=addonplacementscores,scope=Namespaced
// +kubebuilder:printcolumn:name="Valid until",type=string,JSONPath=`.status.validUntil`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// AddOnPlacementScore has scores of one cluster, in its namespace, by which placements choose. An
// add-on or another program writes them.
type AddOnPlacementScore struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The namespace is that of the cluster; placements refer
	// to the name.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status contains the scores.
	// +optional
	Status AddOnPlacementScoreStatus `json:"status,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AddOnPlacementScoreList is a list of AddOnPlacementScores.
type AddOnPlacementScoreList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the scores.
	Items []AddOnPlacementScore `json:"items"`
}

// AddOnPlacementScoreStatus has the scores of a cluster.
type AddOnPlacementScoreStatus struct {
	// conditions are about the scores.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// scores of the cluster.
	// +optional
	// +listType=map
	// +listMapKey=name
	Scores []AddOnPlacementScoreItem `json:"scores,omitempty"`

	// validUntil is when the scores expire: placements ignore them then. Absent: never.
	// +optional
	// +nullable
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$`
	ValidUntil *metav1.Time `json:"validUntil,omitempty"`
}

// AddOnPlacementScoreItem is one score.
type AddOnPlacementScoreItem struct {
	// name of the score.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// value of the score: the higher, the rather is the cluster chosen.
	// +required
	// +kubebuilder:validation:Minimum=-100
	// +kubebuilder:validation:Maximum=100
	Value int32 `json:"value"`

	// quantity is what the score is made from, such as 300Mi. Expressions can read it.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,3}))?$`
	Quantity *resource.Quantity `json:"quantity,omitempty"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:resource:path=clusterclaims,scope=Cluster
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.spec.value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// ClusterClaim is a property of a cluster, on that cluster. Its agent reports it to the hub, where
// placements choose by it.
type ClusterClaim struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is that of the property.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec has the value.
	// +optional
	Spec ClusterClaimSpec `json:"spec,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterClaimList is a list of ClusterClaims.
type ClusterClaimList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the claims.
	Items []ClusterClaim `json:"items"`
}

// ClusterClaimSpec has the value of a property.
type ClusterClaimSpec struct {
	// value of the property.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

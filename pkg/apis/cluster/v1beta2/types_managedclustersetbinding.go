package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=managedclustersetbindings,scope=Namespaced,shortName={mclsetbinding,mclsetbindings}
// +kubebuilder:printcolumn:name="Bound",type=string,JSONPath=`.status.conditions[?(@.type=="Bound")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.clusterSet",message="the name of a binding must be that of its set"

// ManagedClusterSetBinding lets the Placements of its namespace choose from the clusters of a set.
// Its name is that of the set.
type ManagedClusterSetBinding struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the set.
	// +required
	Spec ManagedClusterSetBindingSpec `json:"spec"`

	// status says whether the set exists.
	// +optional
	Status ManagedClusterSetBindingStatus `json:"status,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetBindingList is a list of ManagedClusterSetBindings.
type ManagedClusterSetBindingList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the bindings.
	Items []ManagedClusterSetBinding `json:"items"`
}

// ManagedClusterSetBindingSpec names the set of a binding.
type ManagedClusterSetBindingSpec struct {
	// clusterSet is the name of the set, and of the binding. It cannot be changed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterSet cannot be changed: delete the binding and create another"
	ClusterSet string `json:"clusterSet"`
}

// ManagedClusterSetBindingStatus says whether the set of a binding exists.
type ManagedClusterSetBindingStatus struct {
	// conditions of the binding: Bound.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

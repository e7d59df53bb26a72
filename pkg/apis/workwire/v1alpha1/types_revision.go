package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:resource:path=manifestworkreplicasetrevisions,scope=Namespaced,shortName={mwrsrev}
// +kubebuilder:printcolumn:name="Set",type=string,JSONPath=`.set`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.revision`
// +kubebuilder:printcolumn:name="Change cause",type=string,JSONPath=`.metadata.annotations.kubernetes\.io/change-cause`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// ManifestWorkReplicaSetRevision is a template that a ManifestWorkReplicaSet has or had. The hub
// writes it when the template of the set changes, and deletes the oldest; it is deleted with the
// set. It contains the manifests of the template: whoever may read it reads Secrets among them.
type ManifestWorkReplicaSetRevision struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The set owns the revision.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// set is the name of the ManifestWorkReplicaSet, in the same namespace.
	// +required
	Set string `json:"set"`

	// revision counts the templates of the set from 1. A template that the set gets again, by an
	// undo for example, gets a new number; the set has the one with the highest.
	// +required
	Revision int64 `json:"revision"`

	// template is the manifestWorkTemplate of the set.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template workv1.ManifestWorkSpec `json:"template"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWorkReplicaSetRevisionList is a list of ManifestWorkReplicaSetRevisions.
type ManifestWorkReplicaSetRevisionList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the revisions.
	Items []ManifestWorkReplicaSetRevision `json:"items"`
}

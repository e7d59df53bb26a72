package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:resource:path=workoverrides,scope=Namespaced,shortName={wov}
// +kubebuilder:printcolumn:name="Set",type=string,JSONPath=`.spec.replicaSet`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// WorkOverride changes the template of a ManifestWorkReplicaSet for some of its clusters. The hub
// rolls a change of it out like a change of the template. What fails is in the condition
// OverridesRendered of the set.
type WorkOverride struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is changed for which clusters.
	// +required
	Spec WorkOverrideSpec `json:"spec"`
}

// WorkOverrideSpec says what a WorkOverride changes for which clusters.
type WorkOverrideSpec struct {
	// replicaSet is the name of the ManifestWorkReplicaSet, in the same namespace. If several
	// WorkOverrides name one set, they apply in the order of their names.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ReplicaSet string `json:"replicaSet"`

	// rules apply in their order. Each patches the result of those before it.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Rules []OverrideRule `json:"rules"`
}

// OverrideRule patches manifests for the clusters that it selects.
type OverrideRule struct {
	// name names the rule in messages.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// clusters selects clusters; absent: all.
	// +optional
	Clusters OverrideClusters `json:"clusters,omitempty,omitzero"`

	// patches apply in their order.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Patches []OverridePatch `json:"patches"`
}

// OverrideClusters selects the clusters that all of its selectors select.
type OverrideClusters struct {
	// names are the names of clusters; absent: whatever the name.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	Names []string `json:"names,omitempty"`

	// labelSelector selects by the labels of the ManagedCluster.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`

	// claimSelector selects by the cluster claims in the status of the ManagedCluster.
	// +optional
	ClaimSelector *metav1.LabelSelector `json:"claimSelector,omitempty"`
}

// OverridePatch patches manifests: with json, merge, or both, json first.
type OverridePatch struct {
	// target selects manifests. It is an error if it selects none.
	// +required
	Target OverrideTarget `json:"target"`

	// json are the operations of a JSON patch (RFC 6902).
	// +optional
	// +kubebuilder:validation:MaxItems=64
	JSON []OverrideOperation `json:"json,omitempty"`

	// merge is a merge patch (RFC 7386), an object.
	// +optional
	Merge *OverrideValue `json:"merge,omitempty"`
}

// OverrideTarget selects manifests by what identifies them in the template or, after a patch that
// changes it, in the result of the rules before.
type OverrideTarget struct {
	// group is the API group of the manifest; absent: any. The core group is "core".
	// +optional
	Group string `json:"group,omitempty"`

	// kind is the kind of the manifest.
	// +required
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`

	// name is the name of the manifest; absent: any.
	// +optional
	Name string `json:"name,omitempty"`

	// namespace is the namespace of the manifest; absent: any.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// OverrideOperation is an operation of a JSON patch. A value is for add, replace and test, and from
// for move and copy.
type OverrideOperation struct {
	// op is the operation.
	// +required
	// +kubebuilder:validation:Enum=add;remove;replace;move;copy;test
	Op string `json:"op"`

	// path is a JSON pointer.
	// +required
	Path string `json:"path"`

	// from is a JSON pointer.
	// +optional
	From string `json:"from,omitempty"`

	OverrideValue `json:",inline"`
}

// OverrideValue is a value, from exactly one source.
type OverrideValue struct {
	// value is the value itself. For null, use the expression null.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Value *runtime.RawExtension `json:"value,omitempty"`

	// expression is a CEL expression that returns the value. It has the variable cluster, with name,
	// labels, annotations, claims, version, capacity and allocatable of the ManagedCluster.
	// +optional
	// +kubebuilder:validation:MaxLength=10000
	Expression string `json:"expression,omitempty"`

	// configMap is the value of a key of a ConfigMap in the namespace of the WorkOverride: a text or,
	// for merge, an object as YAML. The hub needs the right to read it.
	// +optional
	ConfigMap *OverrideKey `json:"configMap,omitempty"`

	// secret is the same of a Secret.
	// +optional
	Secret *OverrideKey `json:"secret,omitempty"`
}

// OverrideKey refers to a key of a ConfigMap or Secret.
type OverrideKey struct {
	// name is the name of the ConfigMap or Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// key is the key, in which {cluster} is the name of the cluster; default {cluster}.
	// +optional
	Key string `json:"key,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// WorkOverrideList is a list of WorkOverrides.
type WorkOverrideList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the WorkOverrides.
	Items []WorkOverride `json:"items"`
}

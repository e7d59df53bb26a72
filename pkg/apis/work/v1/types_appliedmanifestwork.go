package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=appliedmanifestworks,scope=Cluster
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.metadata.labels.cloudevents\.open-cluster-management\.io/originalsource`
// +kubebuilder:printcolumn:name="Work",type=string,JSONPath=`.spec.manifestWorkName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// AppliedManifestWork is what an agent keeps on its cluster for one ManifestWork: it owns the
// objects that were applied for it, lists them, and is deleted only when they are gone. Its name is
// the hub hash, a dash, and the name of the work. Agents write it; people read it.
type AppliedManifestWork struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. Its labels are those of the ManifestWork.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which work, hub and agent this is for.
	// +required
	Spec AppliedManifestWorkSpec `json:"spec"`

	// status lists what was applied.
	// +optional
	Status AppliedManifestWorkStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AppliedManifestWorkList is a list of AppliedManifestWorks.
type AppliedManifestWorkList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the AppliedManifestWorks.
	Items []AppliedManifestWork `json:"items"`
}

// AppliedManifestWorkSpec says where an AppliedManifestWork comes from.
type AppliedManifestWorkSpec struct {
	// hubHash tells hubs apart: the lower-case hex SHA-256 of the address at which the agent
	// reaches the hub.
	// +required
	HubHash string `json:"hubHash"`

	// agentID is the id of the agent that keeps the objects; another agent leaves them alone. When
	// a work is taken over by an agent with another id, that id is written here.
	// +required
	AgentID string `json:"agentID"`

	// manifestWorkName is the name of the ManifestWork on the hub.
	// +required
	ManifestWorkName string `json:"manifestWorkName"`
}

// AppliedManifestWorkStatus lists what was applied for a work.
type AppliedManifestWorkStatus struct {
	// appliedResources are the objects of the work that exist on the cluster, sorted by group,
	// version, resource, namespace and name. An object being removed stays listed until it is gone.
	// +optional
	// +listType=atomic
	AppliedResources []AppliedManifestResourceMeta `json:"appliedResources,omitempty"`

	// evictionStartTime is when the agent first found that no ManifestWork stands behind this
	// object any more. After the agent's grace period it is deleted, and its objects with it.
	// Absent: the work is known.
	// +optional
	EvictionStartTime *metav1.Time `json:"evictionStartTime,omitempty"`

	// transitions are the conditions of the work and of its manifests, in short, as they last
	// changed. The agent reads them after a restart, so that transition times and completion stay
	// what they were. For the agent only.
	// +optional
	Transitions string `json:"transitions,omitempty"`
}

// AppliedManifestResourceMeta is one object on the cluster.
type AppliedManifestResourceMeta struct {
	// ResourceIdentifier names the object.
	ResourceIdentifier `json:",inline"`

	// version of the API in which the object was applied, such as v1.
	// +required
	Version string `json:"version"`

	// uid of the object. Only an object with this uid is deleted.
	// +optional
	UID string `json:"uid,omitempty"`

	// fieldsDigest says in short which fields the agent last applied, and how. After a restart the
	// agent compares it with the manifest to see whether fields were dropped. For the agent only.
	// +optional
	FieldsDigest string `json:"fieldsDigest,omitempty"`
}

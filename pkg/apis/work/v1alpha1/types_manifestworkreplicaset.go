package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=manifestworkreplicasets,scope=Namespaced,shortName={mwrs}
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.summary.total`
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.status.selectedClusters`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.summary.available`
// +kubebuilder:printcolumn:name="Rolled out",type=string,JSONPath=`.status.conditions[?(@.type=="PlacementRolledOut")].status`
// +kubebuilder:printcolumn:name="Stopped",type=string,JSONPath=`.status.conditions[?(@.type=="Stopped")].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.conditions[?(@.type=="Progressing")].lastTransitionTime`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// ManifestWorkReplicaSet is a ManifestWork for every cluster that its placements choose. The works
// are created from its template, one in the namespace of each cluster; a change of the template is
// rolled out to them by the rollout strategy of their placement.
type ManifestWorkReplicaSet struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. Its labels are copied to the works. Namespace and
	// name together may have 62 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the works, the clusters, and how a change is rolled out.
	// +required
	Spec ManifestWorkReplicaSetSpec `json:"spec"`

	// status summarizes the works.
	// +optional
	Status ManifestWorkReplicaSetStatus `json:"status,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWorkReplicaSetList is a list of ManifestWorkReplicaSets.
type ManifestWorkReplicaSetList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the sets.
	Items []ManifestWorkReplicaSet `json:"items"`
}

// +kubebuilder:validation:Enum=Background;Foreground

// CascadeDeletionPolicy defines whether a deleted set waits for the deletion of its works.
type CascadeDeletionPolicy string

// The ways to delete a set. Its works are deleted in each of them.
const (
	// Background removes the set at once. It is the default.
	Background CascadeDeletionPolicy = "Background"
	// Foreground keeps the set until its works are removed.
	Foreground CascadeDeletionPolicy = "Foreground"
)

// ManifestWorkReplicaSetSpec defines works for many clusters.
type ManifestWorkReplicaSetSpec struct {
	// manifestWorkTemplate is the spec of the works.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.workload) && has(self.workload.manifests) && self.workload.manifests.size() > 0",message="Workload manifests should not be empty"
	ManifestWorkTemplate workv1.ManifestWorkSpec `json:"manifestWorkTemplate"`

	// placementRefs name the placements that choose the clusters, in the namespace of the set.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	PlacementRefs []LocalPlacementReference `json:"placementRefs"`

	// cascadeDeletionPolicy is Background, the deleted set is removed before its works, or
	// Foreground, it is removed after them.
	// +optional
	// +kubebuilder:default=Background
	CascadeDeletionPolicy CascadeDeletionPolicy `json:"cascadeDeletionPolicy,omitempty"`
}

// LocalPlacementReference identifies a placement and defines how a change is rolled out to its
// clusters.
type LocalPlacementReference struct {
	// name of the Placement.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// rolloutStrategy defines how a change is rolled out to the clusters of the placement. Absent:
	// to all at once.
	// +optional
	RolloutStrategy clusterv1alpha1.RolloutStrategy `json:"rolloutStrategy,omitzero"`
}

// ManifestWorkReplicaSetStatus summarizes the works of a set.
type ManifestWorkReplicaSetStatus struct {
	// observedGeneration is the generation that the condition Ready is about, for tools that compare it with
	// metadata.generation, as kstatus does.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions of the set: PlacementVerified, PlacementRolledOut, ManifestworkApplied, Progressing,
	// Stopped, RemovalsHeld, Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// selectedClusters is how many clusters the placements have selected: so many works are wanted. A
	// cluster that several placements select counts for each.
	// +optional
	SelectedClusters int `json:"selectedClusters,omitempty"`

	// summary counts the works of all placements.
	// +optional
	Summary ManifestWorkReplicaSetSummary `json:"summary"`

	// placementSummary counts the works of each placement.
	// +optional
	// +listType=map
	// +listMapKey=name
	PlacementsSummary []PlacementSummary `json:"placementSummary,omitempty"`
}

// PlacementSummary counts the works of a placement.
type PlacementSummary struct {
	// name of the placement.
	// +required
	Name string `json:"name"`

	// availableDecisionGroups is, for people, how many decision groups the placement has and how
	// many of its clusters have a work of the current template: "3 (20 / 30 clusters applied)".
	// +optional
	AvailableDecisionGroups string `json:"availableDecisionGroups"`

	// summary counts the works.
	// +optional
	Summary ManifestWorkReplicaSetSummary `json:"summary"`
}

// ManifestWorkReplicaSetSummary counts works. A work counts if its spec is the current template and
// it is not being deleted.
type ManifestWorkReplicaSetSummary struct {
	// total is how many works there are.
	// +optional
	Total int `json:"total"`

	// available is how many of them have the condition Available True.
	// +optional
	Available int `json:"available"`

	// progressing is how many of them have the condition Progressing True.
	// +optional
	Progressing int `json:"progressing"`

	// degraded is how many of them have the condition Degraded True.
	// +optional
	Degraded int `json:"degraded"`

	// applied is how many of them have the condition Applied True.
	// +optional
	Applied int `json:"applied"`

	// desiredTotal is in the API for clients that read it; the hub leaves it at 0.
	// +optional
	DesiredTotal int `json:"desiredTotal,omitempty"`

	// updated is in the API for clients that read it; the hub leaves it at 0.
	// +optional
	Updated int `json:"updated,omitempty"`
}

package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=managedclusters,scope=Cluster,shortName={mcl,mcls}
// +kubebuilder:printcolumn:name="Accepted",type=boolean,JSONPath=`.spec.hubAcceptsClient`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="ManagedClusterConditionAvailable")].status`
// +kubebuilder:printcolumn:name="Last seen",type=date,JSONPath=`.metadata.annotations.workwire\.dev/last-seen`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// ManagedCluster is one cluster of the fleet, as known by the hub. Its works are in the namespace
// of its name, and are delivered once hubAcceptsClient is true.
type ManagedCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is that of the cluster; placements choose
	// clusters by its labels.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec contains what the hub decides about the cluster.
	// +required
	Spec ManagedClusterSpec `json:"spec"`

	// status is the observed state of the cluster.
	// +optional
	Status ManagedClusterStatus `json:"status,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterList is a list of ManagedClusters.
type ManagedClusterList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the clusters.
	Items []ManagedCluster `json:"items"`
}

// ManagedClusterSpec is the desired state of a cluster.
type ManagedClusterSpec struct {
	// hubAcceptsClient accepts the cluster: its works are delivered only while this is true.
	// Default: false.
	// +optional
	HubAcceptsClient bool `json:"hubAcceptsClient"`

	// leaseDurationSeconds is how often, in seconds, an agent that keeps a lease on the hub renews
	// it.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds,omitempty"`

	// taints prevent placements that do not tolerate them from choosing the cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Taints []Taint `json:"taints,omitempty"`

	// managedClusterClientConfigs describe how to reach the API server of the cluster. They are not
	// used to deliver works.
	// +optional
	// +listType=atomic
	ManagedClusterClientConfigs []ClientConfig `json:"managedClusterClientConfigs,omitempty"`
}

// ClientConfig is one way to reach the API server of a cluster.
type ClientConfig struct {
	// url of the API server, such as https://api.cluster1.example.com:6443.
	// +required
	// +kubebuilder:validation:MinLength=1
	URL string `json:"url"`

	// caBundle is the PEM bundle of the authorities that the certificate of the API server is
	// checked with. Absent: those of the system.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}

// +kubebuilder:validation:Enum=NoSelect;PreferNoSelect;NoSelectIfNew

// TaintEffect is the effect of a taint on the choice of clusters.
type TaintEffect string

// The effects of taints.
const (
	// TaintEffectNoSelect prevents placements from choosing the cluster, and removes it from those
	// that chose it.
	TaintEffectNoSelect TaintEffect = "NoSelect"
	// TaintEffectPreferNoSelect makes placements choose the cluster only if there are not enough
	// others.
	TaintEffectPreferNoSelect TaintEffect = "PreferNoSelect"
	// TaintEffectNoSelectIfNew prevents placements from choosing the cluster; those that chose it
	// before keep it.
	TaintEffectNoSelectIfNew TaintEffect = "NoSelectIfNew"
)

// Taint prevents placements that do not tolerate it from choosing a cluster.
type Taint struct {
	// key of the taint, such as cluster.open-cluster-management.io/unavailable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`
	Key string `json:"key"`

	// value of the taint.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`

	// effect on placements that do not tolerate the taint: NoSelect, PreferNoSelect or
	// NoSelectIfNew.
	// +required
	Effect TaintEffect `json:"effect"`

	// timeAdded is when the taint was added. The tolerationSeconds of a placement count from then.
	// +optional
	// +nullable
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$`
	TimeAdded metav1.Time `json:"timeAdded,omitzero"`
}

// ManagedClusterStatus is the observed state of a cluster.
type ManagedClusterStatus struct {
	// conditions of the cluster: HubAcceptedManagedCluster, ManagedClusterJoined,
	// ManagedClusterConditionAvailable.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// capacity is the sum of what the nodes of the cluster have, such as cpu and memory.
	// +optional
	Capacity ResourceList `json:"capacity,omitempty"`

	// allocatable is the part of capacity that pods can use.
	// +optional
	Allocatable ResourceList `json:"allocatable,omitempty"`

	// version of the software of the cluster.
	// +optional
	Version ManagedClusterVersion `json:"version,omitzero"`

	// clusterClaims are properties that the cluster reports about itself. Placements can choose
	// clusters by them.
	// +optional
	// +listType=map
	// +listMapKey=name
	ClusterClaims []ManagedClusterClaim `json:"clusterClaims,omitempty"`
}

// ResourceName is the name of a resource of a cluster, such as cpu or memory.
type ResourceName string

// ResourceList holds a quantity for each resource.
type ResourceList map[ResourceName]resource.Quantity

// ManagedClusterVersion is the version of the software of a cluster.
type ManagedClusterVersion struct {
	// kubernetes is the version of the API server, such as v1.36.3.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// ManagedClusterClaim is a property that a cluster reports about itself.
type ManagedClusterClaim struct {
	// name of the claim, such as region.open-cluster-management.io.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// value of the claim.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

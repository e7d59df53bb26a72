package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=placements,scope=Namespaced
// +kubebuilder:printcolumn:name="Satisfied",type=string,JSONPath=`.status.conditions[?(@.type=="PlacementSatisfied")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="PlacementSatisfied")].reason`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.numberOfSelectedClusters`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Placement defines which clusters to choose. The chosen clusters are in PlacementDecisions of the
// same namespace, which have its name as a label. A cluster stays chosen while it qualifies.
type Placement struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines which clusters to choose. Empty: all of the bound sets that are not tainted.
	// +optional
	Spec PlacementSpec `json:"spec,omitzero"`

	// status contains the number of chosen clusters and their groups.
	// +optional
	Status PlacementStatus `json:"status,omitzero"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PlacementList is a list of Placements.
type PlacementList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the placements.
	Items []Placement `json:"items"`
}

// PlacementSpec defines which clusters to choose.
type PlacementSpec struct {
	// clusterSets are the ManagedClusterSets to choose from, of those that are bound to the namespace.
	// Empty: all of those.
	// +optional
	// +listType=atomic
	ClusterSets []string `json:"clusterSets,omitempty"`

	// numberOfClusters is the maximum number of chosen clusters. Absent: all that qualify.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NumberOfClusters *int32 `json:"numberOfClusters,omitempty"`

	// predicates define which clusters qualify: those that match at least one of them. Empty: all.
	// +optional
	// +listType=atomic
	Predicates []ClusterPredicate `json:"predicates,omitempty"`

	// prioritizerPolicy defines which of the clusters that qualify are preferred. Absent: chosen clusters
	// stay, and others follow by name.
	// +optional
	PrioritizerPolicy PrioritizerPolicy `json:"prioritizerPolicy,omitzero"`

	// spreadPolicy defines how chosen clusters are distributed, such as over regions.
	// +optional
	SpreadPolicy SpreadPolicy `json:"spreadPolicy,omitzero"`

	// tolerations allow the placement to choose clusters despite their taints.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Tolerations []Toleration `json:"tolerations,omitempty"`

	// decisionStrategy defines how the chosen clusters are divided into groups.
	// +optional
	DecisionStrategy DecisionStrategy `json:"decisionStrategy,omitzero"`
}

// ClusterPredicate is a condition by which a cluster qualifies.
type ClusterPredicate struct {
	// requiredClusterSelector must select the cluster.
	// +optional
	RequiredClusterSelector ClusterSelector `json:"requiredClusterSelector,omitzero"`
}

// ClusterSelector selects clusters that match all its selectors. An empty one selects all.
type ClusterSelector struct {
	// labelSelector selects by the labels of the ManagedCluster.
	// +optional
	LabelSelector metav1.LabelSelector `json:"labelSelector,omitzero"`

	// claimSelector selects by the claims in the status of the ManagedCluster.
	// +optional
	ClaimSelector ClusterClaimSelector `json:"claimSelector,omitzero"`

	// celSelector selects by expressions on the ManagedCluster and its scores.
	// +optional
	CelSelector ClusterCelSelector `json:"celSelector,omitzero"`
}

// ClusterCelSelector selects clusters by expressions of the Common Expression Language (CEL).
type ClusterCelSelector struct {
	// celExpressions are expressions, all of which must be true. The variable managedCluster is the
	// cluster, and managedCluster.scores("name") the scores of its AddOnPlacementScore of that name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=10000
	CelExpressions []string `json:"celExpressions,omitempty"`
}

// ClusterClaimSelector selects clusters by their claims.
type ClusterClaimSelector struct {
	// matchExpressions are requirements on claims, all of which must be met. They are written as
	// those on labels, with the name of the claim as key.
	// +optional
	// +listType=atomic
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// +kubebuilder:validation:Enum=Additive;Exact;""

// PrioritizerPolicyMode defines whether prioritizers that are not configured have an effect.
type PrioritizerPolicyMode string

// The modes of prioritizer policies.
const (
	// PrioritizerPolicyModeAdditive adds to what is configured Steady and Balance, with weight 1. It
	// is the default.
	PrioritizerPolicyModeAdditive PrioritizerPolicyMode = "Additive"
	// PrioritizerPolicyModeExact has the effect of what is configured, and no other.
	PrioritizerPolicyModeExact PrioritizerPolicyMode = "Exact"
)

// PrioritizerPolicy defines how clusters are scored. Those with the highest scores are chosen. The
// score of a cluster is the sum of what prioritizers give it, from -100 to 100, times their weights.
type PrioritizerPolicy struct {
	// mode is Additive, which adds Steady and Balance, or Exact.
	// +optional
	// +kubebuilder:default=Additive
	Mode PrioritizerPolicyMode `json:"mode,omitempty"`

	// configurations are the prioritizers with their weights.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Configurations []PrioritizerConfig `json:"configurations,omitempty"`
}

// PrioritizerConfig is a prioritizer with its weight.
type PrioritizerConfig struct {
	// scoreCoordinate is the prioritizer.
	// +required
	ScoreCoordinate *ScoreCoordinate `json:"scoreCoordinate,omitempty"`

	// weight of the prioritizer. 0 disables it; a negative one prefers the clusters with low scores.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=-10
	// +kubebuilder:validation:Maximum=10
	Weight int32 `json:"weight"`
}

// The types of score coordinates.
const (
	// ScoreCoordinateTypeBuiltIn is a prioritizer of the hub. It is the default.
	ScoreCoordinateTypeBuiltIn = "BuiltIn"
	// ScoreCoordinateTypeAddOn is a score of an AddOnPlacementScore.
	ScoreCoordinateTypeAddOn = "AddOn"
)

// Prioritizers of the hub.
const (
	// PrioritizerSteady gives 100 to chosen clusters and 0 to others.
	PrioritizerSteady = "Steady"
	// PrioritizerBalance gives 100 to clusters that no other placement has chosen, down to -100 for
	// those that the most have chosen.
	PrioritizerBalance = "Balance"
	// PrioritizerResourceAllocatableCPU gives -100 to 100, by the allocatable CPU of the clusters.
	PrioritizerResourceAllocatableCPU = "ResourceAllocatableCPU"
	// PrioritizerResourceAllocatableMemory gives -100 to 100, by the allocatable memory of the clusters.
	PrioritizerResourceAllocatableMemory = "ResourceAllocatableMemory"
)

// +kubebuilder:validation:XValidation:rule="self.type == 'AddOn' ? has(self.addOn) : has(self.builtIn) && self.builtIn != ''",message="type AddOn needs addOn, type BuiltIn needs builtIn"

// ScoreCoordinate is a prioritizer: one of the hub, or scores that an add-on writes.
type ScoreCoordinate struct {
	// type is BuiltIn or AddOn.
	// +optional
	// +kubebuilder:default=BuiltIn
	// +kubebuilder:validation:Enum=BuiltIn;AddOn
	Type string `json:"type,omitempty"`

	// builtIn is the name of a prioritizer of the hub: Balance, Steady, ResourceAllocatableCPU or
	// ResourceAllocatableMemory.
	// +optional
	// +kubebuilder:validation:Enum=Balance;Steady;ResourceAllocatableCPU;ResourceAllocatableMemory
	BuiltIn string `json:"builtIn,omitempty"`

	// addOn is the score that an add-on writes.
	// +optional
	AddOn *AddOnScore `json:"addOn,omitempty"`
}

// AddOnScore is a score in the AddOnPlacementScores of clusters.
type AddOnScore struct {
	// resourceName is the name of the AddOnPlacementScores.
	// +required
	// +kubebuilder:validation:MinLength=1
	ResourceName string `json:"resourceName"`

	// scoreName is the name of the score in them.
	// +required
	// +kubebuilder:validation:MinLength=1
	ScoreName string `json:"scoreName"`
}

// SpreadPolicy defines how chosen clusters are distributed.
type SpreadPolicy struct {
	// spreadConstraints are what the distribution must meet, all of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	SpreadConstraints []SpreadConstraintsTerm `json:"spreadConstraints,omitempty"`
}

// TopologyKeyType defines where the domain of a cluster is read.
type TopologyKeyType string

// The types of topology keys.
const (
	// TopologyKeyTypeLabel is a label of the ManagedCluster.
	TopologyKeyTypeLabel TopologyKeyType = "Label"
	// TopologyKeyTypeClaim is a claim in the status of the ManagedCluster.
	TopologyKeyTypeClaim TopologyKeyType = "Claim"
)

// UnsatisfiableMaxSkewAction defines what happens with clusters that would exceed the skew.
type UnsatisfiableMaxSkewAction string

// The actions on clusters that would exceed the skew.
const (
	// DoNotSchedule does not choose them, even if fewer clusters than wanted are chosen then.
	DoNotSchedule UnsatisfiableMaxSkewAction = "DoNotSchedule"
	// ScheduleAnyway chooses them if there are no others. It is the default.
	ScheduleAnyway UnsatisfiableMaxSkewAction = "ScheduleAnyway"
)

// SpreadConstraintsTerm distributes chosen clusters over the domains of one topology, such as regions.
type SpreadConstraintsTerm struct {
	// topologyKey is the label or claim whose value is the domain of a cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	TopologyKey string `json:"topologyKey"`

	// topologyKeyType is Label or Claim.
	// +required
	// +kubebuilder:validation:Enum=Label;Claim
	TopologyKeyType TopologyKeyType `json:"topologyKeyType"`

	// maxSkew is by how many clusters a domain may exceed the one with the fewest. Only domains with
	// clusters that qualify count.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	MaxSkew int32 `json:"maxSkew"`

	// whenUnsatisfiable is DoNotSchedule or ScheduleAnyway.
	// +optional
	// +kubebuilder:default=ScheduleAnyway
	// +kubebuilder:validation:Enum=DoNotSchedule;ScheduleAnyway
	WhenUnsatisfiable UnsatisfiableMaxSkewAction `json:"whenUnsatisfiable,omitempty"`
}

// +kubebuilder:validation:Enum=Exists;Equal

// TolerationOperator defines how a toleration compares its value with that of a taint.
type TolerationOperator string

// The operators of tolerations.
const (
	// TolerationOpExists tolerates any value.
	TolerationOpExists TolerationOperator = "Exists"
	// TolerationOpEqual tolerates an equal value. It is the default.
	TolerationOpEqual TolerationOperator = "Equal"
)

// +kubebuilder:validation:XValidation:rule="has(self.key) && self.key != '' || has(self.operator) && self.operator == 'Exists'",message="a toleration without key needs operator Exists"
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",message="a toleration with operator Exists has no value"

// Toleration allows a placement to choose a cluster despite a taint. It matches taints with its
// key, value and effect.
type Toleration struct {
	// key of the taint. Empty, with operator Exists: any taint.
	// +optional
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^(([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]))?$`
	Key string `json:"key,omitempty"`

	// operator is Equal, for an equal value, or Exists, for any.
	// +optional
	// +kubebuilder:default=Equal
	Operator TolerationOperator `json:"operator,omitempty"`

	// value of the taint, for operator Equal.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`

	// effect of the taint. Absent: any.
	// +optional
	Effect clusterv1.TaintEffect `json:"effect,omitempty"`

	// tolerationSeconds is how many seconds after its timeAdded the taint is tolerated; after that
	// the cluster is no longer chosen. 0 or less: not at all. Absent: forever.
	// +optional
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

// DecisionStrategy defines how chosen clusters are divided.
type DecisionStrategy struct {
	// groupStrategy divides them into groups.
	// +optional
	GroupStrategy GroupStrategy `json:"groupStrategy,omitzero"`
}

// GroupStrategy divides chosen clusters into groups: first those that decisionGroups name, in their
// order, then groups of the remaining ones. Groups are numbered from 0 in that order, which is the
// order of rollouts.
type GroupStrategy struct {
	// decisionGroups are groups that select clusters. A cluster belongs to the first that selects
	// it. A group larger than clustersPerDecisionGroup is split into several with the same name.
	// +optional
	// +listType=atomic
	DecisionGroups []DecisionGroup `json:"decisionGroups,omitempty"`

	// clustersPerDecisionGroup is the maximum number of clusters in a group: a number, or a
	// percentage of all chosen clusters, rounded up. Absent or 0: 100%.
	// +optional
	// +kubebuilder:default="100%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[1-9][0-9]?)%|[0-9]{1,9})$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0 && self <= 2147483647",message="must be a number of clusters, 0 or more, or a percentage"
	ClustersPerDecisionGroup intstr.IntOrString `json:"clustersPerDecisionGroup,omitzero"`
}

// DecisionGroup is a group of chosen clusters.
type DecisionGroup struct {
	// groupName is the name of the group, a valid label value. Rollouts refer to it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	GroupName string `json:"groupName"`

	// groupClusterSelector selects the clusters of the group among those chosen.
	// +optional
	ClusterSelector ClusterSelector `json:"groupClusterSelector,omitzero"`
}

// PlacementStatus is the result of a placement.
type PlacementStatus struct {
	// numberOfSelectedClusters is how many clusters are chosen.
	// +optional
	NumberOfSelectedClusters int32 `json:"numberOfSelectedClusters"`

	// decisionGroups are the groups of chosen clusters, by index.
	// +optional
	// +listType=atomic
	DecisionGroups []DecisionGroupStatus `json:"decisionGroups,omitempty"`

	// conditions of the placement: PlacementSatisfied, PlacementMisconfigured, ClusterSetsBound.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DecisionGroupStatus is one group of chosen clusters.
type DecisionGroupStatus struct {
	// decisionGroupIndex is the index of the group, from 0.
	// +required
	DecisionGroupIndex int32 `json:"decisionGroupIndex"`

	// decisionGroupName is the name of the group; empty if it has none.
	// +optional
	DecisionGroupName string `json:"decisionGroupName"`

	// decisions are the names of the PlacementDecisions that list its clusters.
	// +optional
	// +listType=atomic
	Decisions []string `json:"decisions,omitempty"`

	// clusterCount is how many clusters the group has.
	// +required
	ClustersCount int32 `json:"clusterCount"`
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +kubebuilder:validation:Enum=All;Progressive;ProgressivePerGroup

// RolloutType is the way in which a change is rolled out to clusters.
type RolloutType string

// The types of rollouts.
const (
	// All rolls out to all clusters at once. It is the default.
	All RolloutType = "All"
	// Progressive rolls out to a limited number of clusters at a time.
	Progressive RolloutType = "Progressive"
	// ProgressivePerGroup rolls out to one decision group of the placement after the other.
	ProgressivePerGroup RolloutType = "ProgressivePerGroup"
)

// +kubebuilder:validation:XValidation:rule="!has(self.type) || !has(self.rolloutType) || self.type == self.rolloutType",message="rolloutType and type are two names of one field: set one of them"

// RolloutStrategy defines how a change is rolled out to the clusters of a placement.
type RolloutStrategy struct {
	// rolloutType is All, Progressive or ProgressivePerGroup. Default: the value of type, or All.
	// +optional
	RolloutType RolloutType `json:"rolloutType,omitempty"`

	// type is another name of rolloutType. If both are set they must be equal.
	// +optional
	Type RolloutType `json:"type,omitempty"`

	// all has the options of rolloutType All.
	// +optional
	All *RolloutAll `json:"all,omitempty"`

	// progressive has the options of rolloutType Progressive.
	// +optional
	Progressive *RolloutProgressive `json:"progressive,omitempty"`

	// progressivePerGroup has the options of rolloutType ProgressivePerGroup.
	// +optional
	ProgressivePerGroup *RolloutProgressivePerGroup `json:"progressivePerGroup,omitempty"`
}

// Kind returns the type of the rollout from whichever of the two fields is set, All if none is.
// Both fields are kept as they were written, so that an update does not change fields that its
// author manages.
func (s *RolloutStrategy) Kind() RolloutType {
	switch {
	case s.RolloutType != "":
		return s.RolloutType
	case s.Type != "":
		return s.Type
	}
	return All
}

// RolloutConfig defines what happens with clusters that do not succeed.
type RolloutConfig struct {
	// minSuccessTime is how long a cluster must have succeeded before the rollout continues with
	// another, such as 5m or 1h30m. Default: 0.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,6}(\.[0-9]{1,9})?h)?([0-9]{1,6}(\.[0-9]{1,9})?m)?([0-9]{1,6}(\.[0-9]{1,9})?s)?([0-9]{1,6}ms)?)$`
	MinSuccessTime metav1.Duration `json:"minSuccessTime,omitzero"`

	// progressDeadline is how long a cluster may progress or fail until it counts as timed out,
	// such as 10m or 1h30m. Absent or None: forever.
	// +optional
	// +kubebuilder:validation:Pattern=`^(None|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$`
	ProgressDeadline string `json:"progressDeadline,omitempty"`

	// maxFailures is how many clusters may have failed or timed out before the rollout stops: a
	// number, or a percentage, rounded up, of all clusters of the placement (Progressive) or of the
	// group (ProgressivePerGroup). Clusters of mandatory groups must all succeed. Absent or 0: the
	// first failure stops the rollout. Has no effect on rolloutType All.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]{1,9})$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0 && self <= 2147483647",message="must be a number of clusters, 0 or more, or a percentage"
	MaxFailures intstr.IntOrString `json:"maxFailures,omitzero"`
}

// NoDeadline as progressDeadline, or an empty text, means that clusters never time out.
const NoDeadline = "None"

// MandatoryDecisionGroups are groups that must succeed before the rollout to other clusters begins.
type MandatoryDecisionGroups struct {
	// mandatoryDecisionGroups are decision groups that come first, one after the other by their
	// index, and must succeed without a failure before the rollout to other clusters begins.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	MandatoryDecisionGroups []MandatoryDecisionGroup `json:"mandatoryDecisionGroups,omitempty"`
}

// MandatoryDecisionGroup identifies a decision group of the placement.
type MandatoryDecisionGroup struct {
	// groupName is the name of the group. It identifies all groups with this name.
	// +optional
	GroupName string `json:"groupName,omitempty"`

	// groupIndex is the index of the group, from 0. It is ignored if groupName is set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GroupIndex int32 `json:"groupIndex,omitempty"`
}

// RolloutAll has the options of a rollout to all clusters at once.
type RolloutAll struct {
	// RolloutConfig defines what happens with clusters that do not succeed.
	RolloutConfig `json:",inline"`
}

// RolloutProgressive has the options of a rollout to a limited number of clusters at a time.
type RolloutProgressive struct {
	// RolloutConfig defines what happens with clusters that do not succeed.
	RolloutConfig `json:",inline"`

	// MandatoryDecisionGroups are groups that come first.
	MandatoryDecisionGroups `json:",inline"`

	// maxConcurrency is how many clusters the change is rolled out to at a time: a number, or a
	// percentage, rounded up, of the clusters that are in no mandatory group. Absent or 0: all of
	// them.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]{1,9})$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0 && self <= 2147483647",message="must be a number of clusters, 0 or more, or a percentage"
	MaxConcurrency intstr.IntOrString `json:"maxConcurrency,omitzero"`
}

// RolloutProgressivePerGroup has the options of a rollout by decision groups.
type RolloutProgressivePerGroup struct {
	// RolloutConfig defines what happens with clusters that do not succeed.
	RolloutConfig `json:",inline"`

	// MandatoryDecisionGroups are groups that come first.
	MandatoryDecisionGroups `json:",inline"`
}

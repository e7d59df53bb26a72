package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ApprovalRequired is the value of [RolloutStage].Approval for a stage that waits for an [Approval].
const ApprovalRequired = "Required"

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:resource:path=rolloutplans,scope=Namespaced,shortName={rplan}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// RolloutPlan says in which order and at which times the ManifestWorkReplicaSets that name it in the annotation
// workwire.dev/rollout-plan reach their clusters. Within a stage the rolloutStrategy of each placement decides.
type RolloutPlan struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the plan.
	// +required
	Spec RolloutPlanSpec `json:"spec"`
}

// RolloutPlanSpec is the order and the times of a rollout.
type RolloutPlanSpec struct {
	// stages follow one another: one starts when those before it are complete. Clusters that no stage selects come last.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Stages []RolloutStage `json:"stages,omitempty"`

	// windows are when clusters receive a new spec; absent: always.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Windows []RolloutWindow `json:"windows,omitempty"`

	// stageAhead is how long before its window a cluster receives a new spec, which its agent applies when the window opens;
	// at most 168h, and only where the agent can (docs/order.md). Absent: when the window is open.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,6}(\.[0-9]{1,9})?h)?([0-9]{1,6}(\.[0-9]{1,9})?m)?([0-9]{1,6}(\.[0-9]{1,9})?s)?([0-9]{1,6}ms)?)$`
	StageAhead metav1.Duration `json:"stageAhead,omitempty,omitzero"`

	// freezes are when nothing starts.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Freezes []RolloutFreeze `json:"freezes,omitempty"`
}

// RolloutStage is a part of the clusters of a set. A cluster is in the first stage that selects it.
type RolloutStage struct {
	// name names the stage in messages and approvals; not preview.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self != 'preview'",message="preview names the preview of a rollout"
	Name string `json:"name"`

	// clusterSelector selects clusters by the labels of their ManagedCluster; absent or empty: all that no earlier stage
	// selects.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`

	// apart is a label key of failure domains: no cluster of the stage starts while one with another value, or without
	// the label, is in progress.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Apart string `json:"apart,omitempty"`

	// soak is how long all clusters of the stage must have been successful before the next stage starts, such as 24h or 1h30m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,6}(\.[0-9]{1,9})?h)?([0-9]{1,6}(\.[0-9]{1,9})?m)?([0-9]{1,6}(\.[0-9]{1,9})?s)?([0-9]{1,6}ms)?)$`
	Soak metav1.Duration `json:"soak,omitempty,omitzero"`

	// tests must be true on every cluster of the stage before the next stage starts.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Tests []RolloutTest `json:"tests,omitempty"`

	// approval Required: the stage starts when somebody has approved it for the revision that is rolled out.
	// +optional
	// +kubebuilder:validation:Enum=Required
	Approval string `json:"approval,omitempty"`
}

// RolloutTest tests a cluster that has applied the template.
type RolloutTest struct {
	// name names the test in messages.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// expression is a CEL expression that returns whether the test has succeeded. It has the variables conditions, the
	// conditions of the work by type, and manifests, a list with group, kind, namespace, name, conditions and feedback of
	// each.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10000
	Expression string `json:"expression"`

	// timeout is how long after the success of the cluster the test may be false before the cluster counts as failed;
	// default 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,6}(\.[0-9]{1,9})?h)?([0-9]{1,6}(\.[0-9]{1,9})?m)?([0-9]{1,6}(\.[0-9]{1,9})?s)?([0-9]{1,6}ms)?)$`
	Timeout metav1.Duration `json:"timeout,omitempty,omitzero"`
}

// RolloutWindow is a time that comes again.
type RolloutWindow struct {
	// schedule is when the window opens, as in a CronJob: minute, hour, day of the month, month and day of the week, or a
	// word such as @daily.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule"`

	// duration is how long it is open, at most 168h.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,6}(\.[0-9]{1,9})?h)?([0-9]{1,6}(\.[0-9]{1,9})?m)?([0-9]{1,6}(\.[0-9]{1,9})?s)?([0-9]{1,6}ms)?)$`
	Duration metav1.Duration `json:"duration"`

	// timeZone is the name of a time zone, such as Europe/Berlin; default UTC. With timeZoneClaim, it is that of clusters
	// without the claim.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// timeZoneClaim is the name of the ClusterClaim whose value is the name of the time zone of a cluster. The window of a
	// cluster without it does not open, unless timeZone says which it is.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TimeZoneClaim string `json:"timeZoneClaim,omitempty"`
}

// RolloutFreeze is a time in which nothing starts.
type RolloutFreeze struct {
	// from is when it begins.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$`
	From metav1.Time `json:"from"`

	// to is when it ends.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$`
	To metav1.Time `json:"to"`

	// reason says why, for messages.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// RolloutPlanList is a list of RolloutPlans.
type RolloutPlanList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the RolloutPlans.
	Items []RolloutPlan `json:"items"`
}

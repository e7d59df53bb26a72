package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=manifestworks,scope=Namespaced,shortName={mw}
// +kubebuilder:printcolumn:name="Delivered",type=string,JSONPath=`.status.conditions[?(@.type=="Delivered")].status`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Cause",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or is not"
// +kubebuilder:printcolumn:name="Complete",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].status`
// +kubebuilder:printcolumn:name="Observed",type=integer,JSONPath=`.status.conditions[?(@.type=="Applied")].observedGeneration`,description="The generation that Applied, Available and Complete are about"
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.metadata.generation`,description="The generation of the spec"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Delivered")].reason`
// +kubebuilder:printcolumn:name="Since",type=date,priority=1,JSONPath=`.status.conditions[?(@.type=="Delivered")].lastTransitionTime`,description="How long ago Delivered changed"
// +kubebuilder:printcolumn:name="Delivery",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Delivered")].message`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What keeps it from being ready"

// ManifestWork is a set of Kubernetes objects for one cluster. It is created on the hub, in the
// namespace that bears the cluster's name; the agent of that cluster applies the objects and
// reports back in the status.
type ManifestWork struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. Its namespace names the cluster; its labels are
	// copied to the AppliedManifestWork on the cluster.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what the cluster shall hold.
	// +required
	Spec ManifestWorkSpec `json:"spec"`

	// status is what the agent of the cluster last reported.
	// +optional
	Status ManifestWorkStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWorkList is a list of ManifestWorks.
type ManifestWorkList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the works.
	Items []ManifestWork `json:"items"`
}

// +kubebuilder:validation:XValidation:rule="has(self.workload) && has(self.workload.manifests) && size(self.workload.manifests) > 0",message="manifests should not be empty",fieldPath=".workload.manifests"

// ManifestWorkSpec defines the objects to apply to a cluster, and how the agent applies them.
type ManifestWorkSpec struct {
	// workload contains the objects.
	// +optional
	Workload ManifestsTemplate `json:"workload,omitempty"`

	// deleteOption defines what happens to applied objects when they are removed from the work or
	// the work is deleted. Absent: they are deleted too.
	// +optional
	DeleteOption *DeleteOption `json:"deleteOption,omitempty"`

	// manifestConfigs sets, for chosen manifests, the update strategy, the values to feed back and
	// the rules for further conditions. Where several entries match a manifest, each of
	// conditionRules, feedbackRules and updateStrategy comes whole from the first entry that sets
	// it. An entry that matches nothing is ignored.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	ManifestConfigs []ManifestConfigOption `json:"manifestConfigs,omitempty"`

	// executor is an identity on the cluster. The agent applies a manifest only if that identity is
	// allowed to. Absent: the permissions of the agent apply.
	// +optional
	Executor *ManifestWorkExecutor `json:"executor,omitempty"`
}

// ManifestsTemplate is the list of objects to apply.
type ManifestsTemplate struct {
	// manifests are the objects, in the order in which the status lists them. All manifests of a
	// work together can have up to 500 KiB (512000 bytes) as JSON. At least one is required.
	// +optional
	// +listType=atomic
	Manifests []Manifest `json:"manifests,omitempty"`
}

// +kubebuilder:pruning:PreserveUnknownFields

// Manifest is one Kubernetes object, of any kind, as JSON. It must have apiVersion, kind,
// metadata.name and, for a namespaced kind, metadata.namespace; metadata.generateName is not
// allowed. The hub does not validate it: the status of the work reports objects that the cluster
// cannot apply.
type Manifest struct {
	// RawExtension contains the JSON in Raw.
	runtime.RawExtension `json:",inline"`
}

// ManifestWorkStatus is the state of a work on its cluster.
type ManifestWorkStatus struct {
	// observedGeneration is the generation that the condition Ready is about. The hub writes it, for tools that
	// compare it with metadata.generation, as kstatus does.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions describe the work as a whole: Delivered, which the hub writes, and Applied,
	// Available, DeletionHeld, SpecUntrusted, Deleting, Deleted, and one for each type that the
	// condition rules of its manifests name. Their observedGeneration is that of the spec they are about.
	// +optional
	// +listType=atomic
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// resourceStatus describes the work manifest by manifest.
	// +optional
	ResourceStatus ManifestResourceStatus `json:"resourceStatus,omitempty"`

	// delivery says how far the newest spec has got, and when. The hub writes it together with
	// Delivered.
	// +optional
	Delivery *DeliveryStatus `json:"delivery,omitempty"`
}

// DeliveryStatus is the way of one generation of a spec from the hub to its cluster. A time is
// absent while the spec has not got so far, or nobody said when. The hub's clock and the cluster's
// may differ.
type DeliveryStatus struct {
	// generation of the spec that all times are about.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// acceptedTime is when the hub first saw the spec, by the hub's clock.
	// +optional
	AcceptedTime *metav1.MicroTime `json:"acceptedTime,omitempty"`

	// publishedTime is when the hub began to send it to the broker, by the hub's clock. A spec that
	// is sent more than once has the last of these times.
	// +optional
	PublishedTime *metav1.MicroTime `json:"publishedTime,omitempty"`

	// acknowledgedTime is when the broker had taken it, by the hub's clock.
	// +optional
	AcknowledgedTime *metav1.MicroTime `json:"acknowledgedTime,omitempty"`

	// receivedTime is when the agent received it, by the agent's clock.
	// +optional
	ReceivedTime *metav1.MicroTime `json:"receivedTime,omitempty"`

	// appliedTime is when the agent had first applied all of its manifests, by the agent's clock.
	// +optional
	AppliedTime *metav1.MicroTime `json:"appliedTime,omitempty"`

	// readyTime is when its objects last became ready, by the agent's clock. It is absent while they
	// are not ready, and for works that do not report readiness.
	// +optional
	ReadyTime *metav1.MicroTime `json:"readyTime,omitempty"`
}

// ManifestResourceStatus contains one entry for each manifest of the spec, in the order of the
// spec.
type ManifestResourceStatus struct {
	// manifests are the entries.
	// +optional
	// +listType=atomic
	Manifests []ManifestCondition `json:"manifests,omitempty"`
}

// ManifestCondition is the state of one manifest on the cluster.
type ManifestCondition struct {
	// resourceMeta identifies the manifest, and the object on the cluster, that this entry is
	// about.
	// +required
	ResourceMeta ManifestResourceMeta `json:"resourceMeta"`

	// statusFeedback contains the values of the feedback rules of the manifest.
	// +optional
	StatusFeedbacks StatusFeedbackResult `json:"statusFeedback,omitempty"`

	// conditions of the manifest: Applied, Available, StatusFeedbackSynced, and those of its
	// condition rules.
	// +optional
	// +listType=atomic
	Conditions []metav1.Condition `json:"conditions"`
}

// ManifestResourceMeta identifies a manifest of a work and its object on the cluster. All fields
// are always written; those that the agent could not determine are empty.
type ManifestResourceMeta struct {
	// ordinal is the index of the manifest in the spec, from 0.
	// +optional
	Ordinal int32 `json:"ordinal"`

	// group of the object's API; empty for the core group.
	// +optional
	Group string `json:"group"`

	// version of the object's API, such as v1.
	// +optional
	Version string `json:"version"`

	// kind of the object, such as Deployment.
	// +optional
	Kind string `json:"kind"`

	// resource is the plural under which the cluster serves the kind, such as deployments; empty if
	// it does not.
	// +optional
	Resource string `json:"resource"`

	// name of the object.
	// +optional
	Name string `json:"name"`

	// namespace of the object; empty for a cluster-scoped kind.
	// +optional
	Namespace string `json:"namespace"`
}

// StatusFeedbackResult contains the values read from the live object.
type StatusFeedbackResult struct {
	// values are in the order of the rules and, within a rule, of its paths. Values that the object
	// does not have are omitted.
	// +optional
	// +listType=atomic
	Values []FeedbackValue `json:"values,omitempty"`
}

// FeedbackValue is one value read from the live object.
type FeedbackValue struct {
	// name of the value, as the rule gives it.
	// +required
	Name string `json:"name"`

	// fieldValue is the value with its type.
	// +required
	Value FieldValue `json:"fieldValue"`
}

// +kubebuilder:validation:Enum=Integer;String;Boolean;JsonRaw

// ValueType is the type of a FieldValue.
type ValueType string

// The types that a fed-back value can have.
const (
	// Integer is a whole number of 64 bits.
	Integer ValueType = "Integer"
	// String is a text.
	String ValueType = "String"
	// Boolean is true or false.
	Boolean ValueType = "Boolean"
	// JsonRaw is any other JSON value, as compact JSON text. The agent reports it only with its
	// feature gate RawFeedbackJsonString.
	JsonRaw ValueType = "JsonRaw"
)

// FieldValue is a value together with its type. Only the field for the type is set.
type FieldValue struct {
	// type determines which of the other fields contains the value.
	// +required
	Type ValueType `json:"type"`

	// integer is the value, if type is Integer.
	// +optional
	Integer *int64 `json:"integer,omitempty"`

	// string is the value, if type is String.
	// +optional
	String *string `json:"string,omitempty"`

	// boolean is the value, if type is Boolean.
	// +optional
	Boolean *bool `json:"boolean,omitempty"`

	// jsonRaw is the value as compact JSON, if type is JsonRaw; at most 1024 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	JsonRaw *string `json:"jsonRaw,omitempty"`
}

package v1

// +kubebuilder:validation:Enum=Foreground;Orphan;SelectivelyOrphan

// DeletePropagationPolicyType defines which applied objects are deleted with their work.
type DeletePropagationPolicyType string

// The propagation policies of deletion.
const (
	// DeletePropagationPolicyTypeForeground deletes all applied objects; the work is removed after
	// them. It is the default.
	DeletePropagationPolicyTypeForeground DeletePropagationPolicyType = "Foreground"
	// DeletePropagationPolicyTypeOrphan leaves all applied objects on the cluster.
	DeletePropagationPolicyTypeOrphan DeletePropagationPolicyType = "Orphan"
	// DeletePropagationPolicyTypeSelectivelyOrphan leaves the objects that the orphaning rules
	// identify.
	DeletePropagationPolicyTypeSelectivelyOrphan DeletePropagationPolicyType = "SelectivelyOrphan"
)

// DeleteOption defines what happens to applied objects when their manifest is removed from the
// work, or the work is deleted or finished. A change takes effect when the manifest is next
// applied: to keep an object, set the option first, wait until the work is Applied at that
// generation, then remove the manifest or the work.
type DeleteOption struct {
	// propagationPolicy is Foreground (applied objects are deleted), Orphan (none is) or
	// SelectivelyOrphan (all are except those that selectivelyOrphans identifies).
	// +optional
	// +kubebuilder:default=Foreground
	PropagationPolicy DeletePropagationPolicyType `json:"propagationPolicy,omitempty"`

	// selectivelyOrphans identifies the objects that SelectivelyOrphan keeps. Absent or without
	// rules: none.
	// +optional
	SelectivelyOrphan *SelectivelyOrphan `json:"selectivelyOrphans,omitempty"`

	// ttlSecondsAfterFinished is the number of seconds after which a finished work is deleted from
	// the hub, counted from the moment its Complete condition became True. 0 or less: at once.
	// Absent: never.
	// +optional
	TTLSecondsAfterFinished *int64 `json:"ttlSecondsAfterFinished,omitempty"`
}

// SelectivelyOrphan identifies the objects to leave on the cluster.
type SelectivelyOrphan struct {
	// orphaningRules identify one object each.
	// +optional
	// +listType=atomic
	OrphaningRules []OrphaningRule `json:"orphaningRules,omitempty"`
}

// OrphaningRule identifies one object. All four fields must be equal to those of the object; there
// are no wildcards.
type OrphaningRule struct {
	// group of the object's API; empty for the core group.
	// +optional
	Group string `json:"group"`

	// resource is the plural name, such as services.
	// +required
	// +kubebuilder:validation:MinLength=1
	Resource string `json:"resource"`

	// namespace of the object; empty for a cluster-scoped kind.
	// +optional
	Namespace string `json:"namespace"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// ManifestWorkExecutor is the identity on whose behalf a work is applied.
type ManifestWorkExecutor struct {
	// subject is the identity.
	// +required
	Subject ManifestWorkExecutorSubject `json:"subject"`
}

// +kubebuilder:validation:Enum=ServiceAccount

// ManifestWorkExecutorSubjectType is a kind of executor.
type ManifestWorkExecutorSubjectType string

// ExecutorSubjectTypeServiceAccount makes a ServiceAccount of the cluster the executor.
const ExecutorSubjectTypeServiceAccount ManifestWorkExecutorSubjectType = "ServiceAccount"

// +kubebuilder:validation:XValidation:rule="self.type != 'ServiceAccount' || has(self.serviceAccount)",message="serviceAccount is required for subjects of type ServiceAccount"

// ManifestWorkExecutorSubject is an identity on the cluster.
type ManifestWorkExecutorSubject struct {
	// type is ServiceAccount, the only type.
	// +required
	Type ManifestWorkExecutorSubjectType `json:"type"`

	// serviceAccount is the executor, if type is ServiceAccount.
	// +optional
	ServiceAccount *ManifestWorkSubjectServiceAccount `json:"serviceAccount,omitempty"`
}

// ManifestWorkSubjectServiceAccount identifies a ServiceAccount of the cluster. It does not have to
// exist; only its permissions matter.
type ManifestWorkSubjectServiceAccount struct {
	// namespace of the ServiceAccount on the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// name of the ServiceAccount.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

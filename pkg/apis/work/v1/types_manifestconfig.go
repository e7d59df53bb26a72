package v1

// ManifestConfigOption sets options for the manifests that its resourceIdentifier matches.
type ManifestConfigOption struct {
	// resourceIdentifier says which manifests of the work the options are for.
	// +required
	ResourceIdentifier ResourceIdentifier `json:"resourceIdentifier"`

	// feedbackRules say which values of the live object are reported in statusFeedback. Rules are
	// evaluated in order, and values found are reported even if others fail.
	// +optional
	// +listType=atomic
	FeedbackRules []FeedbackRule `json:"feedbackRules,omitempty"`

	// feedbackScrapeType says when the values are read: Poll, at the agent's status-sync-interval,
	// or Watch, at each change of the object. It goes with the feedbackRules beside it.
	// +optional
	// +kubebuilder:default=Poll
	FeedbackScrapeType FeedbackScrapeType `json:"feedbackScrapeType,omitempty"`

	// updateStrategy says how the manifest is written to the cluster. Absent: Update.
	// +optional
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`

	// conditionRules derive further conditions of the manifest from the live object. Each type of
	// condition is also aggregated into a condition of the work.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ConditionRules []ConditionRule `json:"conditionRules,omitempty"`
}

// ResourceIdentifier names objects by group, resource, namespace and name. In manifestConfigs a *
// in namespace or name stands for any run of characters, also none; everything else must be equal.
// An AppliedManifestWork uses it for one object, without wildcards.
type ResourceIdentifier struct {
	// group of the API; empty for the core group.
	// +optional
	Group string `json:"group"`

	// resource is the plural name, such as deployments.
	// +required
	// +kubebuilder:validation:MinLength=1
	Resource string `json:"resource"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// namespace of the object; empty for cluster-scoped kinds.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// +kubebuilder:validation:Enum=WellKnownStatus;JSONPaths

// FeedBackType is a kind of feedback rule.
type FeedBackType string

// The kinds of feedback rules.
const (
	// WellKnownStatusType reports a fixed set of values, chosen by the kind of the object:
	// Deployment and DaemonSet of apps/v1, Job of batch/v1, Pod of v1. Other kinds have none.
	WellKnownStatusType FeedBackType = "WellKnownStatus"
	// JSONPathsType reports the values at the rule's jsonPaths.
	JSONPathsType FeedBackType = "JSONPaths"
)

// FeedbackRule asks for values of the live object.
type FeedbackRule struct {
	// type is WellKnownStatus, for the usual values of well-known kinds, or JSONPaths.
	// +required
	Type FeedBackType `json:"type"`

	// jsonPaths are the values to report, if type is JSONPaths.
	// +optional
	// +listType=atomic
	JsonPaths []JsonPath `json:"jsonPaths,omitempty"`
}

// JsonPath is one value to report.
type JsonPath struct {
	// name under which the value is reported. Names need not be unique; each is reported.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// version of the object's API that the path is for. Given, it must be that of the manifest.
	// Absent: any.
	// +optional
	Version string `json:"version,omitempty"`

	// path is a Kubernetes JSONPath without braces, from the root of the object, with a leading
	// dot, such as .status.conditions[?(@.type=="Available")].status. Of several matches the first
	// is reported.
	// +required
	// +kubebuilder:validation:MinLength=1
	Path string `json:"path"`
}

// +kubebuilder:validation:Enum=Poll;Watch

// FeedbackScrapeType says what makes the agent read feedback values.
type FeedbackScrapeType string

// The ways to read feedback values.
const (
	// FeedbackScrapeTypePoll reads the object at the agent's status-sync-interval. It is the
	// default.
	FeedbackScrapeTypePoll FeedbackScrapeType = "Poll"
	// FeedbackScrapeTypeWatch watches the object and reports each change at once. Beyond the
	// agent's limit max-feedback-watch, or without the right to list and watch, the object is
	// polled.
	FeedbackScrapeTypeWatch FeedbackScrapeType = "Watch"
)

// +kubebuilder:validation:Enum=Update;CreateOnly;ServerSideApply;ReadOnly

// UpdateStrategyType is a way to write a manifest to the cluster.
type UpdateStrategyType string

// The update strategies.
const (
	// UpdateStrategyTypeUpdate creates the object, and replaces it whenever it differs from the
	// manifest. It is the default.
	UpdateStrategyTypeUpdate UpdateStrategyType = "Update"
	// UpdateStrategyTypeCreateOnly creates the object if it is missing and never changes its
	// content.
	UpdateStrategyTypeCreateOnly UpdateStrategyType = "CreateOnly"
	// UpdateStrategyTypeServerSideApply writes the fields of the manifest by server-side apply, so
	// that others may own other fields of the object.
	UpdateStrategyTypeServerSideApply UpdateStrategyType = "ServerSideApply"
	// UpdateStrategyTypeReadOnly writes nothing. The object is observed: availability, feedback,
	// condition rules.
	UpdateStrategyTypeReadOnly UpdateStrategyType = "ReadOnly"
)

// +kubebuilder:validation:XValidation:rule="!has(self.force)",message="force belongs to the options of server-side apply: set updateStrategy.serverSideApply.force"

// UpdateStrategy says how a manifest is written to the cluster.
type UpdateStrategy struct {
	// type is the strategy: Update, CreateOnly, ServerSideApply or ReadOnly.
	// +optional
	// +kubebuilder:default=Update
	Type UpdateStrategyType `json:"type,omitempty"`

	// serverSideApply holds the options of ServerSideApply. Other strategies do not look at it.
	// +optional
	ServerSideApply *ServerSideApplyConfig `json:"serverSideApply,omitempty"`

	// force is no field of a strategy: it belongs to serverSideApply, and is refused here. Where it
	// is not refused, as with schemas that do not know it, it would be lost without a word.
	// +optional
	MisplacedForce *bool `json:"force,omitempty"`
}

// ServerSideApplyConfig holds the options of the ServerSideApply strategy.
type ServerSideApplyConfig struct {
	// force takes over fields that another manager owns. Without it such a field is a conflict, and
	// the manifest is reported as not applied.
	// +optional
	Force bool `json:"force"`

	// fieldManager is the name under which the fields of the manifest are owned. It starts with
	// work-agent. Two works that write different fields of one object need two names.
	// +optional
	// +kubebuilder:default=work-agent
	// +kubebuilder:validation:Pattern=`^work-agent`
	// +kubebuilder:validation:MaxLength=128
	FieldManager string `json:"fieldManager,omitempty"`

	// ignoreFields are fields of the manifest that are not written under some condition; at most
	// one entry for each condition. Any entry also stops the agent from repairing drift: a manifest
	// that is the same as at its last apply is not applied again.
	// +optional
	// +listType=map
	// +listMapKey=condition
	IgnoreFields []IgnoreField `json:"ignoreFields,omitempty"`
}

// +kubebuilder:validation:Enum=OnSpokePresent;OnSpokeChange

// IgnoreFieldsCondition says when fields of a manifest are ignored.
type IgnoreFieldsCondition string

// The conditions under which fields are ignored.
const (
	// IgnoreFieldsConditionOnSpokePresent ignores the fields as soon as the object exists on the
	// cluster: they are sent when the object is created, and a change to nothing but them is no
	// change.
	IgnoreFieldsConditionOnSpokePresent IgnoreFieldsCondition = "OnSpokePresent"
	// IgnoreFieldsConditionOnSpokeChange ignores changes made on the cluster, but sends the fields
	// again when the manifest itself changes.
	IgnoreFieldsConditionOnSpokeChange IgnoreFieldsCondition = "OnSpokeChange"
)

// IgnoreField names fields of a manifest that are ignored under a condition. The three lists add
// up, and are evaluated in the order in which they stand here.
type IgnoreField struct {
	// condition says when the fields are ignored: OnSpokePresent, once the object exists, or
	// OnSpokeChange, when only the object on the cluster changed.
	// +required
	// +kubebuilder:default=OnSpokePresent
	Condition IgnoreFieldsCondition `json:"condition"`

	// jsonPaths name fields by dots, such as .spec.replicas. There is no escape for a key that has
	// a dot: use jsonPointers. A path that does not fit the manifest is passed over.
	// +optional
	// +listType=atomic
	JSONPaths []string `json:"jsonPaths,omitempty"`

	// jsonPointers name fields as RFC 6901 says, such as /metadata/annotations/example.com~1key. A
	// malformed pointer fails the manifest; one that finds nothing is passed over.
	// +optional
	// +listType=atomic
	JSONPointers []string `json:"jsonPointers,omitempty"`

	// jqPathExpressions name fields as paths in the language of jq, such as
	// .spec.template.spec.containers[] | select(.name == "sidecar"). An expression that does not
	// compile, or runs longer than a second, fails the manifest.
	// +optional
	// +listType=atomic
	JQPathExpressions []string `json:"jqPathExpressions,omitempty"`
}

// +kubebuilder:validation:Enum=CEL;WellKnownConditions

// ConditionRuleType is a kind of condition rule.
type ConditionRuleType string

// The kinds of condition rules.
const (
	// CelConditionExpressionsType evaluates the rule's celExpressions.
	CelConditionExpressionsType ConditionRuleType = "CEL"
	// WellKnownConditionsType evaluates a built-in rule, chosen by the kind of the object and the
	// condition: Complete of a batch/v1 Job and of a v1 Pod. For any other pair the rule gives no
	// condition.
	WellKnownConditionsType ConditionRuleType = "WellKnownConditions"
)

// +kubebuilder:validation:XValidation:rule="self.type != 'CEL' || has(self.condition)",message="condition is required for rules of type CEL"
// +kubebuilder:validation:XValidation:rule="!has(self.condition) || !(self.condition in ['Applied', 'Available', 'StatusFeedbackSynced', 'DeletionHeld', 'SpecUntrusted', 'Deleting', 'Deleted', 'Delivered'])",message="condition must not be Applied, Available, StatusFeedbackSynced, DeletionHeld, SpecUntrusted, Deleting, Deleted or Delivered: the agent and the hub set these themselves"

// ConditionRule derives a condition from the live object.
type ConditionRule struct {
	// condition is the type of the condition that the rule sets, such as Complete. A manifest whose
	// Complete is True is no longer applied; nor is a work whose Complete is True.
	// +optional
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`
	Condition string `json:"condition,omitempty"`

	// type is CEL, for the rule's own expressions, or WellKnownConditions, for those built into the
	// agent.
	// +required
	Type ConditionRuleType `json:"type"`

	// celExpressions are the expressions of a CEL rule. Each must give a bool; the condition is
	// True if all are true, also if there are none. They see the live object as the variable
	// object. An item is the text of an expression; an object with the text in its field expression
	// is taken too.
	// +optional
	// +listType=atomic
	CelExpressions CelExpressions `json:"celExpressions,omitempty"`

	// message of the condition. Absent: a message is made from its type and status.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// messageExpression is a CEL expression that gives the message as a string; a non-empty one
	// goes before message. It sees the variables object and result, the outcome of the rule as a
	// bool.
	// +optional
	MessageExpression string `json:"messageExpression,omitempty"`
}

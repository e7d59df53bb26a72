package v1beta1

// Labels of PlacementDecisions.
const (
	// PlacementLabel is the name of the Placement that the decisions are of.
	PlacementLabel = "cluster.open-cluster-management.io/placement"
	// DecisionGroupIndexLabel is the index of the decision group that the decisions are of, from 0.
	DecisionGroupIndexLabel = "cluster.open-cluster-management.io/decision-group-index"
	// DecisionGroupNameLabel is the name of that group; empty for one without a name.
	DecisionGroupNameLabel = "cluster.open-cluster-management.io/decision-group-name"
)

// MaxDecisions is the number of clusters that one PlacementDecision may hold.
const MaxDecisions = 100

// Condition types of a Placement.
const (
	// PlacementConditionSatisfied is True when as many clusters are chosen as are wanted.
	PlacementConditionSatisfied = "PlacementSatisfied"
	// PlacementConditionMisconfigured is True when the spec cannot be followed; the message says
	// why.
	PlacementConditionMisconfigured = "PlacementMisconfigured"
)

// Reasons of the condition PlacementSatisfied.
const (
	// ReasonAllDecisionsScheduled (True): as many clusters are chosen as are wanted.
	ReasonAllDecisionsScheduled = "AllDecisionsScheduled"
	// ReasonNotAllDecisionsScheduled (False): too few clusters qualify.
	ReasonNotAllDecisionsScheduled = "NotAllDecisionsScheduled"
	// ReasonNoManagedClusterMatched (False): no cluster qualifies.
	ReasonNoManagedClusterMatched = "NoManagedClusterMatched"
)

// Reasons of the condition PlacementMisconfigured.
const (
	// ReasonMisconfigured (True): the spec cannot be followed.
	ReasonMisconfigured = "Misconfigured"
	// ReasonSucceedConfigured (False): it can.
	ReasonSucceedConfigured = "Succeedconfigured"
)

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
	// PlacementConditionBound is True when the decisions were made from ManagedClusterSets that are
	// bound to the namespace, and False with ReasonDecisionsKept while they are older than cluster
	// sets and no set with clusters is bound.
	PlacementConditionBound = "ClusterSetsBound"
)

// Reasons of the condition PlacementSatisfied.
const (
	// ReasonAllDecisionsScheduled (True): as many clusters are chosen as are wanted.
	ReasonAllDecisionsScheduled = "AllDecisionsScheduled"
	// ReasonNotAllDecisionsScheduled (False): too few clusters qualify.
	ReasonNotAllDecisionsScheduled = "NotAllDecisionsScheduled"
	// ReasonNoManagedClusterMatched (False): no cluster qualifies.
	ReasonNoManagedClusterMatched = "NoManagedClusterMatched"
	// ReasonNoManagedClusterSetBindings (False): no ManagedClusterSet is bound to the namespace.
	ReasonNoManagedClusterSetBindings = "NoManagedClusterSetBindings"
	// ReasonNoIntersection (False): none of spec.clusterSets is bound to the namespace.
	ReasonNoIntersection = "NoIntersection"
	// ReasonAllManagedClusterSetsEmpty (False): the sets to choose from have no clusters.
	ReasonAllManagedClusterSetsEmpty = "AllManagedClusterSetsEmpty"
)

// Reasons of the condition ClusterSetsBound, besides those of PlacementSatisfied.
const (
	// ReasonClusterSetsBound (True): there are bound sets with clusters to choose from.
	ReasonClusterSetsBound = "ClusterSetsBound"
	// ReasonDecisionsKept (False): the decisions of a hub without cluster sets are unchanged.
	ReasonDecisionsKept = "DecisionsKept"
)

// Reasons of the condition PlacementMisconfigured.
const (
	// ReasonMisconfigured (True): the spec cannot be followed.
	ReasonMisconfigured = "Misconfigured"
	// ReasonSucceedConfigured (False): it can.
	ReasonSucceedConfigured = "Succeedconfigured"
)

// EventDecisionUpdate is the reason of the event on a Placement whose decisions have changed.
const EventDecisionUpdate = "DecisionUpdate"

package v1beta2

// Names of sets that every hub has, and whose members do not depend on their spec.
const (
	// DefaultSet has the clusters that are labelled with it, and those without the label.
	DefaultSet = "default"
	// GlobalSet has all clusters.
	GlobalSet = "global"
)

// ManagedClusterSetConditionEmpty is the condition type of a ManagedClusterSet that is True while the
// set has no cluster.
const ManagedClusterSetConditionEmpty = "ClusterSetEmpty"

// Reasons of the condition ClusterSetEmpty.
const (
	// ReasonNoClusterMatched (True): the set has no cluster.
	ReasonNoClusterMatched = "NoClusterMatched"
	// ReasonClustersSelected (False): it has some; the message states how many.
	ReasonClustersSelected = "ClustersSelected"
)

// ClusterSetBindingBoundType is the condition type of a ManagedClusterSetBinding that is True while
// the set exists.
const ClusterSetBindingBoundType = "Bound"

// Reasons of the condition Bound.
const (
	// ReasonClusterSetBound (True): the set exists.
	ReasonClusterSetBound = "ClusterSetBound"
	// ReasonClusterSetNotFound (False): it does not.
	ReasonClusterSetNotFound = "ClusterSetNotFound"
)

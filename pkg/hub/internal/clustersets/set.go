package clustersets

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
)

// Set decides which clusters belong to a ManagedClusterSet. It is immutable.
type Set struct {
	name     string
	selector labels.Selector // nil: the clusters whose label is the name
}

// NewSet returns the rule of a set. The sets default and global have the same rule on every hub,
// whatever their spec is. A set whose selector is invalid, or of a type that this hub does not know,
// has no clusters.
func NewSet(s *clusterv1beta2.ManagedClusterSet) *Set {
	set := &Set{name: s.Name}
	selector := s.Spec.ClusterSelector
	switch {
	case s.Name == clusterv1beta2.GlobalSet:
		set.selector = labels.Everything()
	case s.Name == clusterv1beta2.DefaultSet,
		selector.SelectorType == "", selector.SelectorType == clusterv1beta2.ExclusiveClusterSetLabel:
	case selector.SelectorType == clusterv1beta2.LabelSelector:
		parsed, err := metav1.LabelSelectorAsSelector(selector.LabelSelector)
		if err != nil {
			parsed = labels.Nothing()
		}
		set.selector = parsed
	default:
		set.selector = labels.Nothing()
	}
	return set
}

// Has reports whether a cluster with these labels belongs to the set. A cluster without the label of
// exclusive sets belongs to the set default.
func (s *Set) Has(cluster map[string]string) bool {
	if s.selector != nil {
		return s.selector.Matches(labels.Set(cluster))
	}
	name := cluster[clusterv1.ClusterSetLabelKey]
	return name == s.name || name == "" && s.name == clusterv1beta2.DefaultSet
}

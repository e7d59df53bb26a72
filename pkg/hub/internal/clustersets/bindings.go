package clustersets

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

// Reach is the sets that a namespace may choose clusters from. It is immutable; the zero value
// reaches nothing.
type Reach struct {
	sets       []*Set // by name
	everything bool
}

// Everything is the reach of every namespace of a hub that does not require bindings: all clusters,
// also those without a ManagedCluster.
func Everything() Reach { return Reach{everything: true} }

// ReachOf returns the reach of a namespace that has these sets bound.
func ReachOf(sets ...*clusterv1beta2.ManagedClusterSet) Reach {
	var r Reach
	for _, s := range sets {
		r.sets = append(r.sets, NewSet(s))
	}
	slices.SortFunc(r.sets, func(a, b *Set) int { return strings.Compare(a.name, b.name) })
	return r
}

// Has reports whether a ManagedCluster with these labels is in reach. It costs one comparison per
// set.
func (r Reach) Has(cluster map[string]string) bool {
	return r.everything || slices.ContainsFunc(r.sets, func(s *Set) bool { return s.Has(cluster) })
}

// HasAll reports whether every cluster is in reach since the hub does not require bindings.
func (r Reach) HasAll() bool { return r.everything }

// Empty reports whether there is no set to choose from.
func (r Reach) Empty() bool { return !r.everything && len(r.sets) == 0 }

// Names returns the names of the sets, sorted.
func (r Reach) Names() []string {
	names := make([]string, len(r.sets))
	for i, s := range r.sets {
		names[i] = s.name
	}
	return names
}

// Only returns the part of r in the named sets; r if there are no names.
func (r Reach) Only(names []string) Reach {
	if len(names) == 0 {
		return r
	}
	return Reach{sets: slices.DeleteFunc(slices.Clone(r.sets), func(s *Set) bool { return !slices.Contains(names, s.name) })}
}

// Bindings finds the sets that are bound to a namespace. It is safe for concurrent use.
type Bindings struct {
	sets        *controller.Cache[*clusterv1beta2.ManagedClusterSet]
	bindings    *controller.Cache[*clusterv1beta2.ManagedClusterSetBinding]
	notRequired bool
}

// NewBindings returns the bindings of a hub. Unless they are required, every namespace reaches all
// clusters.
func NewBindings(informers *controller.Informers, required bool) *Bindings {
	return &Bindings{sets: informers.ManagedClusterSets(), bindings: informers.ManagedClusterSetBindings(), notRequired: !required}
}

// Of returns the reach of a namespace: the sets that exist and that a binding of the namespace names.
// The sets default and global always exist: who deletes their object deselects nothing. Its cost is linear in these sets; without required bindings, in all sets.
func (b *Bindings) Of(namespace string) Reach {
	if b.notRequired {
		r := ReachOf(b.sets.All()...)
		r.everything = true
		return r
	}
	var bound []*clusterv1beta2.ManagedClusterSet
	for _, binding := range b.bindings.List(cache.NamespaceIndex, namespace) {
		if binding.Name != binding.Spec.ClusterSet {
			continue // the policy checks the name that spec has
		}
		set, ok := b.sets.Get(types.NamespacedName{Name: binding.Spec.ClusterSet})
		if !ok {
			set = builtInSet(binding.Spec.ClusterSet)
		}
		if set != nil {
			bound = append(bound, set)
		}
	}
	return ReachOf(bound...)
}

// Watch returns the watches of a controller that depends on [Bindings.Of]. changed is called with
// the namespaces whose reach may have changed by a set or a binding; not for labels of clusters.
func (b *Bindings) Watch(changed func(namespace string)) []controller.Watch {
	return []controller.Watch{
		controller.On(b.sets, func(before, after *clusterv1beta2.ManagedClusterSet) {
			if sameSet(before, after) {
				return
			}
			object := after
			if object == nil {
				object = before
			}
			for _, namespace := range b.namespacesOf(object.Name) {
				changed(namespace)
			}
		}),
		controller.On(b.bindings, func(before, after *clusterv1beta2.ManagedClusterSetBinding) {
			switch {
			case before == nil:
				changed(after.Namespace)
			case after == nil || before.Spec != after.Spec:
				changed(before.Namespace)
			}
		}),
	}
}

// sameSet reports whether two states of a set have the same clusters.
func sameSet(before, after *clusterv1beta2.ManagedClusterSet) bool {
	return before != nil && after != nil && before.UID == after.UID && before.Generation == after.Generation
}

// namespacesOf returns the namespaces that a set is bound to; all that have bindings if these are
// not required. It reads all bindings, since changes of sets are rare.
func (b *Bindings) namespacesOf(set string) []string {
	var namespaces []string
	for _, binding := range b.bindings.All() {
		if b.notRequired || binding.Spec.ClusterSet == set {
			namespaces = append(namespaces, binding.Namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

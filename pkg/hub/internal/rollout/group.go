package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// Group is one decision group of a placement.
type Group struct {
	// Index of the group, from 0. It determines the order of the rollout.
	Index int
	// Name of the group; empty if it has none. Several groups may have the same name.
	Name string
	// Clusters of the group, in any order. A cluster in several groups belongs to the one with the
	// lowest index.
	Clusters []string
}

// GroupsOf returns the decision groups of a placement, sorted by index, as the labels of its
// PlacementDecisions describe them. Decisions of the same group are merged. A decision without the
// index label belongs to group 0, so that decisions of controllers without groups work. GroupsOf
// fails if an index label is not a number.
//
// Groups that the spec of the placement names and that have no clusters are appended as empty
// groups, so that a rollout can distinguish them from groups that do not exist. A nil placement
// names none.
func GroupsOf(placement *clusterv1beta1.Placement, decisions []*clusterv1beta1.PlacementDecision) ([]Group, error) {
	byIndex := map[int]*Group{}
	names := map[string]bool{}
	last := -1
	for _, decision := range decisions {
		index := 0
		if label, ok := decision.Labels[clusterv1beta1.DecisionGroupIndexLabel]; ok {
			parsed, err := strconv.ParseUint(label, 10, 31)
			if err != nil {
				return nil, fmt.Errorf("decision groups: PlacementDecision %s/%s: label %s is %q: must be the index of a group",
					decision.Namespace, decision.Name, clusterv1beta1.DecisionGroupIndexLabel, label)
			}
			index = int(parsed)
		}
		group := byIndex[index]
		if group == nil {
			group = &Group{Index: index}
			byIndex[index] = group
		}
		last = max(last, index)
		group.Name = cmp.Or(group.Name, decision.Labels[clusterv1beta1.DecisionGroupNameLabel])
		names[group.Name] = true
		for _, cluster := range decision.Status.Decisions {
			group.Clusters = append(group.Clusters, cluster.ClusterName)
		}
	}
	groups := make([]Group, 0, len(byIndex))
	for _, group := range byIndex {
		groups = append(groups, *group)
	}
	if placement != nil {
		for _, named := range placement.Spec.DecisionStrategy.GroupStrategy.DecisionGroups {
			if !names[named.GroupName] {
				last++
				groups = append(groups, Group{Index: last, Name: named.GroupName})
			}
		}
	}
	sortGroups(groups)
	return groups, nil
}

func sortGroups(groups []Group) {
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(a.Index, b.Index) })
}

// ordered returns the groups by index, with sorted clusters and each cluster once. It does not
// modify its argument.
func ordered(groups []Group) []Group {
	out := slices.Clone(groups)
	sortGroups(out)
	seen := map[string]bool{}
	for i := range out {
		clusters := make([]string, 0, len(out[i].Clusters))
		for _, name := range out[i].Clusters {
			if !seen[name] {
				seen[name] = true
				clusters = append(clusters, name)
			}
		}
		slices.Sort(clusters)
		out[i].Clusters = clusters
	}
	return out
}

package preview

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/workwire/workwire/pkg/wire"
)

const (
	// ownName stands for the name of the cluster, as in the keys of WorkOverrides.
	ownName = "{cluster}"
	// differs stands for values of which each cluster has its own.
	differs = "(differs)"
	// maxAlike is how many groups may differ in nothing but values before they become one.
	maxAlike = 5
)

// Group is clusters that have answered the same.
type Group struct {
	// Clusters are sorted.
	Clusters []string `json:"clusters"`
	State    State    `json:"state"`
	Message  string   `json:"message,omitempty"`
	// Objects are those of which something would become: deletions first, then refusals. The name of a cluster, where it
	// stands by itself, is {cluster} if that makes the answers equal, and values that differ are (differs) where they are
	// all that does, in more groups than one can look through.
	Objects []wire.DryRunObject `json:"objects,omitempty"`
}

// Groups groups equal results: first those with deletions, then changes, refusals, failures, nothing, and clusters that are away;
// of these each the largest first. Results that were not asked for are left out.
func Groups(results []Result) []Group {
	groups := make([]Group, 0, len(results))
	for i := range results {
		r := &results[i]
		if r.State == NotAsked {
			continue
		}
		g := Group{Clusters: []string{r.Cluster}, State: r.State, Message: r.Message}
		if g.State == Away {
			g.Message = "" // since when, which each has for itself
		}
		for j := range r.Objects {
			if o := &r.Objects[j]; o.Result != wire.DryRunUnchanged && o.Result != wire.DryRunReadOnly {
				g.Objects = append(g.Objects, *o)
			}
		}
		slices.SortStableFunc(g.Objects, func(a, b wire.DryRunObject) int { return cmp.Compare(rank(&a), rank(&b)) })
		groups = append(groups, g)
	}
	groups = merge(groups, same, same, 1)
	groups = merge(groups, anonymous, anonymous, 1)
	groups = merge(groups, withoutValues, anonymous, maxAlike)
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(class(&a), class(&b)), cmp.Compare(len(b.Clusters), len(a.Clusters)), cmp.Compare(a.Clusters[0], b.Clusters[0]))
	})
	return groups
}

// merge merges groups that are equal in what key returns, where these are more than most, to what is common to what show returns.
func merge(groups []Group, key, show func(*Group) Group, most int) []Group {
	alike := make(map[string][]Group, len(groups))
	var keys []string
	for i := range groups {
		g := key(&groups[i])
		g.Clusters = nil
		text, _ := json.Marshal(g) // of texts and numbers: it cannot fail
		if alike[string(text)] == nil {
			keys = append(keys, string(text))
		}
		alike[string(text)] = append(alike[string(text)], groups[i])
	}
	merged := make([]Group, 0, len(keys))
	for _, key := range keys {
		if len(alike[key]) <= most {
			merged = append(merged, alike[key]...)
			continue
		}
		one := show(&alike[key][0])
		one.Objects, one.Clusters = cloned(one.Objects), slices.Clone(one.Clusters)
		for _, g := range alike[key][1:] {
			keepCommon(one.Objects, show(&g).Objects)
			one.Clusters = append(one.Clusters, g.Clusters...)
		}
		slices.Sort(one.Clusters)
		one.Clusters = slices.Compact(one.Clusters)
		merged = append(merged, one)
	}
	return merged
}

// keepCommon replaces the values of objects that others, which differ in values only, do not have.
func keepCommon(objects, others []wire.DryRunObject) {
	for i := range objects {
		for j := range objects[i].Fields {
			f, other := &objects[i].Fields[j], others[i].Fields[j]
			if f.From != other.From {
				f.From = differs
			}
			if f.To != other.To {
				f.To = differs
			}
		}
	}
}

// cloned returns objects whose fields can be changed.
func cloned(objects []wire.DryRunObject) []wire.DryRunObject {
	objects = slices.Clone(objects)
	for i := range objects {
		o := &objects[i]
		o.Fields, o.Managers, o.Warnings = slices.Clone(o.Fields), slices.Clone(o.Managers), slices.Clone(o.Warnings)
	}
	return objects
}

func same(g *Group) Group { return *g }

// anonymous returns a group without the name of its cluster, if it has one: what several have said says the same of all, whatever
// these are named.
func anonymous(g *Group) Group {
	if len(g.Clusters) > 1 {
		return *g
	}
	return withoutName(g, g.Clusters[0])
}

// withoutValues returns an anonymous group without the values of fields, but whether there are any.
func withoutValues(g *Group) Group {
	without := anonymous(g)
	without.Objects = cloned(without.Objects)
	for i := range without.Objects {
		for j := range without.Objects[i].Fields {
			f := &without.Objects[i].Fields[j]
			if f.From != "" {
				f.From = differs
			}
			if f.To != "" {
				f.To = differs
			}
		}
	}
	return without
}

// withoutName returns a group with ownName for the name of its cluster, where no letter or digit is beside it.
func withoutName(g *Group, cluster string) Group {
	name := regexp.MustCompile(`(^|[^A-Za-z0-9])` + regexp.QuoteMeta(cluster) + `($|[^A-Za-z0-9])`)
	replace := func(texts ...*string) {
		for _, text := range texts {
			for range 2 { // what is between two names belongs to the first
				*text = name.ReplaceAllString(*text, "${1}"+ownName+"${2}")
			}
		}
	}
	without := *g
	without.Objects = cloned(g.Objects)
	replace(&without.Message)
	for i := range without.Objects {
		o := &without.Objects[i]
		replace(&o.Namespace, &o.Name, &o.Message)
		for j := range o.Fields {
			replace(&o.Fields[j].Path, &o.Fields[j].From, &o.Fields[j].To)
		}
		for j := range o.Managers {
			replace(&o.Managers[j])
		}
		for j := range o.Warnings {
			replace(&o.Warnings[j])
		}
	}
	return without
}

// class orders groups.
func class(g *Group) int {
	n := count(g.Objects)
	switch {
	case g.State == NotAccepted:
		return 6
	case g.State == Away:
		return 5
	case g.State == Failed:
		return 3
	case n.deleted > 0:
		return 0
	case n.refused > 0:
		return 2
	case n.changed > 0:
		return 1
	}
	return 4
}

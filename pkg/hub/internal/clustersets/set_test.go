package clustersets

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
)

func setOf(name string, kind clusterv1beta2.SelectorType, selector *metav1.LabelSelector) *clusterv1beta2.ManagedClusterSet {
	s := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: selector}
	return s
}

func selecting(pairs ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.MatchLabels[pairs[i]] = pairs[i+1]
	}
	return s
}

const (
	exclusive = clusterv1beta2.ExclusiveClusterSetLabel
	byLabels  = clusterv1beta2.LabelSelector
)

// TestMembers: which clusters belong to which set.
func TestMembers(t *testing.T) {
	clusters := map[string]map[string]string{
		"free":    nil,
		"empty":   {clusterv1.ClusterSetLabelKey: ""},
		"default": {clusterv1.ClusterSetLabelKey: "default"},
		"shop":    {clusterv1.ClusterSetLabelKey: "shops", "env": "prod"},
		"office":  {clusterv1.ClusterSetLabelKey: "offices", "env": "prod"},
	}
	for name, c := range map[string]struct {
		set  *clusterv1beta2.ManagedClusterSet
		want []string
	}{
		"exclusive":                             {setOf("shops", exclusive, nil), []string{"shop"}},
		"exclusive, by default":                 {setOf("shops", "", nil), []string{"shop"}},
		"exclusive, with a selector":            {setOf("shops", exclusive, selecting()), []string{"shop"}},
		"exclusive, of no cluster":              {setOf("homes", exclusive, nil), nil},
		"labels":                                {setOf("prod", byLabels, selecting("env", "prod")), []string{"office", "shop"}},
		"all labels":                            {setOf("any", byLabels, selecting()), []string{"default", "empty", "free", "office", "shop"}},
		"no selector":                           {setOf("none", byLabels, nil), nil},
		"an invalid selector":                   {setOf("wrong", byLabels, selecting("a b", "c")), nil},
		"an unknown type":                       {setOf("shops", "Magic", selecting()), nil},
		"default":                               {setOf("default", exclusive, nil), []string{"default", "empty", "free"}},
		"default, with a spec of somebody else": {setOf("default", byLabels, selecting()), []string{"default", "empty", "free"}},
		"global":                                {setOf("global", byLabels, selecting()), []string{"default", "empty", "free", "office", "shop"}},
		"global, with a spec of somebody else":  {setOf("global", exclusive, nil), []string{"default", "empty", "free", "office", "shop"}},
	} {
		var got []string
		set := NewSet(c.set)
		for cluster, labels := range clusters {
			if set.Has(labels) {
				got = append(got, cluster)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestReach: a namespace reaches the union of its sets, and a placement only those that it names.
func TestReach(t *testing.T) {
	shop, office := map[string]string{clusterv1.ClusterSetLabelKey: "shops"}, map[string]string{clusterv1.ClusterSetLabelKey: "offices"}
	var none Reach
	both := ReachOf(setOf("shops", exclusive, nil), setOf("offices", exclusive, nil))
	if !none.Empty() || none.Has(shop) || none.HasAll() || !Everything().Has(nil) || Everything().Empty() {
		t.Error("nothing, or everything")
	}
	if got := both.Names(); !slices.Equal(got, []string{"offices", "shops"}) || !both.Has(shop) || !both.Has(office) || both.Has(nil) {
		t.Errorf("both: %v", got)
	}
	for _, c := range []struct {
		names []string
		want  []string
	}{{nil, []string{"offices", "shops"}}, {[]string{"shops"}, []string{"shops"}}, {[]string{"shops", "homes"}, []string{"shops"}}, {[]string{"homes"}, []string{}}} {
		only := both.Only(c.names)
		if got := only.Names(); !slices.Equal(got, c.want) || only.Empty() != (len(c.want) == 0) || only.Has(office) != slices.Contains(c.want, "offices") {
			t.Errorf("only %v: %v", c.names, got)
		}
	}
	if !Everything().Only([]string{"shops"}).Empty() {
		t.Error("a set that does not exist has clusters")
	}
}

func TestConditions(t *testing.T) {
	if c := emptyCondition(3, 0); c.Status != metav1.ConditionTrue || c.Reason != "NoClusterMatched" || c.ObservedGeneration != 3 {
		t.Errorf("%+v", c)
	}
	if c := emptyCondition(3, 2); c.Status != metav1.ConditionFalse || c.Reason != "ClustersSelected" || c.Message != "2 ManagedClusters selected" {
		t.Errorf("%+v", c)
	}
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Name: "shops"}}
	binding.Spec.ClusterSet = "shops"
	if c := boundCondition(binding, true); c.Status != metav1.ConditionTrue || c.Reason != "ClusterSetBound" {
		t.Errorf("%+v", c)
	}
	if c := boundCondition(binding, false); c.Status != metav1.ConditionFalse || c.Reason != "ClusterSetNotFound" {
		t.Errorf("%+v", c)
	}
	binding.Name = "other"
	if c := boundCondition(binding, true); c.Status != metav1.ConditionFalse {
		t.Errorf("another name: %+v", c)
	}
}

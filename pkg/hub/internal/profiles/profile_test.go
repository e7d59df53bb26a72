package profiles

import (
	"maps"
	"strings"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

var (
	now   = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	early = metav1.NewTime(now.Add(-time.Hour))
)

func claims(pairs ...string) (list []clusterv1.ManagedClusterClaim) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, clusterv1.ManagedClusterClaim{Name: pairs[i], Value: pairs[i+1]})
	}
	return list
}

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "m", LastTransitionTime: early}
}

func TestProfileOf(t *testing.T) {
	unknown := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: "NotKnown", Message: "The hub has not said yet", LastTransitionTime: metav1.NewTime(now)}
	}
	older := condition(ConditionHealthy, metav1.ConditionTrue, clusterv1.ReasonAvailable)
	older.LastTransitionTime = metav1.NewTime(now.Add(-2 * time.Hour))
	seen := func(name, value string, at metav1.Time) property { return property{name, value, at} }
	fresh := metav1.NewTime(now)
	for name, c := range map[string]struct {
		labels  map[string]string
		claims  []clusterv1.ManagedClusterClaim
		version string
		is      []metav1.Condition
		before  status
		want    status
		set, id string
	}{
		"nothing is known": {want: status{Conditions: []metav1.Condition{unknown(ConditionHealthy), unknown(ConditionJoined)}}},
		"present": {
			is: []metav1.Condition{condition(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionTrue, clusterv1.ReasonAvailable),
				condition(clusterv1.ManagedClusterConditionJoined, metav1.ConditionTrue, clusterv1.ReasonJoined)},
			version: "v1.36.3", labels: map[string]string{clusterv1.ClusterSetLabelKey: "shops", "region": "north"}, set: "shops",
			want: status{Version: version{ptr.To("v1.36.3")}, Conditions: []metav1.Condition{
				condition(ConditionHealthy, metav1.ConditionTrue, clusterv1.ReasonAvailable), condition(ConditionJoined, metav1.ConditionTrue, clusterv1.ReasonJoined)}},
		},
		"away, and others say more": {
			is:     []metav1.Condition{condition(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown, clusterv1.ReasonDisconnected)},
			before: status{Conditions: []metav1.Condition{condition("Another", metav1.ConditionTrue, "Theirs"), older}},
			want: status{Conditions: []metav1.Condition{condition("Another", metav1.ConditionTrue, "Theirs"),
				condition(ConditionHealthy, metav1.ConditionUnknown, clusterv1.ReasonDisconnected), unknown(ConditionJoined)}},
		},
		"claims": {
			claims: claims("id.k8s.io", "3f2a", "zone.open-cluster-management.io", "eu-1a,eu-1b", "tier", "gold", "empty", "", "long", strings.Repeat("é", maxValue+1),
				strings.Repeat("n", maxName+1), "x", "", "nameless", "full", strings.Repeat("é", maxValue)),
			id: "3f2a",
			want: status{Conditions: []metav1.Condition{unknown(ConditionHealthy), unknown(ConditionJoined)}, Properties: []property{
				seen("cluster.clusterset.k8s.io", "3f2a", fresh), seen("full", strings.Repeat("é", maxValue), fresh), seen("id.k8s.io", "3f2a", fresh), seen("tier", "gold", fresh),
				seen("topology.kubernetes.io/zone", "eu-1a,eu-1b", fresh), seen("zone.open-cluster-management.io", "eu-1a,eu-1b", fresh),
			}},
		},
		"a claim under the other name, and an id that is no label": {
			claims: claims("cluster.clusterset.k8s.io", "theirs", "id.k8s.io", "no label"),
			want: status{Conditions: []metav1.Condition{unknown(ConditionHealthy), unknown(ConditionJoined)}, Properties: []property{
				seen("cluster.clusterset.k8s.io", "theirs", fresh), seen("id.k8s.io", "no label", fresh),
			}},
		},
		"seen before": {
			claims: claims("same", "1", "changed", "2", "untimed", "3"),
			before: status{Properties: []property{seen("same", "1", early), seen("changed", "1", early), seen("untimed", "3", metav1.Time{}), seen("gone", "1", early)}},
			want: status{Conditions: []metav1.Condition{unknown(ConditionHealthy), unknown(ConditionJoined)}, Properties: []property{
				seen("changed", "2", fresh), seen("same", "1", early), seen("untimed", "3", fresh),
			}},
		},
	} {
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "berlin", Labels: c.labels}}
		cluster.Status.ClusterClaims, cluster.Status.Version.Kubernetes, cluster.Status.Conditions = c.claims, c.version, c.is
		got := profileOf(cluster, "workwire-hub1", c.before, now)
		if !apiequality.Semantic.DeepEqual(got.status, c.want) {
			t.Errorf("%s: the status is\n%+v\nwant\n%+v", name, got.status, c.want)
		}
		if want := (map[string]string{ManagerLabelKey: "workwire-hub1", SetLabelKey: c.set, MemberLabelKey: c.id}); !maps.Equal(got.labels, want) || got.displayName != "berlin" {
			t.Errorf("%s: labels %v, want %v; display name %q", name, got.labels, want, got.displayName)
		}
		if again := profileOf(cluster, "workwire-hub1", got.status, now.Add(time.Minute)); !apiequality.Semantic.DeepEqual(again.status, got.status) {
			t.Errorf("%s: a minute later it is\n%+v\nand was\n%+v", name, again.status, got.status)
		}
	}
}

func TestLabelsPatch(t *testing.T) {
	p := profile{labels: map[string]string{ManagerLabelKey: "m", SetLabelKey: "s", MemberLabelKey: ""}}
	for name, c := range map[string]struct {
		before map[string]string
		want   map[string]any
	}{
		"none":  {nil, map[string]any{ManagerLabelKey: "m", SetLabelKey: "s"}},
		"same":  {map[string]string{ManagerLabelKey: "m", SetLabelKey: "s", "theirs": "x"}, map[string]any{}},
		"other": {map[string]string{ManagerLabelKey: "m", SetLabelKey: "t", MemberLabelKey: "gone"}, map[string]any{SetLabelKey: "s", MemberLabelKey: nil}},
	} {
		if got := p.labelsPatch(c.before); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

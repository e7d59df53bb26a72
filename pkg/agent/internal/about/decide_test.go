package about

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// nodesOf returns what is known of nodes with these JSON texts.
func nodesOf(t *testing.T, texts ...string) (n nodes) {
	t.Helper()
	for _, text := range texts {
		var item node
		if err := json.Unmarshal([]byte(text), &item); err != nil {
			t.Fatal(err)
		}
		n.add(item)
	}
	return n
}

func nodeIn(region, zone, provider, cpu, memory string) string {
	return fmt.Sprintf(`{"metadata":{"labels":{"a":"b","topology.kubernetes.io/region":%q,"topology.kubernetes.io/zone":%q}},"spec":{"providerID":%q},
		"status":{"capacity":{"cpu":%q,"memory":%q,"nvidia.com/gpu":"1"},"allocatable":{"cpu":"500m","memory":"1Gi"}}}`, region, zone, provider, cpu, memory)
}

// obeysApplyAt is a claim that each cluster has.
var obeysApplyAt = wire.Claim{Name: clusterv1.ClaimApplyAt, Value: clusterv1.ClaimApplyAtObeyed}

func TestDescribe(t *testing.T) {
	none := []wire.Claim{}
	tests := map[string]struct {
		facts facts
		want  wire.About
	}{
		"nothing may be read": {facts{}, wire.About{Claims: none}},
		"nodes of one place": {
			facts{version: "v1.36.3", id: "u", nodes: nodesOf(t, nodeIn("eu", "a", "aws:///a/1", "4", "8Gi"), nodeIn("eu", "a", "aws:///a/2", "1500m", "8Gi"))},
			wire.About{
				Kubernetes: "v1.36.3", Capacity: map[string]string{"cpu": "5500m", "memory": "16Gi", "nvidia.com/gpu": "2"},
				Allocatable: map[string]string{"cpu": "1", "memory": "2Gi"},
				Claims:      []wire.Claim{{Name: clusterv1.ClaimID, Value: "u"}, {Name: clusterv1.ClaimKubeVersion, Value: "v1.36.3"}, {Name: clusterv1.ClaimPlatform, Value: "AWS"}, {Name: clusterv1.ClaimRegion, Value: "eu"}, {Name: clusterv1.ClaimZone, Value: "a"}},
			},
		},
		"nodes of several places": {
			facts{nodes: nodesOf(t, nodeIn("eu", "b", "kind://x", "1", "1"), nodeIn("eu", "a", "gce://y", "1", "1"), nodeIn("", "", "", "1", "1"))},
			wire.About{
				Capacity:    map[string]string{"cpu": "3", "memory": "3", "nvidia.com/gpu": "3"},
				Allocatable: map[string]string{"cpu": "1500m", "memory": "3Gi"},
				Claims:      []wire.Claim{{Name: clusterv1.ClaimPlatform, Value: "GCP,Other"}, {Name: clusterv1.ClaimRegion, Value: "eu"}, {Name: clusterv1.ClaimZone, Value: "a,b"}},
			},
		},
		"an exponent is written out": {
			facts{nodes: nodesOf(t, `{"status":{"capacity":{"cpu":"2e3"},"allocatable":{}}}`)},
			wire.About{Capacity: map[string]string{"cpu": "2k"}, Allocatable: map[string]string{}, Claims: none},
		},
		"ClusterClaims; one says what is not known": {
			facts{id: "u", version: "v1", claims: []wire.Claim{{Name: clusterv1.ClaimRegion, Value: "mine"}, {Name: "a", Value: "b"}}},
			wire.About{Kubernetes: "v1", Claims: []wire.Claim{{Name: "a", Value: "b"}, {Name: clusterv1.ClaimID, Value: "u"}, {Name: clusterv1.ClaimKubeVersion, Value: "v1"}, {Name: clusterv1.ClaimRegion, Value: "mine"}}},
		},
	}
	for name, test := range tests {
		test.want.Claims = append(test.want.Claims, obeysApplyAt)
		slices.SortFunc(test.want.Claims, func(a, b wire.Claim) int { return strings.Compare(a.Name, b.Name) })
		got, err := describe(test.facts)
		if diff := cmp.Diff(&test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
}

// TestWhatTheAgentKnows: a ClusterClaim cannot say otherwise.
func TestWhatTheAgentKnows(t *testing.T) {
	about, err := describe(facts{id: "u", claims: []wire.Claim{{Name: clusterv1.ClaimID, Value: "mine"}}})
	if err == nil || !strings.Contains(err.Error(), "claim id.k8s.io: the agent knows its value") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]wire.Claim{obeysApplyAt, {Name: clusterv1.ClaimID, Value: "u"}}, about.Claims); diff != "" {
		t.Error(diff)
	}
}

// TestDescribeKeepsLimits: whatever a cluster has, a source takes what is sent of it.
func TestDescribeKeepsLimits(t *testing.T) {
	many := facts{version: "v1", id: "u", nodes: nodesOf(t, nodeIn("eu", "a", "", "1", "1"))}
	for i := range 100 {
		many.claims = append(many.claims, wire.Claim{Name: fmt.Sprintf("claim-%03d", i), Value: strings.Repeat("x", i)})
		q := many.nodes.capacity["cpu"]
		many.nodes.capacity[fmt.Sprintf("example.com/%03d", i)] = q
	}
	large := many
	large.claims = nil
	for i := range 40 {
		large.claims = append(large.claims, wire.Claim{Name: fmt.Sprint(i), Value: strings.Repeat("x", 1000)})
	}
	invalid := facts{claims: []wire.Claim{{Name: "empty", Value: ""}, {Name: "long", Value: strings.Repeat("x", 1025)}, {Name: "fine", Value: "x"}}}
	for name, test := range map[string]struct {
		facts  facts
		claims int
	}{"many": {many, 64}, "large": {large, 5 + 16}, "invalid": {invalid, 2}} {
		about, err := describe(test.facts)
		if err == nil {
			t.Errorf("%s: nothing is said of what is left out", name)
		}
		if _, err := wire.Encode(&wire.Presence{Agent: "a", Cluster: "c", Session: "s", Present: true, About: about}, testTime); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(about.Claims) != test.claims {
			t.Errorf("%s: %d claims, want %d", name, len(about.Claims), test.claims)
		}
		if about.Kubernetes != "" && (about.Capacity["cpu"] != "1" || len(about.Capacity) != wire.MaxResources) {
			t.Errorf("%s: capacity %v", name, about.Capacity)
		}
	}
}

package clusters

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// TestAboutPatch: what the cluster does not know stays, and only what changes is written.
func TestAboutPatch(t *testing.T) {
	before := clusterv1.ManagedClusterStatus{
		Version: clusterv1.ManagedClusterVersion{Kubernetes: "v1"}, Capacity: clusterv1.ResourceList{"cpu": resource.MustParse("1000m"), "old": resource.MustParse("1")},
		ClusterClaims: []clusterv1.ManagedClusterClaim{{Name: "a", Value: "b"}},
	}
	same := wire.About{Kubernetes: "v1", Capacity: map[string]string{"cpu": "1", "old": "1"}, Claims: []wire.Claim{{Name: "a", Value: "b"}}}
	tests := map[string]struct {
		about *wire.About
		want  string
	}{
		"nothing is said": {nil, `{}`},
		"nothing known":   {&wire.About{}, `{}`},
		"the same":        {&same, `{}`},
		"a version":       {&wire.About{Kubernetes: "v2"}, `{"version":{"kubernetes":"v2"}}`},
		"a resource more": {&wire.About{Capacity: map[string]string{"cpu": "2", "new": "3"}}, `{"capacity":{"cpu":"2","new":"3","old":null}}`},
		"allocatable":     {&wire.About{Allocatable: map[string]string{"cpu": "500m"}}, `{"allocatable":{"cpu":"500m"}}`},
		"another claim":   {&wire.About{Claims: []wire.Claim{{Name: "a", Value: "c"}}}, `{"clusterClaims":[{"name":"a","value":"c"}]}`},
		"no claims":       {&wire.About{Claims: []wire.Claim{}}, `{"clusterClaims":[]}`},
	}
	for name, test := range tests {
		got, err := json.Marshal(aboutPatch(before, test.about))
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
		if shown := showsAbout(&clusterv1.ManagedCluster{Status: before}, test.about); shown != (test.want == "{}") {
			t.Errorf("%s: shown %v", name, shown)
		}
	}
}

// TestAboutIsQueuedWhenItChanges: announcements are repeated, and cost nothing then. Those of a session that has ended
// say nothing.
func TestAboutIsQueuedWhenItChanges(t *testing.T) {
	x := newTestIndex(manual)
	x.connectionChanged(true, start)
	cluster := managed("c", "u", "1")
	x.see("c", cluster)
	announce := func(what, session, version string, queued bool) {
		t.Helper()
		x.view("c")
		before := x.queued["c"]
		p := says(session, true)
		p.About = &wire.About{Kubernetes: version}
		x.messageReceived("c", p, start)
		if got := x.queued["c"] > before; got != queued {
			t.Errorf("%s: queued %v", what, got)
		}
	}
	x.messageReceived("c", says("1", true), start)
	stored := settled(x.entries["c"].presence)
	stored.Name = "c"
	x.latest["c"] = stored
	announce("the first", "1", "v1", true)
	v, _ := x.view("c")
	s := decide("c", v, manual, start)
	if s.about == nil || s.conditions != nil || s.spec {
		t.Errorf("the step is %+v", s)
	}
	x.wroteAbout("c", s.about, start)
	stored.Status.Version.Kubernetes = "v1"
	if v, _ = x.view("c"); v.about != nil {
		t.Error("what is written stays in memory")
	}
	announce("the same", "1", "v1", false)
	announce("another", "1", "v2", true)
	v, _ = x.view("c")
	if s := decide("c", v, manual, start.Add(aboutInterval-time.Second)); s.about != nil || s.requeueAfter != time.Second {
		t.Errorf("soon after a write the step is %+v", s)
	}
	if s := decide("c", v, manual, start.Add(aboutInterval)); s.about == nil {
		t.Errorf("a minute after a write the step is %+v", s)
	}
	stored.Status.Version.Kubernetes = "v2"
	announce("what is shown meanwhile", "1", "v2", false)
	x.messageReceived("c", says("1", false), start)
	announce("late", "1", "v1", false)
}

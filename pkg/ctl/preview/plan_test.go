package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/direct"
	"github.com/workwire/workwire/pkg/ctl/render"
	"github.com/workwire/workwire/pkg/ctl/wrap"
	"github.com/workwire/workwire/pkg/hub/overrides"
	"github.com/workwire/workwire/pkg/runtime/amount"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

var good = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func cluster(accepted bool, available metav1.ConditionStatus, reason string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: accepted}}
	if available != "" {
		c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionAvailable, Status: available, Reason: reason, LastTransitionTime: metav1.NewTime(good)}}
	}
	return c
}

// TestPlan: whose works are asked about, under which names, and which would go.
func TestPlan(t *testing.T) {
	p := &Plan{Set: &workv1alpha1.ManifestWorkReplicaSet{}, known: map[workKey]bool{}, clusters: map[string]*clusterv1.ManagedCluster{
		"a": cluster(true, metav1.ConditionTrue, ""), "b": cluster(true, metav1.ConditionUnknown, "AgentStopped"), "c": cluster(false, metav1.ConditionTrue, ""),
		"d": cluster(true, metav1.ConditionUnknown, clusterv1.ReasonHubDisconnected), "e": cluster(true, "", ""),
		"g": cluster(true, metav1.ConditionUnknown, "AgentStopped"),
	}}
	p.Set.Namespace, p.Set.Name = "ns", "set"
	p.Set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "p"}, {Name: "q"}}
	work := func(cluster, name, placement string, age time.Duration) workv1.ManifestWork {
		return workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, CreationTimestamp: metav1.NewTime(good.Add(-age)),
			Labels: map[string]string{workv1.PlacementNameLabelKey: placement}}}
	}
	answered, deleted := work("a", "own", "p", 2*time.Hour), work("e", "gone", "p", time.Hour)
	answered.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied}}
	deleted.DeletionTimestamp = &metav1.Time{Time: good}
	p.plan(map[string][]string{"p": {"a", "b", "c", "d", "e", "f"}, "q": {"a"}}, []workv1.ManifestWork{
		work("a", "later", "p", time.Hour), answered, deleted, work("z", "left", "p", 0), work("b", "other", "r", 0), work("g", "kept", "p", 0), work("c", "c", "p", 0),
	})
	var texts []string
	for _, r := range p.Results {
		texts = append(texts, strings.TrimSpace(fmt.Sprint(r.Placement, " ", r.Cluster, " ", r.Work, " ", r.State, " ", r.Message)))
	}
	want := []string{
		"p g kept Away away since 2026-01-02T03:04:05Z",
		"p a own", "p b set-940da0e869 Away away since 2026-01-02T03:04:05Z", "p c c NotAccepted the hub does not accept it",
		"p d set-940da0e869", "p e set-940da0e869", "p f set-940da0e869", "q a " + workv1alpha1.WorkName(keyOf(p.Set), "q"),
	}
	if !slices.Equal(texts, want) {
		t.Errorf("\n got %q\nwant %q", texts, want)
	}
	if !slices.Equal(p.Leaving, []Leaving{{"b", "other"}, {"z", "left"}}) {
		t.Errorf("%v", p.Leaving)
	}
	if !p.known[workKey{"a", "own"}] || p.known[workKey{"c", "c"}] {
		t.Errorf("%v", p.known)
	}
}

// TestChoose: named clusters, and samples that are the same each time.
func TestChoose(t *testing.T) {
	plan := func() *Plan {
		p := &Plan{Set: &workv1alpha1.ManifestWorkReplicaSet{}}
		for i := range 40 {
			p.Results = append(p.Results, Result{Cluster: fmt.Sprint("c", i/2), Placement: fmt.Sprint(i % 2)}) // two for each of 20
		}
		p.Results = append(p.Results, Result{Cluster: "away", State: Away})
		return p
	}
	asked := func(p *Plan) (names []string) {
		for _, r := range p.Results {
			if r.State == "" {
				names = append(names, r.Cluster)
			}
		}
		return slices.Compact(names)
	}
	size := func(text string) amount.Amount {
		s, err := ParseSize(text)
		kit.NoError(t, err)
		return s
	}
	for text, want := range map[string]int{"1": 1, "7": 7, "50": 20, "5%": 1, "6%": 2, "1%": 1, "100%": 20} {
		p, again := plan(), plan()
		kit.NoError(t, p.Choose(nil, size(text)))
		kit.NoError(t, again.Choose(nil, size(text)))
		if got := asked(p); len(got) != want || !slices.Equal(got, asked(again)) {
			t.Errorf("%s: %v", text, got)
		}
	}
	p := plan()
	kit.NoError(t, p.Choose(nil, size("3")))
	if got := fmt.Sprint(asked(p)); got != "[c0 c2 c12]" {
		t.Errorf("a sample of 3 was another one before: %s", got)
	}
	// More of the same: a larger sample has the clusters of a smaller one.
	small, large := plan(), plan()
	kit.NoError(t, small.Choose(nil, size("5")))
	kit.NoError(t, large.Choose(nil, size("10")))
	for _, name := range asked(small) {
		if !slices.Contains(asked(large), name) {
			t.Errorf("%s is not in the larger sample", name)
		}
	}
	p = plan()
	kit.NoError(t, p.Choose([]string{"c3", "away"}, amount.Amount{}))
	if got := asked(p); !slices.Equal(got, []string{"c3"}) || p.Results[40].State != Away {
		t.Errorf("%v, %+v", got, p.Results[40])
	}
	if err := plan().Choose([]string{"c99"}, amount.Amount{}); err == nil || !strings.Contains(err.Error(), `no placement of the set selects the cluster "c99"`) {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"", "0", "-1", "0%", "101%", "%", "x", "5 %", "1.5"} {
		if s, err := ParseSize(text); err == nil {
			t.Errorf("%q: %v", text, s)
		}
	}
}

// TestTake: what an answer, or none, means.
func TestTake(t *testing.T) {
	for name, c := range map[string]struct {
		answer direct.Difference
		known  bool
		want   string
	}{
		"an answer":         {direct.Difference{Generation: 3}, true, "Answered"},
		"a new work":        {direct.Difference{}, false, "Answered"},
		"silence":           {direct.Difference{Failure: "slow", TimedOut: true}, true, "Away slow"},
		"nobody listens":    {direct.Difference{Failure: "nobody", Unheard: true}, true, "Away nobody"},
		"a failure":         {direct.Difference{Failure: "busy"}, true, "Failed busy"},
		"of another source": {direct.Difference{}, true, "Failed the agent holds no work web of the source ops: is this the hub's transport configuration?"},
	} {
		r := Result{Work: "web"}
		c.answer.Objects = []wire.DryRunObject{{Name: "a"}}
		r.add(&c.answer, c.known, "ops")
		if (len(r.Objects) == 0) != strings.HasPrefix(c.want, "Failed the agent") || r.Generation != c.answer.Generation {
			t.Errorf("%s: %+v", name, r)
		}
		if got := strings.TrimSpace(string(r.State) + " " + r.Message); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRender: a work is what the hub would make of it, and the reason is told if overrides fail.
func TestRender(t *testing.T) {
	compiler, err := overrides.NewCompiler()
	kit.NoError(t, err)
	o := &workwirev1alpha1.WorkOverride{ObjectMeta: metav1.ObjectMeta{Name: "values"}}
	kit.NoError(t, yaml.Unmarshal([]byte(`[{patches: [{target: {kind: ConfigMap}, json: [
		{op: add, path: /data/of, expression: cluster.labels.of}, {op: add, path: /data/value, configMap: {name: values, key: k}}]}]}]`), &o.Spec.Rules))
	p := &Plan{Set: &workv1alpha1.ManifestWorkReplicaSet{}, rules: compiler.Compile([]*workwirev1alpha1.WorkOverride{o}),
		clusters: map[string]*clusterv1.ManagedCluster{"a": {ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"of": "A"}}}},
		values:   func(overrides.Reference, string) (string, error) { return "v", nil },
	}
	raw := []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"ns"},"data":{}}`)
	p.Set.Spec.ManifestWorkTemplate.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
	topics, err := wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"}.ForSource("hub1")
	kit.NoError(t, err)
	work, err := p.work(&Result{Cluster: "a", Work: "w"}, "hub1", topics)
	kit.NoError(t, err)
	if got := string(work.Spec.Workload.Manifests[0].Raw); !strings.Contains(got, `"data":{"of":"A","value":"v"}`) || work.Namespace != "a" || work.Name != "w" {
		t.Errorf("%s of %s/%s", got, work.Namespace, work.Name)
	}
	_, err = p.work(&Result{Cluster: "b", Work: "w"}, "hub1", topics)
	if want := "WorkOverride values, rule 1: patch 1 of ConfigMap x, operation 1 (add /data/of)"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	p.rules = compiler.Compile(nil)
	if _, err = p.work(&Result{Cluster: "b", Work: "w"}, "hub1", topics); err != nil {
		t.Error(err)
	}
	if got := string(p.Set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw); got != string(raw) {
		t.Errorf("the template is changed: %s", got)
	}
}

// The set of files is in its own namespace, unless somebody has named another.
func TestNamespaceOfFiles(t *testing.T) {
	for _, c := range []struct{ metadata, given, want string }{
		{"{name: till, namespace: shops}", "", "shops"},
		{"{name: till, namespace: shops}", "shops", "shops"},
		{"{name: till, namespace: shops}", "other", "the set till is in namespace shops, and -n is other"},
		{"{name: till}", "", "default"},
		{"{name: till}", "other", "other"},
	} {
		files, err := wrap.Read([]string{"-"}, strings.NewReader("{apiVersion: work.open-cluster-management.io/v1alpha1, kind: ManifestWorkReplicaSet, metadata: "+c.metadata+
			", spec: {placementRefs: [{name: p}], manifestWorkTemplate: {workload: {manifests: []}}}}"), false)
		kit.NoError(t, err)
		of := Subject{Namespace: cmp.Or(c.given, "default"), Anywhere: c.given == ""}
		of.Files, err = render.ParseSets(files)
		kit.NoError(t, err)
		set, err := setOf(of)
		if err != nil && err.Error() != c.want || err == nil && set.Namespace != c.want {
			t.Errorf("%s with -n %q: %v, want %s", c.metadata, c.given, err, c.want)
		}
	}
}

package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate"
)

// exampleWork returns a work of a cluster in one of several states, by number.
func exampleWork(cluster, name string, number int) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster, Name: name, Generation: 2, CreationTimestamp: metav1.NewTime(epoch.Add(-48 * time.Hour)),
		Labels: map[string]string{"team": []string{"shop", "pay", "search"}[number%3]},
	}}
	applied, available := condition(workv1.WorkApplied, yes, 2, "AppliedManifestWorkComplete", "Apply manifest work complete"), condition(workv1.WorkAvailable, yes, 2, "ResourcesAvailable", "All resources are available")
	progressing := condition(workv1.WorkProgressing, no, 2, workv1.ReasonConditionRulesAggregated, "Available: 3/3")
	meta := workv1.ManifestResourceMeta{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "shop", Name: "web"}
	replicas := int64(3)
	manifest := workv1.ManifestCondition{
		ResourceMeta:    meta,
		StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{{Name: "ReadyReplicas", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &replicas}}}},
		Conditions: []metav1.Condition{condition(workv1.ManifestApplied, yes, 0, "AppliedManifestComplete", "Apply manifest complete"), condition(workv1.ManifestAvailable, yes, 0, "ResourceAvailable", "Resource is available"),
			condition(workv1.ManifestProgressing, no, 0, workv1.ReasonConditionRuleEvaluated, "Available: 3/3")},
	}
	namespace := workv1.ManifestCondition{
		ResourceMeta: workv1.ManifestResourceMeta{Ordinal: 1, Version: "v1", Kind: "Namespace", Resource: "namespaces", Name: "shop"},
		Conditions:   manifest.Conditions,
	}
	switch number % 40 {
	case 7:
		refused := condition(workv1.ManifestApplied, no, 0, "AppliedManifestFailed", `Failed to apply manifest: deployments.apps "web" is forbidden: exceeded quota: compute, requested: cpu=2, used: cpu=9, limited: cpu=10`)
		manifest.Conditions = []metav1.Condition{refused}
		applied = condition(workv1.WorkApplied, no, 2, "AppliedManifestWorkFailed", "1 of 2 manifests failed")
	case 13:
		applied.ObservedGeneration, available.ObservedGeneration, progressing.ObservedGeneration = 1, 1, 1
		work.Status.Conditions = append(work.Status.Conditions,
			condition(workv1.WorkDelivered, no, 2, workv1.ReasonClusterAway, "The agent of the cluster is not connected; the spec is sent when it is back."))
	case 21:
		progressing.Status, progressing.Message = yes, "1 of 2 objects are not ready"
	case 33:
		work.Status.Conditions = append(work.Status.Conditions, condition(workv1.WorkDegraded, yes, 2, "Degraded", "Deployment shop/web: 0 of 3 pods are scheduled: insufficient cpu"))
	}
	work.Status.Conditions = append(work.Status.Conditions, applied, available)
	if number%40 != 39 { // nobody watches its readiness
		work.Status.Conditions = append(work.Status.Conditions, progressing)
	}
	work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{manifest, namespace}
	work.Spec.Workload.Manifests = make([]workv1.Manifest, 2)
	at := func(seconds float64) *metav1.MicroTime {
		return &metav1.MicroTime{Time: epoch.Add(time.Duration(seconds * float64(time.Second)))}
	}
	work.Status.Delivery = &workv1.DeliveryStatus{
		Generation: 2, AcceptedTime: at(0), PublishedTime: at(0.012), AcknowledgedTime: at(0.019), ReceivedTime: at(0.031), AppliedTime: at(0.2), ReadyTime: at(4.5),
	}
	return work
}

// exampleFleet returns clusters, and perCluster works of each.
func exampleFleet(count, perCluster int) ([]*workv1.ManifestWork, []*clusterv1.ManagedCluster) {
	var works []*workv1.ManifestWork
	var clusters []*clusterv1.ManagedCluster
	for i := range count {
		name := fmt.Sprintf("cluster-%04d", i+1)
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"env": []string{"prod", "test"}[i%2], "region": []string{"eu", "us", "ap"}[i%3]},
			Annotations: map[string]string{clusterv1.LastSeenAnnotationKey: epoch.Add(time.Duration(i) * time.Second).Format(time.RFC3339)},
		}}
		cluster.Spec.HubAcceptsClient = i%97 != 5
		cluster.Status.Version.Kubernetes = "v1.36.3"
		cluster.Status.Conditions = []metav1.Condition{condition(clusterv1.ManagedClusterConditionAvailable, yes, 0, "ManagedClusterAvailable", "Managed cluster is available")}
		if i%40 == 3 {
			cluster.Status.Conditions[0] = condition(clusterv1.ManagedClusterConditionAvailable, unknown, 0, "ManagedClusterDisconnected",
				"The agent of the cluster has stopped, or has lost its connection to the broker")
		}
		clusters = append(clusters, cluster)
		for n := range perCluster {
			works = append(works, exampleWork(name, fmt.Sprintf("%s-%d", []string{"shop", "pay", "search"}[n%3], n), i*perCluster+n))
		}
	}
	return works, clusters
}

func everything(string) bool { return true }

func TestFleetView(t *testing.T) {
	works, clusters := exampleFleet(80, 4)
	works = append(works, exampleWork("lost", "of-nobody", 0))
	s := takeSnapshot(works, clusters, true)
	v := newFleetView(s, everything, filter{Page: 1})
	if got, want := v.Works.Text(), "321 works: 16 failed, 8 pending, 8 progressing, 8 applied, 281 ready"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := v.Clusters.Text(), "81 clusters: 2 away, 1 unregistered, 1 not accepted, 77 available"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var causes []string
	for _, p := range v.Problems {
		causes = append(causes, fmt.Sprintf("%s %s %d %d", p.State, p.Cause, p.Count, len(p.Messages)))
	}
	if got, want := strings.Join(causes, ", "), "failed Quota 8 1, failed Failed 8 1, pending AgentOff 8 1"; got != want || v.MoreProblems != 0 || v.Oldest == nil || v.Oldest.State != workstate.PhasePending {
		t.Errorf("problems: %s, want %s; %d more, oldest %+v", got, want, v.MoreProblems, v.Oldest)
	}
	if v.List.Total != 81 || v.List.Rows[0].State != stateAway || v.List.Rows[2].Name != "lost" || v.List.Rows[2].Works.Total() != 1 {
		t.Errorf("list: %+v", v.List)
	}
	end := v.Works.Parts[len(v.Works.Parts)-1]
	if width := end.X + end.W; width < 99.9 || width > 100.1 {
		t.Errorf("the bar ends at %f", width)
	}
	one := newFleetView(s, func(name string) bool { return name == "cluster-0004" }, filter{Page: 1})
	if one.Clusters.Total != 1 || one.Works.Total != 4 || one.List.Total != 1 {
		t.Errorf("of one cluster: %+v", one)
	}
	for _, problem := range one.Problems {
		if problem.Count != 1 || problem.Messages[0].Namespace != "cluster-0004" {
			t.Errorf("another cluster's: %+v", problem)
		}
	}
	if none := newFleetView(takeSnapshot(nil, nil, true), everything, filter{Page: 1}); none.Works.Text() != "0 works: none" {
		t.Errorf("nothing: %s", none.Works.Text())
	}
}

// TestProblems: works are grouped by cause, and what they say is counted; what is left out is counted too.
func TestProblems(t *testing.T) {
	s := &snapshot{}
	add := func(count int, st state, cause, why string) {
		for range count {
			s.works = append(s.works, workRow{Namespace: "c", Name: fmt.Sprint(len(s.works)), State: st, Cause: cause, Why: why})
		}
	}
	add(1, workstate.PhaseFailed, "Quota", "a")
	add(4, workstate.PhaseFailed, "Quota", "b")
	add(2, workstate.PhaseFailed, "Quota", "c")
	add(1, workstate.PhaseFailed, "Quota", "d")
	for n := range firstProblems {
		add(9, workstate.PhasePending, fmt.Sprint("Cause", n), "waits")
	}
	add(1, workstate.PhasePending, "Rare", "waits")
	add(1, workstate.PhaseReady, "", "")
	all, _ := problems(s, everything)
	quota := all[0]
	if len(all) != firstProblems || quota.Cause != "Quota" || quota.Count != 8 || quota.More != 1 || len(quota.Messages) != firstMessages ||
		quota.Messages[0].Why != "b" || quota.Messages[0].Count != 4 || quota.Messages[1].Count != 2 || quota.URL != "/works?cause=Quota&state=failed" {
		t.Errorf("%d: %+v", len(all), quota)
	}
}

// TestSetsOf: a cluster's page names the replica sets that reach it.
func TestSetsOf(t *testing.T) {
	s := &snapshot{}
	for n := range pageSize + 2 {
		s.works = append(s.works, workRow{Namespace: "c", Name: fmt.Sprint("w", n), State: workstate.PhaseReady, ReplicaSet: fmt.Sprint("apps.s", n)})
	}
	s.works = append(s.works, workRow{Namespace: "c", Name: "own"}, workRow{Namespace: "other", Name: "w", ReplicaSet: "apps.elsewhere"})
	sets, more := setsOf(s, "c")
	if len(sets) != pageSize || more != 2 || sets[0] != (reachingSet{NamespacedName: types.NamespacedName{Namespace: "apps", Name: "s0"}, Work: "w0", State: workstate.PhaseReady}) {
		t.Errorf("%d and %d more: %+v", len(sets), more, sets[:1])
	}
}

// TestConditionViews: what is not as it should be stands out, and not what is False.
func TestConditionViews(t *testing.T) {
	want := map[string]bool{"Applied True": false, "Applied False": true, "Ready Unknown": true, "Degraded False": false, "Degraded True": true, "Progressing Unknown": true, "Stopped False": false,
		"RolledBack True": true, "RolledBack False": false, "Stalled True": true}
	for text, bad := range want {
		kind, status, _ := strings.Cut(text, " ")
		if got := newConditionViews([]metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status)}}, 0)[0].Bad; got != bad {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestWorksView(t *testing.T) {
	works, clusters := exampleFleet(80, 4)
	s := takeSnapshot(works, clusters, true)
	if v := newWorksView(s, everything, filter{Page: 1, State: workstate.PhasePending}, "/works", ""); v.List.Total != 8 || v.Works.Total != 320 {
		t.Errorf("pending: %+v", v)
	}
	if v := newWorksView(s, everything, filter{Page: 1}, "/clusters/cluster-0002", "cluster-0002"); v.List.Total != 4 || v.Works.Total != 4 {
		t.Errorf("of a cluster: %+v", v)
	}
	if v := newWorksView(s, func(string) bool { return false }, filter{Page: 1}, "/works", ""); v.List.Total != 0 || v.Works.Total != 0 {
		t.Errorf("of nobody: %+v", v)
	}
}

func TestWorkView(t *testing.T) {
	work := exampleWork("c1", "shop", 7)
	work.Labels[workv1.ReplicaSetLabelKey] = "apps.shop"
	v := newWorkView(workstate.Facts{Now: epoch, Work: work})
	if v.Set == nil || *v.Set != (types.NamespacedName{Namespace: "apps", Name: "shop"}) || v.Declared != 2 || v.Manifests[0].State != workstate.PhaseFailed || v.Manifests[1].State != workstate.PhaseReady {
		t.Errorf("%+v", v)
	}
	if v.Manifests[0].Object != "Deployment shop/web" || v.Manifests[0].APIVersion != "apps/v1" || v.Manifests[0].Values[0] != (valueView{"ReadyReplicas", "3"}) {
		t.Errorf("manifest: %+v", v.Manifests[0])
	}
	if e := v.Explained; len(e.Hops) != 6 || e.Blocker == nil || e.Blocker.Do == "" {
		t.Errorf("explained: %+v", v.Explained)
	}
	text, flag := "a", true
	for want, value := range map[string]workv1.FieldValue{"a": {String: &text}, "true": {Boolean: &flag}, "": {}} {
		if got := workstate.ValueText(value); got != want {
			t.Errorf("%+v: %q", value, got)
		}
	}
}

// TestSnapshotAge: a snapshot is taken when something has changed, and not twice within a second.
func TestSnapshotAge(t *testing.T) {
	now, taken := epoch, 0
	f := &fleet{now: func() time.Time { return now }, works: func() []*workv1.ManifestWork { taken++; return nil }}
	for _, step := range []struct {
		what   string
		change bool
		after  time.Duration
		want   int
	}{
		{"the first", false, 0, 1}, {"nothing has changed", false, time.Hour, 1}, {"a change", true, 0, 2},
		{"another at once", true, time.Second / 2, 2}, {"a second later", false, time.Second / 2, 3}, {"and no more", false, time.Hour, 3},
	} {
		now = now.Add(step.after)
		if step.change {
			f.changed()
		}
		if f.snapshot(); taken != step.want {
			t.Errorf("%s: %d taken, want %d", step.what, taken, step.want)
		}
	}
}

func TestFeed(t *testing.T) {
	var f feed
	for n := range feedLength + 50 {
		f.add(change{Namespace: []string{"a", "b"}[n%2], Name: fmt.Sprint(n)})
	}
	all, last := f.since(0, everything)
	if len(all) != feedLength || last != feedLength+50 || all[0].Name != fmt.Sprint(feedLength+49) || all[feedLength-1].Name != "50" {
		t.Errorf("%d changes, last %d: %+v", len(all), last, all[:1])
	}
	some, _ := f.since(last-4, func(namespace string) bool { return namespace == "b" })
	if len(some) != 2 || slices.ContainsFunc(some, func(c change) bool { return c.Namespace != "b" }) {
		t.Errorf("%+v", some)
	}
	if before, _ := f.since(1_000_000, everything); len(before) != feedLength {
		t.Errorf("after a restart: %d", len(before))
	}
}

func TestAgo(t *testing.T) {
	for want, d := range map[string]time.Duration{"now": 0, "5s": 5 * time.Second, "3m": 200 * time.Second, "47h": 47 * time.Hour, "3d": 80 * time.Hour} {
		if got := ago(epoch, epoch.Add(-d)); got != want {
			t.Errorf("%s: %s", d, got)
		}
	}
	if short(5, "abcdef") != "abcd…" || short(6, "abcdef") != "abcdef" || ago(epoch, time.Time{}) != "" {
		t.Error("short")
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		options Options
		valid   bool
	}{
		{Options{}, true}, {Options{Address: "0", CertFile: "x"}, true}, {Options{Address: "127.0.0.1:8090"}, true}, {Options{Address: "[::1]:0"}, true},
		{Options{Address: ":8090"}, false}, {Options{Address: "0.0.0.0:8090", CertFile: "c"}, false}, {Options{Address: "0.0.0.0:8090", CertFile: "c", KeyFile: "k"}, true},
		{Options{Address: "127.0.0.1:8090", KeyFile: "k"}, false}, {Options{Address: "8090"}, false}, {Options{Address: "127.0.0.1:http"}, false},
		{Options{Address: "example.com:80"}, false},
	} {
		if errs := c.options.Validate(); (len(errs) == 0) != c.valid {
			t.Errorf("%+v: %v", c.options, errs)
		}
	}
}

// BenchmarkSnapshot is what summing up 10,000 works costs, at most once a second while somebody looks.
func BenchmarkSnapshot(b *testing.B) {
	works, clusters := exampleFleet(1000, 10)
	for b.Loop() {
		takeSnapshot(works, clusters, true)
	}
}

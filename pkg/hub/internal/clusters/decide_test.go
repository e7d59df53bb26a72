package clusters

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/leadership"
)

var (
	registering = policy{autoRegister: true, limits: testLimits}
	accepting   = policy{autoRegister: true, autoAccept: true, limits: testLimits}
	manual      = policy{limits: testLimits}
)

// settled is a ManagedCluster that says all that is known of p.
func settled(p presence, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u", ResourceVersion: "7", Annotations: annotationsFor(p)}}
	cluster.Spec.HubAcceptsClient = true
	cluster.Status.Conditions = conditionsFor(view{presence: p, stored: cluster}, manual, start)
	status, _, _ := availability(p.state, testLimits)
	cluster.Spec.Taints = taintsFor(nil, status, true, start)
	for _, f := range change {
		f(cluster)
	}
	return cluster
}

// summary is what of a step tests compare.
type summary struct {
	Register                string // "accepted" or "not accepted"
	Namespace, Status, Spec bool
	Available, Accepted     string // status and reason that are to be stored
	Joined                  bool
	Events                  []string
	Taints                  []string
}

func summarize(s step) summary {
	got := summary{Namespace: s.namespace, Status: s.conditions != nil, Spec: s.spec}
	if s.register != nil {
		got.Register = "not accepted"
		if s.register.Spec.HubAcceptsClient {
			got.Register = "accepted"
		}
	}
	for _, c := range s.conditions {
		switch c.Type {
		case clusterv1.ManagedClusterConditionAvailable:
			got.Available = string(c.Status) + " " + c.Reason
		case clusterv1.ManagedClusterConditionHubAccepted:
			got.Accepted = string(c.Status) + " " + c.Reason
		case clusterv1.ManagedClusterConditionJoined:
			got.Joined = true
		}
	}
	for _, e := range s.events {
		got.Events = append(got.Events, e.kind+" "+e.reason)
	}
	if s.spec {
		for _, taint := range s.taints {
			got.Taints = append(got.Taints, taint.Key)
		}
	}
	return got
}

// However many clusters send messages, their times cost the API server five writes a second.
func TestLastSeenAge(t *testing.T) {
	for clusters, want := range map[int]time.Duration{0: 5 * time.Minute, 1500: 5 * time.Minute, 10_000: 2000 * time.Second} {
		if got := lastSeenAge(clusters); got != want {
			t.Errorf("%d clusters: %s, want %s", clusters, got, want)
		}
	}
	cluster := managed("c", "1", "5")
	p, _ := play(t, presence{state: unseen}, "announce a")
	cluster.Annotations = annotationsFor(p)
	p.heard = p.heard.Add(10 * time.Minute)
	if !outdated(cluster, p, 100) || outdated(cluster, p, 10_000) {
		t.Error("after ten minutes, a cluster of 100 is outdated, and one of 10,000 is not")
	}
}

func TestDecide(t *testing.T) {
	known := func(text string) presence { p, _ := play(t, presence{state: unseen}, text); return p }
	never, there, heard := presence{state: unseen}, known("announce a"), known("message")
	gone := known("announce a; left a")
	later := there
	later.heard = start.Add(lastSeenInterval)
	soon := there
	soon.heard = start.Add(lastSeenInterval - time.Second)
	patient := manual
	patient.limits.grace = 5 * time.Minute
	bare := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	const unreachable, yes = clusterv1.ManagedClusterTaintUnreachable, "True " + clusterv1.ReasonAvailable
	deleting := func(c *clusterv1.ManagedCluster) { now := metav1.NewTime(start); c.DeletionTimestamp = &now }
	for _, c := range []struct {
		name   string
		policy policy
		view   view
		want   summary
	}{
		{"first heard from", registering, view{presence: there, spoken: true}, summary{Register: "not accepted"}},
		{"first heard from, accepting", accepting, view{presence: there, spoken: true}, summary{Register: "accepted"}},
		{"first heard from, not registering", manual, view{presence: there, spoken: true}, summary{}},
		{"only its end was heard", registering, view{presence: known("left a")}, summary{}},
		{"came and went before it was registered", registering, view{presence: gone, spoken: true}, summary{Register: "not accepted"}},
		{"deleted", accepting, view{presence: there, removed: true}, summary{}},
		{"deleted and heard again", accepting, view{presence: there, removed: true, spoken: true}, summary{Register: "not accepted"}},

		{"just registered", registering, view{presence: there, stored: &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: annotationsFor(there)}}},
			summary{Namespace: true, Status: true, Available: yes, Accepted: "False " + clusterv1.ReasonNotAccepted, Joined: true,
				Events: []string{"Normal Available"}}},
		{"made by hand, not heard from", registering, view{presence: never, stored: bare},
			summary{Status: true, Available: "Unknown " + clusterv1.ReasonNotSeen, Accepted: "False " + clusterv1.ReasonNotAccepted, Spec: true, Taints: []string{unreachable}}},
		{"made by hand, there", manual, view{presence: there, stored: bare},
			summary{Status: true, Available: yes, Accepted: "False " + clusterv1.ReasonNotAccepted, Joined: true, Spec: true,
				Events: []string{"Normal Available"}}},
		{"made by hand, then heard from", registering, view{presence: there, stored: settled(never)},
			summary{Namespace: true, Status: true, Available: yes, Accepted: "True " + clusterv1.ReasonAccepted, Joined: true, Spec: true,
				Events: []string{"Normal Available"}}},

		{"settled", registering, view{presence: there, stored: settled(there)}, summary{}},
		{"heard again", registering, view{presence: soon, stored: settled(there)}, summary{}},
		{"heard again later", registering, view{presence: later, stored: settled(there)}, summary{Spec: true}},
		{"it announces itself", manual, view{presence: there, stored: settled(heard)}, summary{Spec: true}},
		{"it does so no more", manual, view{presence: heard, stored: settled(there)}, summary{Spec: true}},
		{"accepted", registering, view{presence: there, stored: settled(there, func(c *clusterv1.ManagedCluster) {
			c.Status.Conditions[0].Status, c.Status.Conditions[0].Reason = metav1.ConditionFalse, clusterv1.ReasonNotAccepted
		})}, summary{Namespace: true, Status: true, Available: yes, Accepted: "True " + clusterv1.ReasonAccepted, Joined: true, Events: []string{"Normal Accepted"}}},
		{"no longer accepted", registering, view{presence: there, stored: settled(there, func(c *clusterv1.ManagedCluster) {
			c.Spec.HubAcceptsClient = false
		})}, summary{Status: true, Available: yes, Accepted: "False " + clusterv1.ReasonNotAccepted, Joined: true, Events: []string{"Normal NotAccepted"}}},
		{"gone", manual, view{presence: gone, stored: settled(there)},
			summary{Status: true, Available: "Unknown " + clusterv1.ReasonDisconnected, Accepted: "True " + clusterv1.ReasonAccepted, Joined: true,
				Events: []string{"Warning Unavailable"}, Spec: true, Taints: []string{unreachable}}},
		{"back", manual, view{presence: there, stored: settled(gone)},
			summary{Status: true, Available: yes, Accepted: "True " + clusterv1.ReasonAccepted, Joined: true, Events: []string{"Normal Available"}, Spec: true}},
		{"gone, without a taint yet", patient, view{presence: gone, stored: settled(there)},
			summary{Status: true, Available: "Unknown " + clusterv1.ReasonDisconnected, Accepted: "True " + clusterv1.ReasonAccepted, Joined: true,
				Events: []string{"Warning Unavailable"}}},
		{"back, without a taint", patient, view{presence: soon, stored: settled(gone, func(c *clusterv1.ManagedCluster) { c.Spec.Taints = nil })},
			summary{Status: true, Available: yes, Accepted: "True " + clusterv1.ReasonAccepted, Joined: true, Events: []string{"Normal Available"}}},
		{"gone and back unseen", manual, view{presence: known("announce a; left a; announce b"), stored: settled(there)}, summary{}},
		{"the condition was written, the taint was not", manual, view{presence: gone, stored: settled(gone, func(c *clusterv1.ManagedCluster) {
			c.Spec.Taints = nil
		})}, summary{Spec: true, Taints: []string{unreachable}}},
		{"being deleted", registering, view{presence: there, stored: settled(never, deleting)},
			summary{Status: true, Available: yes, Accepted: "True " + clusterv1.ReasonAccepted, Joined: true, Spec: true, Events: []string{"Normal Available"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, summarize(decide("c", c.view, c.policy, start))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecideDue: a cluster that is away gets its taint when its grace is over, and the next thing that is due comes first.
func TestDecideDue(t *testing.T) {
	gone, _ := play(t, presence{state: unseen}, "announce a; left a")
	there, _ := play(t, presence{state: unseen}, "announce a")
	back, _ := play(t, presence{state: unseen}, "announce a; absent; connect")
	graced := policy{limits: newLimits(time.Minute, 5*time.Minute, 5*time.Minute)}
	settles := func(in time.Duration) heldView { return heldView{any: true, settled: start.Add(in)} }
	for name, c := range map[string]struct {
		presence presence
		failover failover
		held     heldView
		now      time.Duration // after start
		tainted  bool
		due      time.Duration
	}{
		"within its grace":             {presence: gone, now: time.Minute, due: 4 * time.Minute},
		"its grace is over":            {presence: gone, now: 5 * time.Minute, tainted: true},
		"long ago":                     {presence: gone, now: time.Hour, tainted: true},
		"not before the hub was there": {presence: gone, failover: failover{from: start.Add(10 * time.Minute)}, now: 5 * time.Minute, due: 5 * time.Minute},
		"nobody vouched for it":        {presence: back, now: time.Hour},
		"the brake is on":              {presence: gone, failover: failover{held: true}, now: time.Hour},
		"never seen":                   {presence: presence{state: unseen}, tainted: true},
		"there":                        {presence: there},
		"there, held works to settle":  {presence: there, held: settles(time.Second), due: time.Second},
		"held works first":             {presence: gone, held: settles(time.Second), due: time.Second},
		"the grace first":              {presence: gone, held: settles(time.Hour), due: 5 * time.Minute},
	} {
		stored := settled(c.presence)
		stored.Spec.Taints = nil
		s := decide("c", view{presence: c.presence, stored: stored, failover: c.failover, held: c.held}, graced, start.Add(c.now))
		if (len(s.taints) > 0) != c.tainted || s.requeueAfter != c.due {
			t.Errorf("%s: taints %v and due in %s, want %t and %s", name, s.taints, s.requeueAfter, c.tainted, c.due)
		}
	}
}

// TestAsksToJoin: a cluster that its token lets in costs no status that is wrong a moment later; one that waits for a person says so.
func TestAsksToJoin(t *testing.T) {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "c", CreationTimestamp: metav1.NewTime(start), Annotations: map[string]string{v1alpha1.DeviceAnnotationKey: "d"},
	}}
	accepted := cluster.DeepCopy()
	accepted.Spec.HubAcceptsClient = true
	certified := accepted.DeepCopy()
	certified.Annotations[v1alpha1.CertificateExpiresAnnotationKey] = start.Add(time.Hour).Format(time.RFC3339)
	for what, c := range map[string]struct {
		cluster *clusterv1.ManagedCluster
		after   time.Duration
		written bool
		requeue time.Duration
		asks    bool
	}{
		"asks":                         {cluster, time.Second, false, time.Second, false},
		"is not let in":                {cluster, admissionDelay, true, 0, true},
		"is let in":                    {accepted, time.Second, false, time.Second, false},
		"waits for its certificate":    {accepted, admissionDelay, true, 0, true},
		"has its certificate":          {certified, 0, true, 0, false},
		"the API server's clock is on": {cluster, -time.Hour, true, 0, true},
	} {
		s := decide("c", view{stored: c.cluster}, manual, start.Add(c.after))
		if (s.conditions != nil) != c.written || s.requeueAfter != c.requeue {
			t.Errorf("%s: conditions %v, again after %s", what, s.conditions, s.requeueAfter)
		}
		available := meta.FindStatusCondition(s.conditions, clusterv1.ManagedClusterConditionAvailable)
		if asks := available != nil && strings.Contains(available.Message, "asks to join"); asks != c.asks {
			t.Errorf("%s: %v", what, available)
		}
	}
}

// TestDecideAlarms: what is wrong with a cluster is a condition since now, and an event.
func TestDecideAlarms(t *testing.T) {
	there, _ := play(t, presence{state: unseen}, "announce a")
	now := start.Add(1500 * time.Millisecond)
	v := view{presence: there, stored: settled(there), held: heldView{any: true, listed: true, works: heldNamed("a"), released: heldNamed("b")}}
	v.findings[diverged].since, v.findings[untrusted].since = start, start
	s := decide("c", v, manual, now)
	want := []string{"Warning " + clusterv1.EventWorksHeld, "Warning " + alarms[diverged].began, "Warning " + alarms[untrusted].began}
	if diff := cmp.Diff(want, summarize(s).Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, kind := range []string{clusterv1.ManagedClusterConditionWorksHeld, clusterv1.ManagedClusterConditionWorksInSync, clusterv1.ManagedClusterConditionStatusesTrusted} {
		if c := meta.FindStatusCondition(s.conditions, kind); c == nil || !c.LastTransitionTime.Equal(&metav1.Time{Time: start.Add(time.Second)}) {
			t.Errorf("%s is %+v", kind, c)
		}
	}
	patch, err := json.Marshal(specPatch(v.stored, s))
	if err != nil || !strings.Contains(string(patch), "b/uid-b") {
		t.Errorf("%v, the works that are being deleted are not in %s", err, patch)
	}
}

// What was decided and stored leaves nothing to do.
func TestDecideSettles(t *testing.T) {
	for _, text := range []string{"", "announce a", "message", "announce a; left a", "message; 300", "announce a; connect; 90"} {
		p, _ := play(t, presence{state: unseen}, text)
		stored := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		for range 2 {
			s := decide("c", view{presence: p, stored: stored}, registering, start)
			stored = stored.DeepCopy()
			stored.Status.Conditions, stored.Spec.Taints, stored.Annotations = s.conditions, s.taints, s.annotations
			if got := summarize(decide("c", view{presence: p, stored: stored}, registering, start.Add(time.Hour))); !cmp.Equal(got, summary{}) {
				t.Errorf("%s: still to do: %+v", text, got)
			}
			stored.Status.Conditions = nil
		}
	}
}

func TestAccepts(t *testing.T) {
	yes, no := settled(presence{state: present}), settled(presence{state: present})
	no.Spec.HubAcceptsClient = false
	going := yes.DeepCopy()
	at := metav1.NewTime(start)
	going.DeletionTimestamp = &at
	for _, c := range []struct {
		name    string
		policy  policy
		cluster *clusterv1.ManagedCluster
		want    bool
	}{
		{"accepted", registering, yes, true}, {"not accepted", registering, no, false}, {"being deleted", registering, going, false},
		{"unknown", registering, nil, false}, {"unknown, auto-accept", accepting, nil, false},
		{"accepted, manual", manual, yes, true}, {"not accepted, manual", manual, no, false}, {"being deleted, manual", manual, going, false},
		{"unknown, manual", manual, nil, true},
	} {
		if got := c.policy.accepts(c.cluster); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestTaints(t *testing.T) {
	const unreachable, unavailable = clusterv1.ManagedClusterTaintUnreachable, clusterv1.ManagedClusterTaintUnavailable
	then, now := metav1.NewTime(start), start.Add(time.Hour)
	taint := func(key string, at metav1.Time) clusterv1.Taint {
		return clusterv1.Taint{Key: key, Effect: clusterv1.TaintEffectNoSelect, TimeAdded: at}
	}
	gpu, softly := taint("gpu", then), taint(unreachable, then)
	softly.Effect = clusterv1.TaintEffectPreferNoSelect
	for _, c := range []struct {
		name         string
		taints, want []clusterv1.Taint
		available    metav1.ConditionStatus
	}{
		{"available", nil, nil, metav1.ConditionTrue},
		{"unknown", nil, []clusterv1.Taint{taint(unreachable, metav1.NewTime(now))}, metav1.ConditionUnknown},
		{"not available", nil, []clusterv1.Taint{taint(unavailable, metav1.NewTime(now))}, metav1.ConditionFalse},
		{"still unknown", []clusterv1.Taint{taint(unreachable, then)}, []clusterv1.Taint{taint(unreachable, then)}, metav1.ConditionUnknown},
		{"others stay", []clusterv1.Taint{gpu, taint(unreachable, then), gpu}, []clusterv1.Taint{gpu, gpu}, metav1.ConditionTrue},
		{"others stay first", []clusterv1.Taint{gpu}, []clusterv1.Taint{gpu, taint(unreachable, metav1.NewTime(now))}, metav1.ConditionUnknown},
		{"the other way", []clusterv1.Taint{taint(unavailable, then)}, []clusterv1.Taint{taint(unreachable, metav1.NewTime(now))}, metav1.ConditionUnknown},
		{"both and twice", []clusterv1.Taint{taint(unavailable, then), taint(unreachable, then), taint(unreachable, then)},
			[]clusterv1.Taint{taint(unreachable, then)}, metav1.ConditionUnknown},
		{"another effect", []clusterv1.Taint{softly}, []clusterv1.Taint{taint(unreachable, metav1.NewTime(now))}, metav1.ConditionUnknown},
	} {
		if diff := cmp.Diff(c.want, taintsFor(c.taints, c.available, true, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if hasTaint([]clusterv1.Taint{gpu, softly}, unreachable) || !hasTaint([]clusterv1.Taint{gpu, taint(unreachable, then)}, unreachable) {
		t.Error("only the taint with its effect counts")
	}
}

// The patches name the state that they are for, and only what is the hub's.
func TestPatches(t *testing.T) {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "7"}}
	gone, _ := play(t, presence{state: unseen}, "message; 300")
	cluster.Status.Conditions = []metav1.Condition{{Type: "Other", Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.NewTime(start)}}
	s := decide("c", view{presence: gone, stored: cluster}, manual, start)
	spec, err := json.Marshal(specPatch(cluster, s))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"annotations":{"workwire.dev/announces":null,"workwire.dev/last-seen":"2026-03-01T00:00:00Z"},"resourceVersion":"7"},` +
		`"spec":{"taints":[{"key":"cluster.open-cluster-management.io/unreachable","effect":"NoSelect","timeAdded":"2026-03-01T00:00:00Z"}]}}`
	if string(spec) != want {
		t.Errorf("spec:\n%s\nwant\n%s", spec, want)
	}
	status, err := json.Marshal(statusPatch(cluster, s))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Metadata struct{ ResourceVersion string }
		Status   struct{ Conditions []metav1.Condition }
	}
	if err := json.Unmarshal(status, &got); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, c := range got.Status.Conditions {
		types = append(types, c.Type)
	}
	if diff := cmp.Diff([]string{"Other", "HubAcceptedManagedCluster", "ManagedClusterJoined", "ManagedClusterConditionAvailable"}, types); diff != "" || got.Metadata.ResourceVersion != "7" {
		t.Errorf("status %s: %s", status, diff)
	}
}

// TestWithoutNamespace: that a cluster is accepted and has joined waits for its namespace.
func TestWithoutNamespace(t *testing.T) {
	want := func() step {
		return step{events: []event{{}}, conditions: []metav1.Condition{{Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionTrue},
			{Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue}, {Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue}}}
	}
	stored := []metav1.Condition{{Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionFalse}}
	s := want()
	s.withoutNamespace(stored)
	got := s.conditions
	if len(got) != 2 || !meta.IsStatusConditionTrue(got, clusterv1.ManagedClusterConditionAvailable) || !meta.IsStatusConditionFalse(got, clusterv1.ManagedClusterConditionHubAccepted) {
		t.Errorf("%+v", got)
	}
	s = want()
	if s.withoutNamespace(got); s.conditions != nil || s.events != nil {
		t.Errorf("the next attempt has %+v to write and %v to tell", s.conditions, s.events)
	}
}

func TestAcceptsOfAShard(t *testing.T) {
	shard := leadership.NewShard(leadership.ShardConfig{Hub: "me", Selector: labels.Everything()})
	managed := func(holder string, accepted bool) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{clusterv1.HubAnnotationKey: holder}},
			Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: accepted},
		}
	}
	for name, c := range map[string]struct {
		policy  policy
		cluster *clusterv1.ManagedCluster
		want    bool
	}{
		"held":                          {policy{shard: shard}, managed("me", true), true},
		"held, not accepted":            {policy{shard: shard}, managed("me", false), false},
		"another's":                     {policy{shard: shard}, managed("other", true), false},
		"no ManagedCluster":             {policy{shard: shard}, nil, false},
		"all clusters: another's":       {policy{}, managed("other", true), true},
		"all clusters: none registered": {policy{}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.policy.accepts(c.cluster); got != c.want {
				t.Errorf("accepted: %t, want %t", got, c.want)
			}
		})
	}
}

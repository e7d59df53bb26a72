package forget

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/security/enrolment"
)

func TestDescribe(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	condition := func(kind, reason string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Reason: reason, Status: status, Message: "as it is"}
	}
	work := func(name string, objects int) workv1.ManifestWork {
		w := workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for i := range objects {
			w.Status.ResourceStatus.Manifests = append(w.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
				ResourceMeta: workv1.ManifestResourceMeta{Kind: "Role", Namespace: "shop", Name: fmt.Sprint("r", i)},
				Conditions:   []metav1.Condition{condition(workv1.ManifestApplied, "Applied", metav1.ConditionTrue)},
			})
		}
		return w
	}
	failed := work("failed", 1)
	failed.Status.ResourceStatus.Manifests[0].Conditions[0].Status = metav1.ConditionFalse
	gone, refused := work("gone", 1), work("refused", 1)
	for of, there := range map[*workv1.ManifestWork]metav1.ConditionStatus{&gone: metav1.ConditionFalse, &refused: metav1.ConditionTrue} {
		m := &of.Status.ResourceStatus.Manifests[0]
		m.Conditions = append(m.Conditions, condition(workv1.ManifestAvailable, "Seen", there))
	}
	refused.Status.ResourceStatus.Manifests[0].Conditions[0].Status = metav1.ConditionFalse
	wide := work("wide", 1)
	wide.Status.ResourceStatus.Manifests[0].ResourceMeta = workv1.ManifestResourceMeta{Kind: "ClusterRole", Name: "all"}
	deleted := work("old", 1)
	deleted.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Hour)}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome", Annotations: map[string]string{
		clusterv1.LastSeenAnnotationKey: "2026-03-01T12:00:00Z", v1alpha1.CertificateExpiresAnnotationKey: "2026-04-01T00:00:00Z",
	}}}
	cluster.Status.Conditions = []metav1.Condition{condition(clusterv1.ManagedClusterConditionWorksHeld, "SourceKnowsTooFew", metav1.ConditionTrue)}
	joined := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome", Annotations: map[string]string{
		v1alpha1.CertificateExpiresAnnotationKey: "2026-04-01T00:00:00Z",
		v1alpha1.CertificatesAnnotationKey:       `[{"serial":"1","expires":"2026-03-01T00:00:00Z"},{"serial":"2","expires":"2026-04-01T00:00:00Z"}]`,
	}}}
	ours := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rome", Labels: map[string]string{clusterv1.NamespaceLabelKey: "rome"}}}
	for name, c := range map[string]struct {
		found *Found
		want  string
		left  bool
	}{
		"nothing": {found: &Found{Name: "rome", Namespace: &corev1.Namespace{}}, want: "Cluster rome has no ManagedCluster.\nThe hub has no works of it.\nEnded at the hub: .\n" +
			"Kept: the namespace rome, which the hub has not made.\n"},
		"never heard from": {found: &Found{Name: "rome", Cluster: &clusterv1.ManagedCluster{}, Tokens: []string{"a"}, Hidden: []string{"CertificateSigningRequests"}}, left: true,
			want: "Cluster rome was never heard from.\nThe hub has no works of it.\nEnded at the hub: 1 token, the ManagedCluster.\n" +
				"Not looked for, because you may not list them: CertificateSigningRequests.\n"},
		"joined with a token": {found: &Found{Name: "rome", Cluster: joined}, left: true,
			want: "Cluster rome was never heard from.\nThe hub has no works of it.\nEnded at the hub: 1 certificate, the ManagedCluster.\n"},
		"all": {found: &Found{Name: "rome", Cluster: cluster, Namespace: ours, Requests: []string{"a", "b"}, Profiles: make([]metav1.PartialObjectMetadata, 1), Works: []workv1.ManifestWork{work("web", 10), failed, gone, refused, wide, deleted}}, left: true,
			want: "Cluster rome was last heard from 24h ago (2026-03-01T12:00:00Z).\n" +
				"What the hub knows to be there stays there, and nobody looks after it:\n" +
				"  failed: nothing that was reported\n" +
				"  gone: nothing that was reported\n" +
				"  old: Role shop/r0 (deleted 60m ago: if the broker still has the deletion for the cluster, its return carries it out)\n" +
				"  refused: Role shop/r0\n" +
				"  web: Role shop/r0, Role shop/r1, Role shop/r2, Role shop/r3, Role shop/r4, Role shop/r5, Role shop/r6, Role shop/r7 and 2 more\n" +
				"  wide: ClusterRole all\n" +
				"It also keeps works that the hub does not know: as it is\n" +
				"Ended at the hub: 6 works, 2 CertificateSigningRequests, 1 ClusterProfile, the ManagedCluster, the namespace rome with everything in it.\n" +
				"Its certificate is valid at the broker until 2026-04-01T00:00:00Z: see docs/certificates.md, Revoke a certificate.\n"},
	} {
		if got := c.found.Describe(now); got != c.want || c.found.NothingLeft() == c.left {
			t.Errorf("%s: nothing left: %v\n%s\nwant\n%s", name, c.found.NothingLeft(), got, c.want)
		}
	}
}

// TestOnLists: another hub of the same API may be the first to note that a cluster is revoked; its broker is not the one of the cluster.
func TestOnLists(t *testing.T) {
	issued := func(source, serial string) []enrolment.Issued {
		return []enrolment.Issued{{Source: source, Serial: serial}}
	}
	lists := map[string]string{"hub": `{"revoked":[{"serial":"1a"}]}`, "other": `{"revoked":[{"serial":"2b"}]}`}
	for what, c := range map[string]struct {
		valid []enrolment.Issued
		want  bool
	}{
		"none":                  {nil, true},
		"on its hub's":          {issued("hub", "1a"), true},
		"on another hub's only": {issued("hub", "2b"), false},
		"of a hub without":      {issued("third", "1a"), false},
		"of an unknown hub":     {issued("", "2b"), true},
		"on none":               {issued("", "3c"), false},
		"part of a serial":      {issued("hub", "1"), false},
		"one of two":            {append(issued("hub", "1a"), issued("hub", "2b")...), false},
	} {
		if got := onLists(c.valid, lists); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

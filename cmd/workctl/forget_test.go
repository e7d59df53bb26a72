package main

import (
	"bytes"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/test/kit"
)

// TestForget checks what the command says and refuses; test/clusters has what becomes of the cluster.
func TestForget(t *testing.T) {
	f := newFixture(t)
	f.work("web", &condition.Manifest{})
	works, managed := f.clients.WorkV1().ManifestWorks(f.cluster), f.clients.ClusterV1().ManagedClusters()
	work, err := works.Get(t.Context(), "web", metav1.GetOptions{})
	kit.NoError(t, err)
	work.Finalizers = []string{"example.com/hub"}
	_, err = works.Update(t.Context(), work, metav1.UpdateOptions{})
	kit.NoError(t, err)
	f.workctl(1, []string{"forget", f.cluster, "--yes"}, "it is connected", "--force", "ConfigMap default/a", "1 work, the ManagedCluster",
		"Kept: the namespace "+f.cluster+", which the hub has not made")

	cluster, err := managed.Get(t.Context(), f.cluster, metav1.GetOptions{})
	kit.NoError(t, err)
	cluster.Status.Conditions[0].Status = metav1.ConditionUnknown
	cluster.Status.Conditions[0].Reason = clusterv1.ReasonHubDisconnected
	_, err = managed.UpdateStatus(t.Context(), cluster, metav1.UpdateOptions{})
	kit.NoError(t, err)
	f.workctl(1, []string{"forget", f.cluster, "--yes"}, "does not know whether")
	f.workctl(2, []string{"forget", f.cluster, "--force"}, "use --yes")
	if _, err := works.Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("what was refused has changed something: %v", err)
	}

	other := []string{"example.com/other"} // of somebody who is not there
	_, err = managed.Update(t.Context(), latest(t, f, func(c *clusterv1.ManagedCluster) { c.Finalizers = other }), metav1.UpdateOptions{})
	kit.NoError(t, err)
	f.workctl(3, []string{"forget", f.cluster, "--force", "--yes", "--timeout=1ms"}, "work web: ended", "left of cluster "+f.cluster)
	f.workctl(3, []string{"forget", f.cluster, "--force", "--yes", "--timeout=1s"}, "with the finalizers example.com/other")
	_, err = managed.Update(t.Context(), latest(t, f, func(c *clusterv1.ManagedCluster) { c.Finalizers = nil }), metav1.UpdateOptions{})
	kit.NoError(t, err)
	if _, err := works.Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the work is there: %v", err)
	}
	f.workctl(0, []string{"forget", f.cluster}, "the hub has nothing of it")
	f.workctl(2, []string{"forget"}, "accepts 1 arg")
}

// latest returns the ManagedCluster with a change.
func latest(t *testing.T, f *fixture, change func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	t.Helper()
	cluster, err := f.clients.ClusterV1().ManagedClusters().Get(t.Context(), f.cluster, metav1.GetOptions{})
	kit.NoError(t, err)
	change(cluster)
	return cluster
}

func TestAskFor(t *testing.T) {
	for answer, want := range map[string]bool{"rome": true, "rome\n": true, "rome \n": true, "y\n": false, "\n": false, "": false, "roma\n": false} {
		var out bytes.Buffer
		err := askFor(strings.NewReader(answer), &out, "rome")
		if (err == nil) != want || !strings.Contains(out.String(), "Type the name") {
			t.Errorf("%q: %v, %q", answer, err, out.String())
		}
	}
}

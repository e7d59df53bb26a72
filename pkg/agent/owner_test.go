package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

// TestTwoNamesOfOneCluster: two agents with one id, as those of one broker have it, and two names of the cluster leave each
// other's objects alone, and of the two the one that was there first starts again; the other if it takes over.
func TestTwoNamesOfOneCluster(t *testing.T) {
	t.Parallel()
	w := world.New(t, world.Options{Memory: true, Spokes: []*controlplane.Plane{plane, plane}})
	id := func(c *agent.Config) { c.AgentID = w.BrokerHost }
	sdk := w.StartSDK(w.Source)
	first, other := w.StartAgent(0, id), w.StartAgent(1, id)
	stop := first.Stop
	kit.Eventually(t, "each has found the cluster without works", func() error { return errors.Join(first.Ready(), other.Ready()) })
	kept := [2]map[string]string{}
	for i, cluster := range w.Clusters {
		works := sdk.ManifestWorks(string(cluster))
		w.Create(works, w.Work(i, "web-"+string(cluster), "1", "a"))
		w.Applied(works, "web-"+string(cluster))
		kept[i] = w.Holds(i, map[string]string{"a": "1"})
		made := time.Now()
		kit.True(t, "the next one is a second younger", func() bool { return time.Since(made) > time.Second })
	}
	// Each has seen the record of the other.
	amws := workclient.NewForConfigOrDie(plane.REST()).WorkV1().AppliedManifestWorks()
	list, err := amws.List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	ours := 0
	for i := range list.Items {
		if amw := &list.Items[i]; amw.Spec.AgentID == w.BrokerHost && amw.DeletionTimestamp == nil {
			ours++
		}
	}
	if ours != 2 {
		t.Errorf("%d AppliedManifestWorks, want one of each", ours)
	}
	// A work of a name that the other has.
	clash := "web-" + string(w.Clusters[0])
	w.Create(sdk.ManifestWorks(string(w.Clusters[1])), w.Work(1, clash, "1", "b"))
	kit.Eventually(t, "the clash is told", func() error {
		work, err := sdk.ManifestWorks(string(w.Clusters[1])).Get(t.Context(), clash, metav1.GetOptions{})
		if err == nil && !strings.Contains(fmt.Sprint(work.Status.Conditions, work.Status.ResourceStatus), "one cluster has one name") {
			err = fmt.Errorf("%+v", work.Status)
		}
		return err
	})
	w.Delete(sdk.ManifestWorks(string(w.Clusters[1])), clash)
	w.Gone(sdk.ManifestWorks(string(w.Clusters[1])), clash)
	if now := w.Holds(0, map[string]string{"a": "1"}); now["a"] != kept[0]["a"] {
		t.Error("the end of the work of the same name has deleted the object of the other")
	}
	other.Stop()
	stop()

	second := w.NewAgent(1, id)
	if err := second.Agent.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "serves this cluster as "+string(w.Clusters[0])+" already") {
		t.Errorf("the second starts: %v", err)
	}
	stop = w.StartAgent(0, id).Stop
	works := sdk.ManifestWorks(string(w.Clusters[0]))
	w.Update(works, w.Work(0, "web-"+string(w.Clusters[0]), "2", "a"))
	w.Holds(0, map[string]string{"a": "2"})
	for i := range kept {
		if now := w.Holds(i, map[string]string{"a": map[int]string{0: "2", 1: "1"}[i]}); now["a"] != kept[i]["a"] {
			t.Errorf("the object of cluster %d was made again", i)
		}
	}
	stop()

	w.StartAgent(1, id, func(c *agent.Config) { c.TakesOver = w.Clusters[0] })
	w.Update(sdk.ManifestWorks(string(w.Clusters[1])), w.Work(1, "web-"+string(w.Clusters[1]), "3", "a"))
	w.Holds(1, map[string]string{"a": "3"})
	// What the other has applied stays, for the grace period.
	kit.Eventually(t, "what is taken over is without a work", func() error {
		list, err := amws.List(t.Context(), metav1.ListOptions{})
		for i := range list.Items {
			if amw := &list.Items[i]; err == nil && amw.Spec.AgentID == w.BrokerHost && amw.Spec.ManifestWorkName == clash && amw.Status.EvictionStartTime == nil {
				err = fmt.Errorf("%s is not marked for eviction: %v", amw.Name, amw.Annotations)
			}
		}
		return err
	})
	if now := w.Holds(0, map[string]string{"a": "2"}); now["a"] != kept[0]["a"] {
		t.Error("taking over has deleted objects")
	}
}

package replicaset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/test/kit"
)

func TestNewValidatesConfig(t *testing.T) {
	client := versioned.NewForConfigOrDie(plane.REST())
	informers := controller.NewInformers(controller.InformersConfig{Client: client})
	cache, err := works.NewCache(informers, nil)
	kit.NoError(t, err)
	for _, cfg := range []Config{
		{}, {Informers: informers, Client: client}, {Informers: informers, Works: cache}, {Works: cache, Client: client},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is valid", cfg)
		}
	}
	_, err = New(Config{})
	for _, field := range []string{"Informers", "Bindings", "Works", "Client", "Core", "Recorder", "Workers"} {
		if err == nil || !strings.Contains(err.Error(), field+" ") {
			t.Errorf("no error for %s: %v", field, err)
		}
	}
	registry := prometheus.NewRegistry()
	c, _ := newController(t, Config{Client: client, Registerer: registry})
	if err := c.Ready(t.Context()); err == nil {
		t.Error("a controller that does not run is ready")
	}
	again := c.cfg
	again.Informers = controller.NewInformers(controller.InformersConfig{Client: client})
	again.Bindings = clustersets.NewBindings(again.Informers, false)
	again.Works, err = works.NewCache(again.Informers, nil)
	kit.NoError(t, err)
	if _, err := New(again); err == nil || !strings.Contains(err.Error(), "duplicate") {
		t.Errorf("metrics are registered twice: %v", err)
	}
}

// TestAll checks that a set reaches all clusters at once, and that changes of the template, the
// labels, the clusters and the placement reach the works.
func TestAll(t *testing.T) {
	e := newEnv(t, 4)
	r := e.start()
	e.writePlacement("p", e.clusters[:3])
	set := newSet("p")
	set.Labels = map[string]string{"team": "till"}
	e.createSet(set)
	e.awaitTemplate("set", "2", "c01 c02 c03")
	e.awaitStatus("set", "PlacementVerified True AsExpected\nPlacementRolledOut False Progressing\nManifestworkApplied False NotAsExpected\n"+
		"p: 1 (3 / 3 clusters applied): total 3 applied 0 available 0 progressing 0 degraded 0\n"+
		"total 3 applied 0 available 0 progressing 0 degraded 0")
	e.reportApplied("set", e.clusters)
	complete := "PlacementVerified True AsExpected\nPlacementRolledOut True Complete\nManifestworkApplied True AsExpected\n" +
		"p: 1 (3 / 3 clusters applied): total 3 applied 3 available 3 progressing 0 degraded 0\n" +
		"total 3 applied 3 available 3 progressing 0 degraded 0"
	e.awaitStatus("set", complete)
	e.awaitEvent(r, "Normal RolledOut All 3 works are rolled out")
	e.awaitIdle(r, "set")
	e.awaitMetric(r, "workwire_hub_replicaset_clusters", "state", map[string]float64{"succeeded": 3})
	e.awaitMetric(r, "workwire_hub_replicaset_sets", "rollout", map[string]float64{"complete": 1})
	if requests := e.awaitIdle(r, "set"); len(requests) > 0 {
		t.Errorf("a reconcile without a change wrote %q", requests)
	}

	// The number of selected clusters in the status of the placement counts, also before its
	// decisions agree.
	chosen, decisions := placementOf("p", e.clusters[:3])
	chosen.Status.NumberOfSelectedClusters++
	e.storePlacement(chosen, decisions)
	e.awaitStatus("set", strings.NewReplacer("True Complete", "False Progressing", "/ 3", "/ 4").Replace(complete))
	e.writePlacement("p", e.clusters[:3])
	e.awaitStatus("set", complete)

	// The template.
	before := e.works("set")
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.ManifestWorkTemplate = template("3") })
	e.awaitTemplate("set", "3", "c01 c02 c03")
	e.reportApplied("set", e.clusters)
	e.awaitStatus("set", complete)
	for i, work := range e.works("set") {
		if work.UID != before[i].UID || work.Generation != 2 || work.Annotations[workv1alpha1.RolledOutAtAnnotationKey] == "" {
			t.Errorf("%s was not updated but %+v", work.Name, work.ObjectMeta)
		}
		if work.Labels["team"] != "till" || work.Labels[workv1.PlacementNameLabelKey] != "p" {
			t.Errorf("labels of %s: %v", work.Name, work.Labels)
		}
	}
	if n := len(slices.DeleteFunc(e.awaitIdle(r, "set"), func(write string) bool { return write != "update manifestworks" })); n != 3 {
		t.Errorf("the template was written %d times, want 3", n)
	}

	// A change of labels costs one request per work and no new generation.
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Labels = map[string]string{"stage": "prod"} })
	kit.Eventually(t, "the labels are new", func() error {
		for _, work := range e.works("set") {
			if _, old := work.Labels["team"]; old || work.Labels["stage"] != "prod" || work.Generation != 2 {
				return fmt.Errorf("%s: %v, generation %d", work.Name, work.Labels, work.Generation)
			}
		}
		return nil
	})
	if got, want := e.awaitIdle(r, "set"), slices.Repeat([]string{"patch manifestworks"}, 3); !slices.Equal(got, want) {
		t.Errorf("for new labels it wrote %q", got)
	}

	// Clusters come and go.
	e.writePlacement("p", e.clusters[1:])
	e.awaitTemplate("set", "3", "c02 c03 c04")

	// A work that others changed, and one that others deleted.
	e.reportApplied("set", e.clusters)
	changed := e.works("set")[0]
	changed.Spec = template("mine")
	if _, err := e.client.WorkV1().ManifestWorks(changed.Namespace).Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.NoError(t, e.client.WorkV1().ManifestWorks(e.clusters[2]).Delete(t.Context(), e.works("set")[1].Name, metav1.DeleteOptions{}))
	e.awaitTemplate("set", "3", "c02 c03 c04")

	// Another placement replaces the first.
	e.writePlacement("q", e.clusters[:1])
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.PlacementRefs[0].Name = "q" })
	e.awaitTemplate("set", "3", "c01")

	// No cluster at all.
	e.writePlacement("q")
	e.awaitTemplate("set", "3", "")
	e.awaitStatus("set", "PlacementVerified False PlacementDecisionEmpty\nPlacementRolledOut True Complete\nManifestworkApplied False PlacementDecisionEmpty\n"+
		"q: 0 (0 / 0 clusters applied): total 0 applied 0 available 0 progressing 0 degraded 0\n"+
		"total 0 applied 0 available 0 progressing 0 degraded 0")
}

// TestProgressive checks the limit of concurrent clusters, minSuccessTime, and that failures stop
// the rollout and are named in the status.
func TestProgressive(t *testing.T) {
	e := newEnv(t, 6)
	r := e.start()
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(2, 1)
	set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.MinSuccessTime = metav1.Duration{Duration: 5 * time.Minute}
	e.createSet(set)
	e.awaitTemplate("set", "2", "c01 c02")
	e.reportApplied("set", e.clusters[:1])
	e.awaitIdle(r, "set")
	e.awaitTemplate("set", "2", "c01 c02") // c01 has not succeeded for long enough
	e.advance(5 * time.Minute)
	r.requeue(e, "set")
	e.awaitTemplate("set", "2", "c01 c02 c03")
	e.reportApplied("set", e.clusters[1:3], "Progressing=True", "Degraded=True")
	e.awaitStatus("set", "PlacementVerified True AsExpected\n"+
		"PlacementRolledOut False Progressing stopped: 2 clusters failed or timed out, more than allowed: c02, c03\n"+
		"ManifestworkApplied False NotAsExpected\n"+
		"p: 1 (3 / 6 clusters applied): total 3 applied 3 available 3 progressing 2 degraded 2\n"+
		"total 3 applied 3 available 3 progressing 2 degraded 2")
	e.awaitEvent(r, "Warning RolloutStopped Rollout stopped: 2 clusters failed or timed out, more than allowed: c02, c03")
	e.awaitMetric(r, "workwire_hub_replicaset_sets", "rollout", map[string]float64{"stopped": 1})
	e.awaitMetric(r, "workwire_hub_replicaset_clusters", "state", map[string]float64{"succeeded": 1, "failed": 2, "waiting": 3})

	// After the clusters recover, the rollout continues to its end.
	e.reportApplied("set", e.clusters[1:3], "Progressing=False")
	e.advance(5 * time.Minute)
	r.requeue(e, "set")
	e.awaitTemplate("set", "2", "c01 c02 c03 c04 c05")
	e.reportApplied("set", e.clusters[3:])
	e.advance(5 * time.Minute)
	r.requeue(e, "set")
	e.awaitTemplate("set", "2", "c01 c02 c03 c04 c05 c06")
	e.reportApplied("set", e.clusters[5:])
	e.awaitStatus("set", "PlacementVerified True AsExpected\nPlacementRolledOut True Complete\nManifestworkApplied True AsExpected\n"+
		"p: 1 (6 / 6 clusters applied): total 6 applied 6 available 6 progressing 0 degraded 0\n"+
		"total 6 applied 6 available 6 progressing 0 degraded 0")

	// A new template starts another rollout.
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.ManifestWorkTemplate = template("3")
		set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.ProgressDeadline = "10m"
	})
	e.awaitTemplate("set", "3", "c01 c02")
	e.awaitIdle(r, "set")
	e.awaitTemplate("set", "2", "c03 c04 c05 c06")

	// Clusters that do not answer time out: c01 and c02.
	e.advance(10 * time.Minute)
	r.requeue(e, "set")
	e.awaitStatus("set", "PlacementVerified True AsExpected\n"+
		"PlacementRolledOut False Progressing stopped: 2 clusters failed or timed out, more than allowed: c01, c02\n"+
		"ManifestworkApplied True AsExpected\n"+ // by the conditions of the old template, which are all there are
		"p: 1 (2 / 6 clusters applied): total 2 applied 2 available 2 progressing 0 degraded 0\n"+
		"total 2 applied 2 available 2 progressing 0 degraded 0")
	e.awaitMetric(r, "workwire_hub_replicaset_clusters", "state", map[string]float64{"timed_out": 2, "waiting": 4})
}

// TestRequeueAt checks that a rollout continues at its requeue time without any change.
func TestRequeueAt(t *testing.T) {
	e := newEnv(t, 2)
	e.start()
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
	set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.MinSuccessTime = metav1.Duration{Duration: time.Second}
	e.createSet(set)
	e.awaitTemplate("set", "2", "c01")
	e.reportApplied("set", e.clusters)
	e.awaitStatus("set", "PlacementVerified True AsExpected\nPlacementRolledOut False Progressing\nManifestworkApplied True AsExpected\n"+
		"p: 1 (1 / 2 clusters applied): total 1 applied 1 available 1 progressing 0 degraded 0\n"+
		"total 1 applied 1 available 1 progressing 0 degraded 0")
	e.advance(time.Second) // the controller is waiting for that second of its own
	e.awaitTemplate("set", "2", "c01 c02")
}

// TestPerGroup checks the order of decision groups.
func TestPerGroup(t *testing.T) {
	e := newEnv(t, 6)
	r := e.start()
	e.writePlacement("p", e.clusters[4:], e.clusters[2:4], e.clusters[:2])
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = clusterv1alpha1.RolloutStrategy{RolloutType: clusterv1alpha1.ProgressivePerGroup}
	e.createSet(set)
	e.awaitTemplate("set", "2", "c05 c06")
	e.reportApplied("set", e.clusters[:5])
	e.awaitIdle(r, "set")
	e.awaitTemplate("set", "2", "c05 c06")
	e.reportApplied("set", e.clusters[5:])
	e.awaitTemplate("set", "2", "c03 c04 c05 c06")
	e.awaitEvent(r, "Normal GroupRolledOut 1 of 3 decision groups of placement p are rolled out")
	e.reportApplied("set", e.clusters[2:3], "Progressing=True", "Degraded=True")
	e.reportApplied("set", e.clusters[3:4])
	e.awaitStatus("set", "PlacementVerified True AsExpected\n"+
		"PlacementRolledOut False Progressing stopped: 1 cluster failed or timed out, more than allowed: c03\n"+
		"ManifestworkApplied False NotAsExpected\n"+
		"p: 3 (4 / 6 clusters applied): total 4 applied 4 available 4 progressing 1 degraded 1\n"+
		"total 4 applied 4 available 4 progressing 1 degraded 1")
	e.reportApplied("set", e.clusters[2:3])
	e.awaitTemplate("set", "2", "c01 c02 c03 c04 c05 c06")
	e.reportApplied("set", e.clusters[:2])
	e.awaitEvent(r, "Normal RolledOut All 6 works are rolled out")
}

// TestRestart checks that a controller continues the rollout of its predecessor without duplicate
// works.
func TestRestart(t *testing.T) {
	e := newEnv(t, 4)
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(2, 0)
	r := e.start()
	e.createSet(set)
	e.awaitTemplate("set", "2", "c01 c02")
	r.stop()
	before := e.works("set")
	e.reportApplied("set", e.clusters[:1])
	r = e.start()
	e.awaitTemplate("set", "2", "c01 c02 c03")
	e.awaitIdle(r, "set")
	after := e.works("set")
	if len(after) != 3 || after[0].UID != before[0].UID || after[1].UID != before[1].UID {
		t.Errorf("the works were replaced")
	}
	r.stop()
	r = e.start()
	if requests := e.awaitIdle(r, "set"); len(requests) > 0 {
		t.Errorf("a restart wrote %q", requests)
	}
	// Works with other names are kept, and duplicates are deleted.
	r.stop()
	foreign := e.works("set")[2]
	kit.NoError(t, e.client.WorkV1().ManifestWorks(foreign.Namespace).Delete(t.Context(), foreign.Name, metav1.DeleteOptions{}))
	for _, name := range []string{"set-x7k2p", "set-zzzzz"} {
		twin := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: foreign.Namespace, Name: name, Labels: foreign.Labels}, Spec: foreign.Spec}
		if _, err := e.client.WorkV1().ManifestWorks(foreign.Namespace).Create(t.Context(), twin, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	e.start()
	kit.Eventually(t, "one work is left", func() error {
		if works := e.works("set"); len(works) != 3 || works[2].Name != "set-x7k2p" {
			return fmt.Errorf("%d works, the third is %s", len(works), works[len(works)-1].Name)
		}
		return nil
	})
}

// TestDeletion checks that Background removes the set at once and Foreground after its works, and
// that no work is left.
func TestDeletion(t *testing.T) {
	for _, policy := range []workv1alpha1.CascadeDeletionPolicy{workv1alpha1.Background, workv1alpha1.Foreground} {
		t.Run(string(policy), func(t *testing.T) {
			e := newEnv(t, 3)
			r := e.start()
			e.writePlacement("p", e.clusters)
			set := newSet("p")
			set.Spec.CascadeDeletionPolicy = policy
			e.createSet(set)
			e.awaitTemplate("set", "2", "c01 c02 c03")
			held := e.works("set")
			for _, work := range held {
				work.Finalizers = []string{workv1.ManifestWorkFinalizer} // as of publish
				if _, err := e.client.WorkV1().ManifestWorks(work.Namespace).Update(t.Context(), work, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			client := e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace)
			kit.NoError(t, client.Delete(t.Context(), "set", metav1.DeleteOptions{}))
			kit.Eventually(t, "the works are being deleted", func() error {
				for _, work := range e.works("set") {
					if work.DeletionTimestamp == nil {
						return fmt.Errorf("%s is not", work.Namespace)
					}
				}
				return nil
			})
			if policy == workv1alpha1.Background {
				e.awaitGone("set")
			}
			for i, work := range held {
				if policy == workv1alpha1.Foreground {
					if set, err := e.getSet("set"); err != nil || set.DeletionTimestamp == nil {
						t.Errorf("with %d works left: %v", len(held)-i, err)
					}
				}
				if _, err := e.client.WorkV1().ManifestWorks(work.Namespace).Patch(t.Context(), work.Name, types.MergePatchType,
					[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			e.awaitGone("set")
			if left := e.works("set"); len(left) > 0 {
				t.Errorf("%d works are left", len(left))
			}
			lists := r.requests.All(func(request kit.Request) bool {
				return request.Verb == "list" && request.Resource == "manifestworks" && strings.Contains(request.Query, "labelSelector")
			})
			if len(lists) != 1 {
				t.Errorf("works were listed %d times, want once", len(lists))
			}
			kit.Eventually(t, "what is remembered of it is dropped", func() error {
				r.Controller.mu.Lock()
				defer r.Controller.mu.Unlock()
				if n := len(r.memories); n > 0 {
					return fmt.Errorf("%d sets are remembered", n)
				}
				return nil
			})
			e.awaitMetric(r, "workwire_hub_replicaset_sets", "rollout", nil)
		})
	}
}

// TestInvalidSets checks that errors that a user must correct are in the status and in an event,
// until they are corrected.
func TestInvalidSets(t *testing.T) {
	e := newEnv(t, 2)
	r := e.start()

	long := newSet("p")
	long.Name = strings.Repeat("x", 63-len(e.namespace))
	e.createSet(long)
	kit.Eventually(t, "the name is refused", func() error {
		set, err := e.getSet(long.Name)
		if err != nil {
			return err
		}
		if got := conditionTexts(set.Status.Conditions); len(got) != 1 ||
			!strings.HasPrefix(got[0], `ManifestworkApplied False InvalidManifestWorkName <namespace>.<name> of the set is "`+e.namespace+"."+long.Name) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	e.awaitEvent(r, "Warning InvalidManifestWorkName <namespace>.<name> of the set is ")
	kit.NoError(t, e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace).Delete(t.Context(), long.Name, metav1.DeleteOptions{}))
	e.awaitGone(long.Name)

	// A placement is missing.
	e.createSet(newSet("p"))
	const none = "total 0 applied 0 available 0 progressing 0 degraded 0"
	e.awaitStatus("set", "PlacementVerified False PlacementDecisionNotFound\n"+none)
	e.awaitEvent(r, "Warning PlacementDecisionNotFound Placement p does not exist in namespace ")
	e.writePlacement("p", append(slices.Clone(e.clusters), "nowhere"))
	e.awaitTemplate("set", "2", "c01 c02")

	// A selected cluster has no namespace. The others have their works.
	e.awaitEvent(r, "Warning WriteFailed Writing works of 1 clusters failed (nowhere): create ManifestWork nowhere/set-")
	kit.Eventually(t, "the set says so", func() error {
		set, err := e.getSet("set")
		if err != nil {
			return err
		}
		if got := set.Status.PlacementsSummary[0].AvailableDecisionGroups; got != "1 (2 / 3 clusters applied)" {
			return errors.New(got)
		}
		for _, kind := range []string{workv1alpha1.ManifestWorkReplicaSetConditionProgressing, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut} {
			c := meta.FindStatusCondition(set.Status.Conditions, kind)
			if c == nil || !strings.Contains(c.Message, "Writing works of 1 clusters failed (nowhere): create ManifestWork nowhere/set-") {
				return fmt.Errorf("%s is %+v", kind, c)
			}
		}
		return nil
	})
	e.awaitIdle(r, "set") // // it is not retried before its backoff
	e.advance(retryBackoff)
	r.requeue(e, "set")
	kit.Eventually(t, "it is retried", func() error {
		if requests := r.writes(); !slices.Equal(requests, []string{"create manifestworks"}) {
			return fmt.Errorf("%q", requests)
		}
		return nil
	})
	e.writePlacement("p", e.clusters)
	e.reportApplied("set", e.clusters)
	e.awaitEvent(r, "Normal RolledOut All 2 works are rolled out")

	// A decision group that does not exist.
	e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.ManifestWorkTemplate = template("3")
		set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
		set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.MandatoryDecisionGroups.MandatoryDecisionGroups =
			[]clusterv1alpha1.MandatoryDecisionGroup{{GroupName: "canary"}}
	})
	fault := `placement p: mandatory decision group "canary" does not exist`
	e.awaitStatus("set", "PlacementVerified False NotAsExpected "+fault+"\nPlacementRolledOut False Progressing\nManifestworkApplied False NotAsExpected\n"+
		"p: 1 (0 / 2 clusters applied): "+none+"\n"+none)
	e.awaitEvent(r, "Warning NotAsExpected "+fault)
	e.awaitMetric(r, "workwire_hub_replicaset_sets", "rollout", map[string]float64{"invalid": 1})
}

// TestAway checks that a cluster that is away gets its work and does not delay the others, and that
// a cluster that is not accepted gets none.
func TestAway(t *testing.T) {
	e := newEnv(t, 4)
	clusters := e.client.ClusterV1().ManagedClusters()
	for i, name := range e.clusters {
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: i != 3}}
		cluster, err := clusters.Create(t.Context(), cluster, metav1.CreateOptions{})
		kit.NoError(t, err)
		t.Cleanup(func() { _ = clusters.Delete(context.Background(), name, metav1.DeleteOptions{}) })
		e.setAvailable(cluster, i != 0)
	}
	r := e.start()
	e.writePlacement("p", e.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
	e.createSet(set)
	e.awaitTemplate("set", "2", "c01 c02") // // c01 is away and holds no slot
	e.reportApplied("set", e.clusters[1:2])
	e.awaitTemplate("set", "2", "c01 c02 c03")
	e.reportApplied("set", e.clusters[2:3])
	e.awaitMetric(r, "workwire_hub_replicaset_clusters", "state", map[string]float64{"progressing": 1, "succeeded": 2, "away": 1})
	e.awaitIdle(r, "set")
	e.awaitTemplate("set", "2", "c01 c02 c03")
	back, err := clusters.Get(t.Context(), e.clusters[0], metav1.GetOptions{})
	kit.NoError(t, err)
	e.setAvailable(back, true)
	kit.Eventually(t, "it is seen to be back", func() error {
		if got := r.clusterStates(); got["away"] != 0 {
			return fmt.Errorf("clusters: %v", got)
		}
		return nil
	})
	accepted, err := clusters.Get(t.Context(), e.clusters[3], metav1.GetOptions{})
	kit.NoError(t, err)
	accepted.Spec.HubAcceptsClient = true
	if _, err := clusters.Update(t.Context(), accepted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.reportApplied("set", e.clusters[:1])
	e.awaitTemplate("set", "2", "c01 c02 c03 c04")
}

// setAvailable sets the condition Available of a cluster.
func (e *env) setAvailable(cluster *clusterv1.ManagedCluster, available bool) {
	e.t.Helper()
	cluster.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[available],
		Reason: "Test", LastTransitionTime: metav1.NewTime(e.now()),
	}}
	if _, err := e.client.ClusterV1().ManagedClusters().UpdateStatus(e.t.Context(), cluster, metav1.UpdateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// TestWrite checks that errors because of an outdated cache are distinguished from others.
func TestWrite(t *testing.T) {
	e := newEnv(t, 1)
	c, _ := newController(t, Config{Client: e.client, Now: e.now})
	set := newSet("p")
	set.Namespace = e.namespace
	step := func(name string, change change, want string, wantErr bool) *workv1.ManifestWork {
		t.Helper()
		got, err := c.write(t.Context(), change)
		if got != want || (err != nil) != wantErr || errors.Is(err, errOutdated) != (want == "outdated") {
			t.Errorf("%s: %s (%v), want %s", name, got, err, want)
		}
		written, _ := c.cfg.Works.Latest(controller.KeyOf(change.work))
		return written
	}
	wanted := newWork(set, "p", e.clusters[0], "", start)
	made := step("create", change{action: create, work: wanted}, "ok", false)
	step("create again", change{action: create, work: wanted}, "outdated", true)
	step("create nowhere", change{action: create, work: newWork(set, "p", "nowhere", "", start)}, "failed", true)

	set.Labels = map[string]string{"a": "1"}
	labelled, ok := labelChange(made, metadataOf(set, "p", nil))
	if !ok {
		t.Fatal("no labels are to be written")
	}
	made = step("label", labelled, "ok", false)
	set.Labels = nil
	unlabelled, _ := labelChange(made, metadataOf(set, "p", nil))
	step("take the label away", unlabelled, "ok", false)
	step("take it away again", unlabelled, "outdated", true)
	set.Labels = map[string]string{"a": strings.Repeat("x", 64)}
	refused, _ := labelChange(made, metadataOf(set, "p", nil))
	step("a label that is none", refused, "failed", true)

	other := made.DeepCopy()
	other.UID = "another"
	set.Labels = nil
	step("update another work of that name", updateChange(other, set, "p", "", start), "outdated", true)
	step("delete another work of that name", change{action: remove, work: other}, "gone", false)
	step("delete", change{action: remove, work: made}, "ok", false)
	step("delete again", change{action: remove, work: made}, "gone", false)
	step("update what is gone", updateChange(made, set, "p", "", start), "outdated", true)
}

// TestRefusedWritesArePaced: writes that were refused at once, as while the API is down, do not make those look slow that follow.
func TestRefusedWritesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down, underWay, most atomic.Int32
		down.Store(1)
		client := versioned.NewForConfigOrDie(&rest.Config{Host: "http://hub", QPS: -1, Transport: kit.RoundTripper(func(request *http.Request) (*http.Response, error) {
			if down.Load() > 0 {
				return nil, errors.New("connection refused")
			}
			if n := underWay.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer underWay.Add(-1)
			time.Sleep(10 * time.Millisecond)
			return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: request.Body, Request: request}, nil
		})})
		c, _ := newController(t, Config{Client: client})
		var changes []change
		for i := range 400 {
			changes = append(changes, change{action: create, work: newWork(newSet("p"), "p", fmt.Sprintf("c%03d", i), "", start)})
		}
		write := func(n int) (failed int) {
			for _, err := range c.writeParallel(t.Context(), "ns.set", changes[:n], func() bool { return false }) {
				if err != nil {
					failed++
				}
			}
			return failed
		}
		if failed := write(100); failed != 100 {
			t.Errorf("%d of 100 writes failed", failed)
		}
		down.Store(0)
		if failed := write(400); failed != 0 || most.Load() != workers {
			t.Errorf("%d writes failed; %d were under way, want %d", failed, most.Load(), workers)
		}
	})
}

// TestSteeredAmongWrites: who pauses a rollout, or changes the template, while works are being written does not wait for the others.
func TestSteeredAmongWrites(t *testing.T) {
	for name, steer := range map[string]func(*workv1alpha1.ManifestWorkReplicaSet){
		"paused": func(set *workv1alpha1.ManifestWorkReplicaSet) {
			set.Annotations = map[string]string{workv1.PausedAnnotationKey: "true"}
		},
		"another template": func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.ManifestWorkTemplate = template("mended") },
	} {
		t.Run(name, func(t *testing.T) {
			const before = 3
			e := newEnv(t, 60)
			var wrong atomic.Int32 // works with the first template that were to be created
			told := make(chan struct{})
			r := e.startWith(func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
				if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/manifestworks") {
					body, err := io.ReadAll(request.Body)
					if err != nil {
						return nil, err
					}
					request.Body = io.NopCloser(bytes.NewReader(body))
					if bytes.Contains(body, []byte("faulty")) && wrong.Add(1) > before {
						<-told
					}
				}
				return next.RoundTrip(request)
			})
			set := newSet("p")
			set.Spec.ManifestWorkTemplate = template("faulty")
			e.writePlacement("p", e.clusters)
			e.createSet(set)
			kit.True(t, "works are being written", func() bool { return wrong.Load() > before })
			e.updateSet("set", steer)
			kit.True(t, "the controller knows", func() bool {
				latest, ok := r.sets.Latest(types.NamespacedName{Namespace: e.namespace, Name: "set"})
				return ok && (workv1.IsPaused(latest) || latest.Generation > 1)
			})
			close(told)
			e.awaitIdle(r, "set")
			if n := wrong.Load(); n > before+workers {
				t.Errorf("%d of 60 works were written after that", n-before-workers)
			}
		})
	}
}

// TestFinalizeListsWorks checks that the finalizer stays while the API server has works of the set
// that the cache does not show.
func TestFinalizeListsWorks(t *testing.T) {
	e := newEnv(t, 1)
	c, _ := newController(t, Config{Client: e.client, Now: e.now}) // its informers do not run: the cache is behind
	client := e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace)
	for _, policy := range []workv1alpha1.CascadeDeletionPolicy{workv1alpha1.Background, workv1alpha1.Foreground} {
		set := newSet("p")
		set.Name = strings.ToLower(string(policy))
		set.Spec.CascadeDeletionPolicy, set.Finalizers = policy, []string{"example.com/other", workv1alpha1.ManifestWorkReplicaSetFinalizer}
		e.createSet(set)
		work := newWork(set, "p", e.clusters[0], "", start)
		work.Finalizers = []string{workv1.ManifestWorkFinalizer}
		if _, err := e.client.WorkV1().ManifestWorks(e.clusters[0]).Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		kit.NoError(t, client.Delete(t.Context(), set.Name, metav1.DeleteOptions{}))
		finalize := func() (left []string, err error) {
			t.Helper()
			current, err := e.getSet(set.Name)
			kit.NoError(t, err)
			_, err = c.finalize(t.Context(), current, c.memoryOf(controller.KeyOf(current)), start)
			if current, getErr := e.getSet(set.Name); getErr == nil {
				left = current.Finalizers
			}
			return left, err
		}
		if left, err := finalize(); err != nil || len(left) != 2 || e.works(set.Name)[0].DeletionTimestamp == nil {
			t.Errorf("%s, a work the cache does not show: finalizers %v, %v", policy, left, err)
		}
		left, err := finalize()
		if policy == workv1alpha1.Background && (err != nil || !slices.Equal(left, []string{"example.com/other"})) {
			t.Errorf("%s, all works are being deleted: finalizers %v, %v", policy, left, err)
		}
		if policy == workv1alpha1.Foreground && (err == nil || len(left) != 2) {
			t.Errorf("%s, works are left: finalizers %v, %v", policy, left, err)
		}
	}
}

// TestWorkOfAnotherSet: a set does not take the work of another set that has the name of its own work. A
// work of a set that does not exist is taken.
func TestWorkOfAnotherSet(t *testing.T) {
	e := newEnv(t, 2)
	e.writePlacement("p", e.clusters)
	name := workv1alpha1.WorkName(types.NamespacedName{Namespace: e.namespace, Name: "set"}, "p")
	for i, owner := range []string{"other", "gone"} {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			workv1.ReplicaSetLabelKey: e.namespace + "." + owner, workv1.PlacementNameLabelKey: "p",
		}}, Spec: template("2")}
		if _, err := e.client.WorkV1().ManifestWorks(e.clusters[i]).Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"other": "2", "set": "3"} {
		set := newSet("p")
		set.Name, set.Spec.ManifestWorkTemplate = name, template(value)
		e.createSet(set)
	}
	r := e.start()
	e.awaitTemplate("set", "3", "c02")
	e.awaitTemplate("other", "2", "c01 c02")
	kit.True(t, "the set tries to create its work", func() bool {
		return kit.Gather(t, r.registry).Sum("workwire_hub_replicaset_works_written_total", "action=create", "result=outdated") > 0
	})
	if got := e.clustersWith("other", "2"); got != "c01 c02" {
		t.Errorf("the other set has works in %q", got)
	}
}

// TestTemplateIsPatched where a work has changed since the controller saw it, and where the controller may not update.
func TestTemplateIsPatched(t *testing.T) {
	for name, refusal := range map[string]*apierrors.StatusError{
		"changed":   apierrors.NewConflict(workv1.Resource("manifestworks"), "w", nil),
		"forbidden": apierrors.NewForbidden(workv1.Resource("manifestworks"), "w", nil),
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 2)
			r := e.startWith(func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
				if request.Method != http.MethodPut {
					return next.RoundTrip(request)
				}
				text, err := json.Marshal(refusal.Status())
				return &http.Response{
					StatusCode: int(refusal.Status().Code), Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(bytes.NewReader(text)), Request: request,
				}, err
			})
			e.writePlacement("p", e.clusters)
			e.createSet(newSet("p"))
			e.awaitTemplate("set", "2", "c01 c02")
			e.awaitIdle(r, "set")
			e.updateSet("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.ManifestWorkTemplate = template("3") })
			e.awaitTemplate("set", "3", "c01 c02")
		})
	}
}

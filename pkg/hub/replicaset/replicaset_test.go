package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/controller"
	"github.com/workwire/workwire/pkg/hub/works"
)

func TestNewChecksItsConfig(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	client := versioned.NewForConfigOrDie(plane.REST())
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: logger})
	cache, err := works.New(works.Config{Informers: informers})
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{
		{}, {Client: client, Logger: logger}, {Works: cache, Logger: logger}, {Works: cache, Client: client},
		{Works: cache, Client: client, Logger: logger, Workers: -1},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	registry := prometheus.NewRegistry()
	cfg := Config{Works: cache, Client: client, Logger: logger, Registerer: registry}
	controller, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := controller.Ready(t.Context()); err == nil {
		t.Error("a controller that does not run is ready")
	}
	if _, err := New(cfg); err == nil {
		t.Error("metrics are registered twice")
	}
}

// TestAll: a set goes to all its clusters at once, a change of it too, and what
// is not wanted any more goes.
func TestAll(t *testing.T) {
	w := newWorld(t, 4)
	r := w.start()
	w.place("p", w.clusters[:3])
	set := newSet("p")
	set.Labels = map[string]string{"team": "till"}
	w.create(set)
	w.expect("set", "2", "c01 c02 c03")
	w.reaches("set", "PlacementVerified True AsExpected\nPlacementRolledOut False Progressing\nManifestworkApplied False NotAsExpected\n"+
		"p: 1 (3 / 3 clusters applied): total 3 applied 0 available 0 progressing 0 degraded 0\n"+
		"total 3 applied 0 available 0 progressing 0 degraded 0")
	w.answer("set", w.clusters)
	complete := "PlacementVerified True AsExpected\nPlacementRolledOut True Complete\nManifestworkApplied True AsExpected\n" +
		"p: 1 (3 / 3 clusters applied): total 3 applied 3 available 3 progressing 0 degraded 0\n" +
		"total 3 applied 3 available 3 progressing 0 degraded 0"
	w.reaches("set", complete)
	w.tells(r, "Normal RolledOut All 3 works are rolled out")
	w.settle(r, "set")
	w.shows(r, "workwire_hub_replicaset_clusters", map[string]int{"succeeded": 3})
	w.shows(r, "workwire_hub_replicaset_sets", map[string]int{"complete": 1})
	if requests := w.settle(r, "set"); len(requests) > 0 {
		t.Errorf("a pass without a change wrote %q", requests)
	}

	// What the placement says to have chosen is believed, also before its decisions say so.
	chosen, decisions := placementOf("p", w.clusters[:3])
	chosen.Status.NumberOfSelectedClusters++
	w.store(chosen, decisions)
	w.reaches("set", strings.NewReplacer("True Complete", "False Progressing", "/ 3", "/ 4").Replace(complete))
	w.place("p", w.clusters[:3])
	w.reaches("set", complete)

	// The template.
	before := w.works("set")
	w.update("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.ManifestWorkTemplate = template("3") })
	w.expect("set", "3", "c01 c02 c03")
	w.answer("set", w.clusters)
	w.reaches("set", complete)
	for i, work := range w.works("set") {
		if work.UID != before[i].UID || work.Generation != 2 || work.Annotations[workv1alpha1.RolledOutAtAnnotationKey] == "" {
			t.Errorf("%s was not updated but %+v", work.Name, work.ObjectMeta)
		}
		if work.Labels["team"] != "till" || work.Labels[workv1.PlacementNameLabelKey] != "p" {
			t.Errorf("labels of %s: %v", work.Name, work.Labels)
		}
	}
	w.settle(r, "set")

	// Labels only: one request for each work, and no new generation.
	w.update("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Labels = map[string]string{"stage": "prod"} })
	w.eventually("the labels are new", func() error {
		for _, work := range w.works("set") {
			if _, old := work.Labels["team"]; old || work.Labels["stage"] != "prod" || work.Generation != 2 {
				return fmt.Errorf("%s: %v, generation %d", work.Name, work.Labels, work.Generation)
			}
		}
		return nil
	})
	if got, want := w.settle(r, "set"), slices.Repeat([]string{"patch manifestworks"}, 3); !slices.Equal(got, want) {
		t.Errorf("for new labels it wrote %q", got)
	}

	// Clusters come and go.
	w.place("p", w.clusters[1:])
	w.expect("set", "3", "c02 c03 c04")

	// A work that somebody changed, and one that somebody deleted.
	w.answer("set", w.clusters)
	changed := w.works("set")[0]
	changed.Spec = template("mine")
	if _, err := w.client.WorkV1().ManifestWorks(changed.Namespace).Update(t.Context(), w.latest(changed, template("mine")), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.client.WorkV1().ManifestWorks(w.clusters[2]).Delete(t.Context(), w.works("set")[1].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expect("set", "3", "c02 c03 c04")

	// Another placement takes the place of the first.
	w.place("q", w.clusters[:1])
	w.update("set", func(set *workv1alpha1.ManifestWorkReplicaSet) { set.Spec.PlacementRefs[0].Name = "q" })
	w.expect("set", "3", "c01")

	// No cluster at all.
	w.place("q")
	w.expect("set", "3", "")
	w.reaches("set", "PlacementVerified False PlacementDecisionEmpty\nPlacementRolledOut True Complete\nManifestworkApplied False PlacementDecisionEmpty\n"+
		"q: 0 (0 / 0 clusters applied): total 0 applied 0 available 0 progressing 0 degraded 0\n"+
		"total 0 applied 0 available 0 progressing 0 degraded 0")
}

// latest is the work as it is on the API server, with another spec.
func (w *world) latest(work *workv1.ManifestWork, spec workv1.ManifestWorkSpec) *workv1.ManifestWork {
	w.t.Helper()
	work, err := w.client.WorkV1().ManifestWorks(work.Namespace).Get(w.t.Context(), work.Name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	work.Spec = spec
	return work
}

// TestProgressive: no more clusters than may are on their way, those that have
// succeeded for long enough make room, and failures stop it and are named.
func TestProgressive(t *testing.T) {
	w := newWorld(t, 6)
	r := w.start()
	w.place("p", w.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(2, 1)
	set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.MinSuccessTime = metav1.Duration{Duration: 5 * time.Minute}
	w.create(set)
	w.expect("set", "2", "c01 c02")
	w.answer("set", w.clusters[:1])
	w.settle(r, "set")
	w.expect("set", "2", "c01 c02") // c01 has not succeeded for long enough
	w.pass(5 * time.Minute)
	r.look(w, "set")
	w.expect("set", "2", "c01 c02 c03")
	w.answer("set", w.clusters[1:3], "Progressing=True", "Degraded=True")
	w.reaches("set", "PlacementVerified True AsExpected\n"+
		"PlacementRolledOut False Progressing stopped: 2 clusters failed or timed out, more than allowed: c02, c03\n"+
		"ManifestworkApplied False NotAsExpected\n"+
		"p: 1 (3 / 6 clusters applied): total 3 applied 3 available 3 progressing 2 degraded 2\n"+
		"total 3 applied 3 available 3 progressing 2 degraded 2")
	w.tells(r, "Warning RolloutStopped Rollout stopped: 2 clusters failed or timed out, more than allowed: c02, c03")
	w.shows(r, "workwire_hub_replicaset_sets", map[string]int{"stopped": 1})
	w.shows(r, "workwire_hub_replicaset_clusters", map[string]int{"succeeded": 1, "failed": 2, "waiting": 3})

	// They recover: it goes on to the end.
	w.answer("set", w.clusters[1:3], "Progressing=False")
	w.pass(5 * time.Minute)
	r.look(w, "set")
	w.expect("set", "2", "c01 c02 c03 c04 c05")
	w.answer("set", w.clusters[3:])
	w.pass(5 * time.Minute)
	r.look(w, "set")
	w.expect("set", "2", "c01 c02 c03 c04 c05 c06")
	w.answer("set", w.clusters[5:])
	w.reaches("set", "PlacementVerified True AsExpected\nPlacementRolledOut True Complete\nManifestworkApplied True AsExpected\n"+
		"p: 1 (6 / 6 clusters applied): total 6 applied 6 available 6 progressing 0 degraded 0\n"+
		"total 6 applied 6 available 6 progressing 0 degraded 0")

	// A new template goes the same way, and counts from the start.
	w.update("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.ManifestWorkTemplate = template("3")
		set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.ProgressDeadline = "10m"
	})
	w.expect("set", "3", "c01 c02")
	w.settle(r, "set")
	w.expect("set", "2", "c03 c04 c05 c06")

	// Clusters that do not answer are given up in the end; c01 and c02 have.
	w.pass(10 * time.Minute)
	r.look(w, "set")
	w.reaches("set", "PlacementVerified True AsExpected\n"+
		"PlacementRolledOut False Progressing stopped: 2 clusters failed or timed out, more than allowed: c01, c02\n"+
		"ManifestworkApplied True AsExpected\n"+ // by the conditions of the old template, which are all there are
		"p: 1 (2 / 6 clusters applied): total 2 applied 2 available 2 progressing 0 degraded 0\n"+
		"total 2 applied 2 available 2 progressing 0 degraded 0")
	w.shows(r, "workwire_hub_replicaset_clusters", map[string]int{"timed_out": 2, "waiting": 4})
}

// TestTimeComes: a rollout goes on when its time has come, without any change.
func TestTimeComes(t *testing.T) {
	w := newWorld(t, 2)
	w.start()
	w.place("p", w.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
	set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.MinSuccessTime = metav1.Duration{Duration: time.Second}
	w.create(set)
	w.expect("set", "2", "c01")
	w.answer("set", w.clusters)
	w.reaches("set", "PlacementVerified True AsExpected\nPlacementRolledOut False Progressing\nManifestworkApplied True AsExpected\n"+
		"p: 1 (1 / 2 clusters applied): total 1 applied 1 available 1 progressing 0 degraded 0\n"+
		"total 1 applied 1 available 1 progressing 0 degraded 0")
	w.pass(time.Second) // the controller is waiting for that second of its own
	w.expect("set", "2", "c01 c02")
}

// TestPerGroup: a decision group after the other.
func TestPerGroup(t *testing.T) {
	w := newWorld(t, 6)
	r := w.start()
	w.place("p", w.clusters[4:], w.clusters[2:4], w.clusters[:2])
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = clusterv1alpha1.RolloutStrategy{RolloutType: clusterv1alpha1.ProgressivePerGroup}
	w.create(set)
	w.expect("set", "2", "c05 c06")
	w.answer("set", w.clusters[:5])
	w.settle(r, "set")
	w.expect("set", "2", "c05 c06")
	w.answer("set", w.clusters[5:])
	w.expect("set", "2", "c03 c04 c05 c06")
	w.tells(r, "Normal GroupRolledOut 1 of 3 decision groups of placement p are rolled out")
	w.answer("set", w.clusters[2:3], "Progressing=True", "Degraded=True")
	w.answer("set", w.clusters[3:4])
	w.reaches("set", "PlacementVerified True AsExpected\n"+
		"PlacementRolledOut False Progressing stopped: 1 cluster failed or timed out, more than allowed: c03\n"+
		"ManifestworkApplied False NotAsExpected\n"+
		"p: 3 (4 / 6 clusters applied): total 4 applied 4 available 4 progressing 1 degraded 1\n"+
		"total 4 applied 4 available 4 progressing 1 degraded 1")
	w.answer("set", w.clusters[2:3])
	w.expect("set", "2", "c01 c02 c03 c04 c05 c06")
	w.answer("set", w.clusters[:2])
	w.tells(r, "Normal RolledOut All 6 works are rolled out")
}

// TestRestart: a controller that takes over in the middle of a rollout goes on
// with it, and makes no second works.
func TestRestart(t *testing.T) {
	w := newWorld(t, 4)
	w.place("p", w.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(2, 0)
	r := w.start()
	w.create(set)
	w.expect("set", "2", "c01 c02")
	r.stop()
	before := w.works("set")
	w.answer("set", w.clusters[:1])
	r = w.start()
	w.expect("set", "2", "c01 c02 c03")
	w.settle(r, "set")
	after := w.works("set")
	if len(after) != 3 || after[0].UID != before[0].UID || after[1].UID != before[1].UID {
		t.Errorf("the works are others")
	}
	r.stop()
	r = w.start()
	if requests := w.settle(r, "set"); len(requests) > 0 {
		t.Errorf("a restart wrote %q", requests)
	}
	// Works that bear other names are used as they are, and a second one goes.
	r.stop()
	foreign := w.works("set")[2]
	if err := w.client.WorkV1().ManifestWorks(foreign.Namespace).Delete(t.Context(), foreign.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"set-x7k2p", "set-zzzzz"} {
		twin := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: foreign.Namespace, Name: name, Labels: foreign.Labels}, Spec: foreign.Spec}
		if _, err := w.client.WorkV1().ManifestWorks(foreign.Namespace).Create(t.Context(), twin, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	w.eventually("one work is left", func() error {
		if works := w.works("set"); len(works) != 3 || works[2].Name != "set-x7k2p" {
			return fmt.Errorf("%d works, the third is %s", len(works), works[len(works)-1].Name)
		}
		return nil
	})
}

// TestDeletion: Background lets the set go at once, Foreground when its works are
// gone; none is left in either case.
func TestDeletion(t *testing.T) {
	for _, policy := range []workv1alpha1.CascadeDeletionPolicy{workv1alpha1.Background, workv1alpha1.Foreground} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t, 3)
			r := w.start()
			w.place("p", w.clusters)
			set := newSet("p")
			set.Spec.CascadeDeletionPolicy = policy
			w.create(set)
			w.expect("set", "2", "c01 c02 c03")
			held := w.works("set")
			for _, work := range held {
				work.Finalizers = []string{workv1.ManifestWorkFinalizer} // as of publish
				if _, err := w.client.WorkV1().ManifestWorks(work.Namespace).Update(t.Context(), work, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			client := w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace)
			if err := client.Delete(t.Context(), "set", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.eventually("the works are being deleted", func() error {
				for _, work := range w.works("set") {
					if work.DeletionTimestamp == nil {
						return fmt.Errorf("%s is not", work.Namespace)
					}
				}
				return nil
			})
			gone := func() error {
				if _, err := w.set("set"); !apierrors.IsNotFound(err) {
					return fmt.Errorf("the set is there (%w)", cmp.Or(err, errors.New("no error")))
				}
				return nil
			}
			if policy == workv1alpha1.Background {
				w.eventually("the set is gone", gone)
			}
			for i, work := range held {
				if policy == workv1alpha1.Foreground {
					if set, err := w.set("set"); err != nil || set.DeletionTimestamp == nil {
						t.Errorf("with %d works left: %v", len(held)-i, err)
					}
				}
				if _, err := w.client.WorkV1().ManifestWorks(work.Namespace).Patch(t.Context(), work.Name, types.MergePatchType,
					[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			w.eventually("the set is gone", gone)
			if left := w.works("set"); len(left) > 0 {
				t.Errorf("%d works are left", len(left))
			}
			r.mu.Lock()
			if r.lists != 1 {
				t.Errorf("works were listed %d times, want once, in the end", r.lists)
			}
			r.mu.Unlock()
			w.eventually("nothing is remembered", func() error {
				r.Controller.mu.Lock()
				defer r.Controller.mu.Unlock()
				if n := len(r.memories) + len(r.begun); n > 0 {
					return fmt.Errorf("%d things are", n)
				}
				return nil
			})
			w.shows(r, "workwire_hub_replicaset_sets", nil)
		})
	}
}

// TestFaults: what a person has to mend is in the status and an event, and goes
// when it is mended.
func TestFaults(t *testing.T) {
	w := newWorld(t, 2)
	r := w.start()

	long := newSet("p")
	long.Name = strings.Repeat("x", 63-len(w.namespace))
	w.create(long)
	w.eventually("the name is refused", func() error {
		set, err := w.set(long.Name)
		if err != nil {
			return err
		}
		if got := conditionTexts(set.Status.Conditions); len(got) != 1 ||
			!strings.HasPrefix(got[0], `ManifestworkApplied False InvalidManifestWorkName <namespace>.<name> of the set is "`+w.namespace+"."+long.Name) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	w.tells(r, "Warning InvalidManifestWorkName <namespace>.<name> of the set is ")
	if err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace).Delete(t.Context(), long.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("it can be deleted", func() error {
		if _, err := w.set(long.Name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%w)", cmp.Or(err, errors.New("no error")))
		}
		return nil
	})

	// A placement is missing.
	w.create(newSet("p"))
	const none = "total 0 applied 0 available 0 progressing 0 degraded 0"
	w.reaches("set", "PlacementVerified False PlacementDecisionNotFound\n"+none)
	w.tells(r, "Warning PlacementDecisionNotFound Placement p does not exist in namespace ")
	w.place("p", append(slices.Clone(w.clusters), "nowhere"))
	w.expect("set", "2", "c01 c02")

	// A chosen cluster has no namespace; the others have their works.
	w.tells(r, "Warning WriteFailed Works of 1 clusters can not be written (nowhere): create ManifestWork nowhere/set-")
	w.reaches("set", "PlacementVerified True AsExpected\nPlacementRolledOut False Progressing\nManifestworkApplied False NotAsExpected\n"+
		"p: 1 (2 / 3 clusters applied): total 2 applied 0 available 0 progressing 0 degraded 0\n"+
		"total 2 applied 0 available 0 progressing 0 degraded 0")
	w.settle(r, "set") // it is not tried all the time
	w.pass(retryAfter)
	r.look(w, "set")
	w.eventually("it is tried again", func() error {
		if requests := r.writes(); !slices.Equal(requests, []string{"create manifestworks"}) {
			return fmt.Errorf("%q", requests)
		}
		return nil
	})
	w.place("p", w.clusters)
	w.answer("set", w.clusters)
	w.tells(r, "Normal RolledOut All 2 works are rolled out")

	// A decision group that does not exist.
	w.update("set", func(set *workv1alpha1.ManifestWorkReplicaSet) {
		set.Spec.ManifestWorkTemplate = template("3")
		set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
		set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.MandatoryDecisionGroups.MandatoryDecisionGroups =
			[]clusterv1alpha1.MandatoryDecisionGroup{{GroupName: "canary"}}
	})
	fault := `placement p: it has no decision group "canary", which the rollout strategy says must come first`
	w.reaches("set", "PlacementVerified False NotAsExpected "+fault+"\nPlacementRolledOut False Progressing\nManifestworkApplied False NotAsExpected\n"+
		"p: 1 (0 / 2 clusters applied): "+none+"\n"+none)
	w.tells(r, "Warning NotAsExpected "+fault)
	w.shows(r, "workwire_hub_replicaset_sets", map[string]int{"faulty": 1})
}

// TestAway: a cluster that is away does not hold up the others, and gets its
// work; one that is not accepted does not.
func TestAway(t *testing.T) {
	w := newWorld(t, 4)
	clusters := w.client.ClusterV1().ManagedClusters()
	for i, name := range w.clusters {
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: i != 3}}
		cluster, err := clusters.Create(t.Context(), cluster, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = clusters.Delete(context.Background(), name, metav1.DeleteOptions{}) })
		w.appear(cluster, i != 0)
	}
	r := w.start()
	w.place("p", w.clusters)
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(1, 0)
	w.create(set)
	w.expect("set", "2", "c01 c02") // c01 is away: it takes no place of the others
	w.answer("set", w.clusters[1:2])
	w.expect("set", "2", "c01 c02 c03")
	w.answer("set", w.clusters[2:3])
	w.shows(r, "workwire_hub_replicaset_clusters", map[string]int{"progressing": 1, "succeeded": 2, "away": 1})
	w.settle(r, "set")
	w.expect("set", "2", "c01 c02 c03")
	back, err := clusters.Get(t.Context(), w.clusters[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.appear(back, true)
	w.eventually("it is seen to be back", func() error {
		if got := gauge(t, r.registry, "workwire_hub_replicaset_clusters"); got["away"] != 0 {
			return fmt.Errorf("clusters: %v", got)
		}
		return nil
	})
	accepted, err := clusters.Get(t.Context(), w.clusters[3], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	accepted.Spec.HubAcceptsClient = true
	if _, err := clusters.Update(t.Context(), accepted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.answer("set", w.clusters[:1])
	w.expect("set", "2", "c01 c02 c03 c04")
}

// appear makes a cluster available or not.
func (w *world) appear(cluster *clusterv1.ManagedCluster, available bool) {
	w.t.Helper()
	cluster.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[available],
		Reason: "Test", LastTransitionTime: metav1.NewTime(w.time()),
	}}
	if _, err := w.client.ClusterV1().ManagedClusters().UpdateStatus(w.t.Context(), cluster, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// TestWriteOne: what the API server answers when the cache was behind is told
// from what a person has to know of.
func TestWriteOne(t *testing.T) {
	w := newWorld(t, 1)
	client := w.client
	logger := slog.New(slog.DiscardHandler)
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: logger})
	cache, err := works.New(works.Config{Informers: informers})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Works: cache, Client: client, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	set := newSet("p")
	set.Namespace = w.namespace
	step := func(name string, change change, want string, wantErr bool) *workv1.ManifestWork {
		t.Helper()
		got := c.writeOne(t.Context(), change)
		if got.result != want || (got.err != nil) != wantErr {
			t.Errorf("%s: %s (%v), want %s", name, got.result, got.err, want)
		}
		return got.work
	}
	wanted := newWork(set, "p", w.clusters[0], start)
	made := step("create", change{action: create, work: wanted}, "ok", false)
	step("create again", change{action: create, work: wanted}, "outdated", true)
	step("create nowhere", change{action: create, work: newWork(set, "p", "nowhere", start)}, "failed", true)

	set.Labels = map[string]string{"a": "1"}
	labelled, ok := labelOf(made, set, "p")
	if !ok {
		t.Fatal("no labels are to be written")
	}
	made = step("label", labelled, "ok", false)
	set.Labels = nil
	unlabelled, _ := labelOf(made, set, "p")
	step("take the label away", unlabelled, "ok", false)
	step("take it away again", unlabelled, "outdated", true)
	set.Labels = map[string]string{"a": strings.Repeat("x", 64)}
	refused, _ := labelOf(made, set, "p")
	step("a label that is none", refused, "failed", true)

	other := made.DeepCopy()
	other.UID = "another"
	set.Labels = nil
	step("update another work of that name", updateOf(other, set, "p", start), "outdated", true)
	step("delete another work of that name", change{action: remove, work: other}, "gone", false)
	step("delete", change{action: remove, work: made}, "ok", false)
	step("delete again", change{action: remove, work: made}, "gone", false)
	step("update what is gone", updateOf(made, set, "p", start), "outdated", true)
}

// TestFinishLooksTwice: a set is not let go while the API server has works of it
// that the cache does not show.
func TestFinishLooksTwice(t *testing.T) {
	w := newWorld(t, 1)
	logger := slog.New(slog.DiscardHandler)
	informers := controller.NewInformers(controller.InformersConfig{Client: w.client, Logger: logger})
	cache, err := works.New(works.Config{Informers: informers}) // never runs: it is behind
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Works: cache, Client: w.client, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	defer c.queue.ShutDown()
	client := w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace)
	for _, policy := range []workv1alpha1.CascadeDeletionPolicy{workv1alpha1.Background, workv1alpha1.Foreground} {
		set := newSet("p")
		set.Name = strings.ToLower(string(policy))
		set.Spec.CascadeDeletionPolicy, set.Finalizers = policy, []string{"example.com/other", workv1alpha1.ManifestWorkReplicaSetFinalizer}
		w.create(set)
		work := newWork(set, "p", w.clusters[0], start)
		work.Finalizers = []string{workv1.ManifestWorkFinalizer}
		if _, err := w.client.WorkV1().ManifestWorks(w.clusters[0]).Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.Delete(t.Context(), set.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		finish := func() (left []string, err error) {
			t.Helper()
			current, err := w.set(set.Name)
			if err != nil {
				t.Fatal(err)
			}
			err = c.finish(t.Context(), current, newMemory(), start)
			if current, getErr := w.set(set.Name); getErr == nil {
				left = current.Finalizers
			}
			return left, err
		}
		if left, err := finish(); err != nil || len(left) != 2 || w.works(set.Name)[0].DeletionTimestamp == nil {
			t.Errorf("%s, a work the cache does not show: finalizers %v, %v", policy, left, err)
		}
		left, err := finish()
		if policy == workv1alpha1.Background && (err != nil || !slices.Equal(left, []string{"example.com/other"})) {
			t.Errorf("%s, all works are being deleted: finalizers %v, %v", policy, left, err)
		}
		if policy == workv1alpha1.Foreground && (err == nil || len(left) != 2) {
			t.Errorf("%s, works are left: finalizers %v, %v", policy, left, err)
		}
	}
}

func TestReadyTellsWhatToDo(t *testing.T) {
	resource := workv1.Resource("placements")
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierrors.NewNotFound(resource, ""), "the hub's API serves no placements: apply deploy/crds"},
		{apierrors.NewForbidden(resource, "", errors.New("no")), "may not read placements: grant get, list and watch"},
		{errors.New("connection refused"), "list and watch placements: connection refused"},
		{apierrors.NewResourceExpired("too old"), "have not been read yet"},
	} {
		s, err := newSource(versioned.NewForConfigOrDie(plane.REST()), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		s.failed("placements", c.err)
		if err := s.ready(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("after %v: %v, want %q", c.err, err, c.want)
		}
	}
}

package workstate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate"
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// workFrom returns a work of generation 3 with conditions "Applied=True@3:Reason:minute": status,
// generation, reason and minute of the transition.
func workFrom(t *testing.T, conditions string) *workv1.ManifestWork {
	t.Helper()
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "web", Generation: 3, CreationTimestamp: metav1.NewTime(epoch)}}
	for _, field := range strings.Fields(conditions) {
		kind, rest, _ := strings.Cut(field, "=")
		status, rest, _ := strings.Cut(rest, "@")
		parts := strings.Split(rest, ":")
		minute, err := time.ParseDuration(parts[2] + "m")
		if err != nil {
			t.Fatal(err)
		}
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionStatus(status), ObservedGeneration: int64(parts[0][0] - '0'), Reason: parts[1], Message: "message of " + kind,
			LastTransitionTime: metav1.NewTime(epoch.Add(minute)),
		})
	}
	return w
}

func paused(w *workv1.ManifestWork) {
	w.Annotations = map[string]string{workv1.PausedAnnotationKey: workv1.PausedValue}
}

func deleting(w *workv1.ManifestWork) { w.DeletionTimestamp = &metav1.Time{Time: epoch.Add(time.Hour)} }

// warns has the API server warn of the first manifest.
func warns(w *workv1.ManifestWork) {
	w.Status.Conditions[0].Message = "Apply manifest work complete; warnings: deprecated"
}

func TestOf(t *testing.T) {
	const fine = "Applied=True@3:R:1 Available=True@3:R:2 "
	pausedCluster := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	pausedCluster.Annotations = map[string]string{workv1.PausedAnnotationKey: workv1.PausedValue}
	for _, c := range []struct {
		name, conditions string
		change           func(*workv1.ManifestWork)
		cluster          *clusterv1.ManagedCluster
		phase            workstate.Phase
		since            int // minutes after the creation; -1: not known
		cause            workstate.Cause
		why              string
	}{
		{"new", "", nil, nil, workstate.PhasePending, 0, workstate.NotAnswered, "has not answered yet"},
		{"answered for an older generation", "Applied=True@2:R:1 Available=True@2:R:1", nil, nil, workstate.PhasePending, -1, workstate.NotAnswered, "for generation 2, not yet for 3"},
		{"only Available is newer", "Applied=True@2:R:1 Available=True@3:R:1", nil, nil, workstate.PhasePending, -1, workstate.NotAnswered, ""},
		{"waits for a wave", "Applied=Unknown@3:WaitsForWave:1 Available=False@3:R:2 Progressing=False@3:R:2", nil, nil, workstate.PhaseProgressing, 1, workstate.WaitsForWave, "message of Applied"},
		{"waits for a hook", "Applied=Unknown@3:WaitsForHook:1 Available=True@3:R:2 Complete=True@3:R:2", nil, nil, workstate.PhaseProgressing, 1, workstate.WaitsForHook, "message of Applied"},
		{"waits for what has failed", "Applied=Unknown@3:WaitsForWave:1 Available=False@3:R:2 Progressing=True@3:R:2 Degraded=True@3:R:3", nil, nil, workstate.PhaseFailed, 3, workstate.Failed, "message of Degraded"},
		{"waits for a work", "Applied=Unknown@3:WaitsForWork:1 Available=False@3:R:2 Progressing=True@3:R:2", nil, nil, workstate.PhaseProgressing, 1, workstate.WaitsForWork, "message of Applied"},
		{"depends on itself", "Applied=False@3:DependencyCycle:1 Available=False@3:R:2 Progressing=True@3:R:2", nil, nil, workstate.PhaseFailed, 1, workstate.DependencyCycle, "message of Applied"},
		{"depends on what is no name", "Applied=False@3:InvalidDependsOn:1 Available=False@3:R:2", nil, nil, workstate.PhaseFailed, 1, workstate.InvalidDependsOn, "message of Applied"},
		{"a hook has failed", "Applied=False@3:HookFailed:1 Available=False@3:R:2", nil, nil, workstate.PhaseFailed, 1, workstate.HookFailed, "message of Applied"},
		{"published", "Delivered=Unknown@3:Published:4", nil, nil, workstate.PhasePending, 4, workstate.NotAnswered, "message of Delivered"},
		{"the hub says that there is no answer", fine + "Delivered=Unknown@3:Published:4", nil, nil, workstate.PhasePending, 4, workstate.NotAnswered, ""},
		{"away", "Delivered=False@3:ClusterAway:4", nil, nil, workstate.PhasePending, 4, workstate.AgentOff, "message of Delivered"},
		{"not accepted", "Delivered=False@3:ClusterNotAccepted:4", nil, nil, workstate.PhasePending, 4, workstate.ClusterNotAccepted, ""},
		{"nobody listens", "Delivered=False@3:NobodyListens:4", nil, nil, workstate.PhaseFailed, 4, workstate.NobodyListens, ""},
		{"no key to seal", "Delivered=False@3:NoSealKey:4", nil, nil, workstate.PhaseFailed, 4, workstate.Unsealed, ""},
		{"no key to seal, of a hub that says nothing of Delivered", "Applied=False@3:NoSealKey:4", nil, nil, workstate.PhaseFailed, 4, workstate.Unsealed, "message of Applied"},
		{"too large, of a hub that says nothing of Delivered", "Applied=False@3:TooLarge:4", nil, nil, workstate.PhaseFailed, 4, workstate.TooLarge, "message of Applied"},
		{"a cause of an older generation", "Delivered=False@2:TooLarge:4", nil, nil, workstate.PhasePending, 0, workstate.NotAnswered, ""},
		{"paused", "", paused, nil, workstate.PhasePaused, -1, workstate.Paused, "is paused"},
		{"paused, and away", "Delivered=False@3:ClusterAway:4", paused, nil, workstate.PhasePaused, -1, workstate.Paused, "is paused"},
		{"paused with its cluster", "", nil, pausedCluster, workstate.PhasePaused, -1, workstate.ClusterPaused, "is paused"},
		{"paused, by the hub's word", "Delivered=False@3:Paused:4", nil, nil, workstate.PhasePaused, 4, workstate.Paused, ""},
		{"paused, and up to date", fine, paused, pausedCluster, workstate.PhaseApplied, 2, "", "not watched"},
		{"answered without a word of the objects", "Applied=True@2:R:1 Delivered=True@3:Answered:4", nil, nil, workstate.PhaseProgressing, -1, "", "has not reported yet"},
		{"not applied", "Applied=False@3:R:1 Available=True@3:R:2", nil, nil, workstate.PhaseFailed, 1, workstate.NotApplied, "message of Applied"},
		{"not known whether applied", "Applied=Unknown@3:R:1 Available=True@3:R:2", nil, nil, workstate.PhaseProgressing, 1, "", ""},
		{"applied only", "Applied=True@3:R:1", nil, nil, workstate.PhaseProgressing, 1, "", "has not reported yet"},
		{"applied only, with warnings", "Applied=True@3:R:1", warns, nil, workstate.PhaseProgressing, 1, "", "has not reported yet"},
		{"applied, and not available", "Applied=True@3:R:1 Available=False@3:R:2", nil, nil, workstate.PhaseProgressing, 2, workstate.NotReady, "message of Available"},
		{"applied, and nobody watches more", fine, nil, nil, workstate.PhaseApplied, 2, "", "readiness not watched"},
		{"ready by a rule for Degraded", fine + "Degraded=False@3:R:5", nil, nil, workstate.PhaseReady, 2, "", ""},
		{"ready by a rule", fine + "Progressing=False@3:R:5", nil, nil, workstate.PhaseReady, 5, "", ""},
		{"progressing", fine + "Progressing=True@3:R:5", nil, nil, workstate.PhaseProgressing, 5, workstate.NotReady, "message of Progressing"},
		{"not known whether progressing", fine + "Progressing=Unknown@3:R:5", nil, nil, workstate.PhaseProgressing, 5, workstate.NotReady, ""},
		{"progressing before", fine + "Progressing=True@2:R:0", nil, nil, workstate.PhaseProgressing, 1, "", ""},
		{"degraded", fine + "Progressing=True@3:R:5 Degraded=True@3:R:6", nil, nil, workstate.PhaseFailed, 6, workstate.Failed, "message of Degraded"},
		{"degraded before", fine + "Degraded=True@2:R:0", nil, nil, workstate.PhaseProgressing, 1, "", ""},
		{"degraded, and done", fine + "Progressing=False@3:R:5 Degraded=True@3:R:6", nil, nil, workstate.PhaseFailed, 6, workstate.Failed, ""},
		{"complete", "Applied=True@3:R:1 Complete=True@3:R:7", nil, nil, workstate.PhaseReady, 7, "", ""},
		{"complete, and its objects are gone", "Applied=True@3:R:1 Available=False@3:R:2 Complete=True@3:R:7", nil, nil, workstate.PhaseReady, 7, "", ""},
		{"complete before", fine + "Complete=True@2:R:0", nil, nil, workstate.PhaseApplied, 2, "", ""},
		{"complete, and degraded", fine + "Complete=True@3:R:7 Degraded=True@3:R:6", nil, nil, workstate.PhaseFailed, 6, workstate.Failed, ""},
		{"applied, with warnings", fine, warns, nil, workstate.PhaseWarned, 2, workstate.Warning, "deprecated"},
		{"ready, with warnings", fine + "Progressing=False@3:R:3", warns, nil, workstate.PhaseWarned, 3, workstate.Warning, "deprecated"},
		{"failed, with warnings", fine + "Progressing=False@3:R:3 Degraded=True@3:R:3", warns, nil, workstate.PhaseFailed, 3, workstate.Failed, ""},
		{"a deletion that is not answered", fine, deleting, nil, workstate.PhaseDeleting, 60, workstate.NotAnswered, "has not answered"},
		{"deleting", fine + "Deleting=True@3:R:6", deleting, nil, workstate.PhaseDeleting, 60, "", "message of Deleting"},
		{"a deletion is not paused", fine, func(w *workv1.ManifestWork) { paused(w); deleting(w) }, nil, workstate.PhaseDeleting, 60, workstate.NotAnswered, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := workFrom(t, c.conditions)
			if c.change != nil {
				c.change(w)
			}
			s := workstate.Of(w, c.cluster)
			since := epoch.Add(time.Duration(c.since) * time.Minute)
			if c.since < 0 {
				since = time.Time{}
			}
			if s.Phase != c.phase || !s.Since.Equal(since) || !strings.Contains(s.Why(), c.why) || (s.Why() == "") != (s.Phase == workstate.PhaseReady) {
				t.Errorf("%s since %s, %q; want %s since %s, %q", s.Phase, s.Since, s.Why(), c.phase, since, c.why)
			}
			if b := s.Blocker; (b != nil) != (c.cause != "") || b != nil && (b.Cause != c.cause || b.Do == "") {
				t.Errorf("blocker %+v, want %s", b, c.cause)
			}
			if c.cluster == nil && workstate.PhaseOf(w) != s.Phase {
				t.Errorf("by itself %s", workstate.PhaseOf(w))
			}
		})
	}
}

// TestWhyNamesTheObject: what manifests report is the cause, with the number of others that report one.
func TestWhyNamesTheObject(t *testing.T) {
	w := workFrom(t, "Applied=False@3:R:1 Available=True@3:R:2")
	for _, name := range []string{"a", "b"} {
		w.Status.ResourceStatus.Manifests = append(w.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{Kind: "ConfigMap", Namespace: "shop", Name: name},
			Conditions:   []metav1.Condition{{Type: workv1.ManifestApplied, Status: metav1.ConditionFalse, Message: "refused"}},
		})
	}
	if s := workstate.Of(w, nil); s.Why() != "ConfigMap shop/a: refused (and 1 more)" {
		t.Errorf("why %q", s.Why())
	}
}

// TestEachErrorOnce: of manifests that fail in different ways each way is named, and of those that fail alike the number.
func TestEachErrorOnce(t *testing.T) {
	w := workFrom(t, "Applied=False@3:R:1 Available=True@3:R:2")
	for name, message := range map[string]string{
		"a": `configmaps "a" is forbidden`, "b": `configmaps "b" is forbidden`, "c": `configmaps "c" is invalid: data`, "d": `configmaps "d" is invalid: name`,
	} {
		w.Status.ResourceStatus.Manifests = append(w.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{Kind: "ConfigMap", Namespace: "shop", Name: name},
			Conditions:   []metav1.Condition{{Type: workv1.ManifestApplied, Status: metav1.ConditionFalse, Message: message}},
		})
	}
	slices.SortFunc(w.Status.ResourceStatus.Manifests, func(a, b workv1.ManifestCondition) int {
		return strings.Compare(a.ResourceMeta.Name, b.ResourceMeta.Name)
	})
	s := workstate.Of(w, nil)
	got := fmt.Sprint(s.Blocker.Object, " ", s.Blocker.Cause, " ", s.Blocker.More)
	for _, other := range s.Blocker.Others {
		got += fmt.Sprint(", ", other.Object, " ", other.Cause, " ", other.More)
	}
	if want := "ConfigMap shop/a Forbidden 1, ConfigMap shop/c InvalidManifest 0, ConfigMap shop/d InvalidManifest 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if want := `ConfigMap shop/a: configmaps "a" is forbidden (and 3 more)`; s.Why() != want {
		t.Errorf("why %q", s.Why())
	}
}

func TestObserved(t *testing.T) {
	for conditions, want := range map[string]int64{
		"": 0, "Applied=True@2:R:1 Available=True@2:R:1": 2, "Applied=True@2:R:1 SpecUntrusted=True@3:R:1": 3,
		"Delivered=False@3:ClusterAway:4": 0, "Applied=False@3:TooLarge:1 Available=True@2:R:1": 2, "Applied=False@3:NoSealKey:1": 0,
	} {
		if got := workstate.Observed(workFrom(t, conditions)); got != want {
			t.Errorf("%s: %d, want %d", conditions, got, want)
		}
	}
}

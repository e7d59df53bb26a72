package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/hub/revisions"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// fixture is a cluster on the API server, without a hub that would write statuses.
type fixture struct {
	*testing.T
	cluster string
	clients versioned.Interface
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Setenv("KUBECONFIG", plane.Kubeconfig)
	f := &fixture{T: t, cluster: plane.Namespace(t, "cluster"), clients: versioned.NewForConfigOrDie(plane.REST())}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: f.cluster}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	cluster, err := f.clients.ClusterV1().ManagedClusters().Create(t.Context(), cluster, metav1.CreateOptions{})
	kit.NoError(t, err)
	cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue,
		Reason: "ManagedClusterAvailable", LastTransitionTime: metav1.Now()}}
	_, err = f.clients.ClusterV1().ManagedClusters().UpdateStatus(t.Context(), cluster, metav1.UpdateOptions{})
	kit.NoError(t, err)
	return f
}

func template() workv1.ManifestWorkSpec {
	return workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`)}}}}}
}

// work creates a work, and answers it as an agent does unless answer is nil.
func (f *fixture) work(name string, answer *condition.Manifest) {
	f.Helper()
	works := f.clients.WorkV1().ManifestWorks(f.cluster)
	_, err := works.Create(f.Context(), &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name},
		Annotations: map[string]string{workv1.ReportReadinessAnnotationKey: "true"}}, Spec: template()}, metav1.CreateOptions{})
	kit.NoError(f, err)
	if answer != nil {
		f.answer(name, *answer)
	}
}

func (f *fixture) answer(name string, m condition.Manifest) {
	f.Helper()
	m.Meta = workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "default", Name: "a"}
	works := f.clients.WorkV1().ManifestWorks(f.cluster)
	work, err := works.Get(f.Context(), name, metav1.GetOptions{})
	kit.NoError(f, err)
	work.Status = condition.WorkStatus(condition.Input{Generation: work.Generation, Manifests: []condition.Manifest{m}, Readiness: true, Now: metav1.Now()})
	_, err = works.UpdateStatus(f.Context(), work, metav1.UpdateOptions{})
	kit.NoError(f, err)
}

// workctl runs a command on the API server and checks its exit code and parts of its output.
func (f *fixture) workctl(code int, args []string, wants ...string) string {
	f.Helper()
	out, err := f.run(args...)
	f.check(out, err, code, args, wants...)
	return out
}

func (f *fixture) run(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := newCommand("workctl", cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(f.Context())
	if err != nil {
		out.WriteString(err.Error())
	}
	return out.String(), err
}

func (f *fixture) check(out string, err error, code int, args []string, wants ...string) {
	f.Helper()
	got := 0
	if err != nil {
		got = 1
		if coded, ok := errors.AsType[*cli.Error](err); ok {
			got = coded.ExitCode()
		}
	}
	if got != code {
		f.Errorf("%q: exit code %d, want %d: %v", args, got, code, err)
	}
	for _, want := range wants {
		if !strings.Contains(out, want) {
			f.Errorf("%q: no %q in\n%s", args, want, out)
		}
	}
}

// interrupted runs a command that somebody ends while it waits.
func (f *fixture) interrupted(args ...string) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	defer time.AfterFunc(time.Second, cancel).Stop()
	out, err := run(ctx, f, args...)
	f.check(out+fmt.Sprint(err), err, 1, args, "interrupted")
}

// TestSee checks what status, get, describe and explain read from a real API server.
func TestSee(t *testing.T) {
	f := newFixture(t)
	f.work("good", &condition.Manifest{})
	f.work("bad", &condition.Manifest{ApplyError: errors.New(`admission webhook "guard" denied the request: no`)})
	f.work("new", nil)
	n := "-n=" + f.cluster
	f.workctl(0, []string{"status", n}, "WORKS     3: 1 ready, 1 pending, 1 failing (of all 2 delivered, 1 applied); oldest pending: "+f.cluster+"/new", "Webhook", "HUB       not known")
	f.workctl(0, []string{"status", "-o=json"}, `"oldestPending": {`, `"cause": "Webhook"`)
	f.workctl(0, []string{"get", "works", n}, "bad", "good", "NotAnswered")
	f.workctl(0, []string{"get", "mw", n, "good", "-o=yaml"}, "kind: ManifestWork", "manifests:")
	f.workctl(0, []string{"get", "works", "-A", "--blocked", "-o=wide"}, "denied the request")
	f.workctl(0, []string{"get", "works", n, "-o=name", "-l=app=good"}, "manifestwork.work.open-cluster-management.io/good\n")
	f.names(n)
	f.workctl(0, []string{"get", "works", n, "-o=jsonpath={range .items[*]}{.metadata.name};{end}"}, "bad;good;new;")
	f.workctl(0, []string{"get", "clusters"}, f.cluster)
	f.workctl(0, []string{"get", "cluster", f.cluster, "-o=json"}, `"hubAcceptsClient": true`)
	f.workctl(0, []string{"get", "sets", n}, "none found in namespace "+f.cluster+"; -A shows all")
	f.workctl(1, []string{"get", "work", "nope", n}, "there is no work nope", "workctl get works")
	f.workctl(2, []string{"get", "pods"}, `"pods" is no kind of this command: name one of work, cluster, set`)
	f.workctl(2, []string{"get", "works", "-o=xml"}, "must be one of table, wide, json, yaml, jsonpath=TEMPLATE, name")
	f.workctl(2, []string{"get", "works", "-o=jsonpath={"}, "parse the template")
	f.workctl(2, []string{"get", "works", "-o=json", "--watch"}, "kubectl get manifestworks --watch -o json")
	f.workctl(2, []string{"get", "works", "-o=name", "--blocked"}, "--blocked chooses lines")
	f.workctl(2, []string{"get", "clusters", "--blocked"}, "--blocked has no effect on clusters")
	f.workctl(2, []string{"get", "works", "--watch", "-l=="}, "--selector")
	f.workctl(0, []string{"explain", "work", "bad", n}, "Webhook: ConfigMap default/a", "What to do:")
	f.workctl(0, []string{"explain", "work/good", n, "-o=json"}, `"state": "Ready"`)
	f.workctl(0, []string{"explain", "work/good", n, "-o=jsonpath={.state}"}, "Ready")
	f.workctl(1, []string{"explain", "work", "nope", n}, "get the work nope", "What to do: see which there are: workctl get works -n "+f.cluster)
	f.workctl(0, []string{"describe", "work", "bad", n}, "Manifests", "ConfigMap default/a", "Conditions", "AppliedManifestWorkFailed")
	f.workctl(0, []string{"describe", "cluster", f.cluster}, "connected True", "Works: 3, 1 pending, 1 failing", "Works that need attention")
	f.workctl(0, []string{cobraComplete, "explain", "work", n, ""}, "bad\ngood\nnew\n")
	f.workctl(0, []string{cobraComplete, "get", ""}, "work\ncluster\nset\n")
}

// names checks that workctl and kubectl take each name that -o name prints.
func (f *fixture) names(namespace string) {
	f.Helper()
	for _, kind := range []string{"works", "clusters"} {
		for name := range strings.Lines(f.workctl(0, []string{"get", kind, namespace, "-o=name"}, "/")) {
			name = strings.TrimSpace(name)
			f.workctl(0, []string{"get", name, namespace, "-o=name"}, name)
			f.workctl(0, []string{"describe", name, namespace}, name[strings.Index(name, "/")+1:])
			f.workctl(0, []string{"pause", name, namespace}, "paused")
			f.workctl(0, []string{"resume", name, namespace}, "resumed")
			out, err := exec.CommandContext(f.Context(), "../../bin/kubectl", "get", name, namespace, "-o=name").CombinedOutput()
			if err != nil || string(out) != name+"\n" {
				f.Errorf("kubectl get %s: %v\n%s", name, err, out)
			}
		}
	}
}

// TestShortNames checks that kubectl knows the short names of docs/workctl.md.
func TestShortNames(t *testing.T) {
	_, resources, err := versioned.NewForConfigOrDie(plane.REST()).Discovery().ServerGroupsAndResources()
	kit.NoError(t, err)
	short := map[string][]string{}
	for _, list := range resources {
		for _, r := range list.APIResources {
			short[r.Name] = append(short[r.Name], r.ShortNames...)
		}
	}
	if !slices.Contains(short["manifestworks"], "mw") || !slices.Contains(short["manifestworkreplicasets"], "mwrs") {
		t.Errorf("short names %v, %v", short["manifestworks"], short["manifestworkreplicasets"])
	}
}

const cobraComplete = "__complete"

// TestSteer checks pause and resume, and that what they write is what the hub reads.
func TestSteer(t *testing.T) {
	f := newFixture(t)
	f.work("web", &condition.Manifest{})
	n := "-n=" + f.cluster
	paused := func() string {
		work, err := f.clients.WorkV1().ManifestWorks(f.cluster).Get(t.Context(), "web", metav1.GetOptions{})
		kit.NoError(t, err)
		return work.Annotations[workv1.PausedAnnotationKey]
	}
	f.workctl(0, []string{"pause", "work", "web", n}, "work web: paused\n")
	f.workctl(0, []string{"pause", "work/web", n}, "work web: paused already\n")
	if paused() != workv1.PausedValue {
		t.Error("the work is not paused")
	}
	f.workctl(0, []string{"resume", "work", "web", n}, "work web: resumed\n")
	if paused() != "" {
		t.Error("the work is paused")
	}
	f.workctl(0, []string{"pause", "cluster", f.cluster}, "paused")
	f.workctl(0, []string{"get", "clusters", f.cluster}, "true     ")
	f.workctl(0, []string{"resume", "cluster", f.cluster}, "resumed")
	f.workctl(2, []string{"pause", "cluster"}, "name at least one cluster")
	f.workctl(1, []string{"pause", "work", "nope", n}, "get the work nope")
}

// TestWait checks that wait follows a work through its states, and what it says when it ends.
func TestWait(t *testing.T) {
	f := newFixture(t)
	n := "-n=" + f.cluster
	args := []string{"wait", "work", "web", n, "--for=ready", "--timeout=0"}
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := f.run(args...)
		done <- result{out, err}
	}()
	f.work("web", &condition.Manifest{ApplyError: errors.New("the server does not allow this method on the requested resource")})
	f.answer("web", condition.Manifest{})
	r := <-done
	f.check(r.out, r.err, 0, args, f.cluster+"/web  Ready")
	f.workctl(0, []string{"wait", "work", "-l=app=web", n, "--for=applied"}, "web  Ready")
	f.work("never", nil)
	f.workctl(3, []string{"wait", "work", "never", n, "--timeout=3s"}, "1 work of "+f.cluster+" is not ready after 3s: never", "NotAnswered")
	f.workctl(0, []string{"wait", "work", "gone", n, "--for=deleted"}, "deleted")
	f.workctl(1, []string{"wait", "work", "-l=app=gone", n, "--for=deleted"}, "no work in namespace")
	f.workctl(2, []string{"wait", "work", n}, "name works, or give --selector")
	f.workctl(2, []string{"wait", "work", "web", n, "--for=green"}, "--for must be ready, applied")
	f.interrupted("wait", "work", "never", n)
}

// TestWaitForRelabeled: a work that does not match the selector any more is waited for, and is not deleted.
func TestWaitForRelabeled(t *testing.T) {
	f := newFixture(t)
	f.work("web", &condition.Manifest{})
	reader, err := fleet.NewReader(plane.REST())
	kit.NoError(t, err)
	goal, err := fleet.ParseGoal("deleted")
	kit.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	works := f.clients.WorkV1().ManifestWorks(f.cluster)
	var lines []string
	left, err := reader.Await(ctx, f.cluster, "app=web", nil, goal, func(_, line string, _ bool) {
		switch lines = append(lines, line); len(lines) {
		case 1:
			_, err := works.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"web2"}}}`), metav1.PatchOptions{})
			kit.NoError(t, err)
			f.answer("web", condition.Manifest{ApplyError: errors.New("no")})
		case 2:
			kit.NoError(t, works.Delete(ctx, "web", metav1.DeleteOptions{}))
		}
	})
	if err != nil || len(left) > 0 || len(lines) != 3 || !strings.HasPrefix(lines[1], "Blocked") || lines[2] != "deleted" {
		t.Errorf("%v, left %q: %q", err, left, lines)
	}
}

// TestRollout checks rollout on a set whose status the test writes, with revisions as the hub stores
// them.
func TestRollout(t *testing.T) {
	f := newFixture(t)
	n := "-n=" + f.cluster
	sets := f.clients.WorkV1alpha1().ManifestWorkReplicaSets(f.cluster)
	store := func(set *workv1alpha1.ManifestWorkReplicaSet, number int64) {
		hash, err := revisions.Hash(&set.Spec.ManifestWorkTemplate)
		kit.NoError(t, err)
		_, err = f.clients.WorkwireV1alpha1().ManifestWorkReplicaSetRevisions(f.cluster).Create(t.Context(), revisions.New(set, hash, number), metav1.CreateOptions{})
		kit.NoError(t, err)
	}
	set, err := sets.Create(t.Context(), &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Spec: workv1alpha1.ManifestWorkReplicaSetSpec{
		ManifestWorkTemplate: template(), PlacementRefs: []workv1alpha1.LocalPlacementReference{{Name: "all"}}}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	store(set, 1)
	set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"default"}}`)
	set, err = sets.Update(t.Context(), set, metav1.UpdateOptions{})
	kit.NoError(t, err)
	store(set, 2)
	status := func(status metav1.ConditionStatus, message string) {
		kit.Eventually(t, "the set's status", func() error {
			set, err := sets.Get(t.Context(), "till", metav1.GetOptions{})
			if err != nil {
				return err
			}
			set.Status.Conditions = []metav1.Condition{{Type: workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut, Status: status,
				Reason: "Progressing", Message: message, LastTransitionTime: metav1.Now()}}
			_, err = sets.UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
			return err
		})
	}
	status(metav1.ConditionFalse, "waiting for cluster1: Deployment default/web: Available: 0/1")
	f.workctl(0, []string{"rollout", "status", "till", n, "--watch=false"}, "waiting for cluster1")
	f.workctl(3, []string{"rollout", "status", "set/till", n, "--timeout=3s"}, "is not done after 3s")
	f.workctl(3, []string{"wait", "set", "till", n, "--timeout=3s"}, "is not done after 3s", "· "+f.cluster+"/till")
	f.workctl(0, []string{"rollout", "pause", "till", n}, "set till: paused\n")
	f.workctl(0, []string{"rollout", "resume", strings.TrimSpace(f.workctl(0, []string{"get", "sets", n, "-o=name"})), n}, "resumed")
	f.workctl(0, []string{"rollout", "pause", "till", n}, "set till: paused\n")
	f.workctl(0, []string{"get", "sets", n, "-o=wide"}, "waiting for cluster1", "true")
	f.workctl(0, []string{"rollout", "history", "till", n}, "REVISION  CURRENT  AGE", "\n1         -        ", "\n2         *        ")
	f.workctl(0, []string{"rollout", "history", "till", n, "-o=jsonpath={[*].revision}"}, "1 2")
	f.workctl(0, []string{"rollout", "history", "till", n, "--revision=1"}, "name: a")
	f.workctl(0, []string{"rollout", "undo", "till", n}, "revision 1 is rolled out again", "workctl rollout resume till -n "+f.cluster)
	f.workctl(0, []string{"rollout", "history", "till", n}, "\n1         *        ", "\n2         -        ")
	f.workctl(1, []string{"rollout", "undo", "till", n, "--to-revision=1"}, "is this revision already")
	f.workctl(1, []string{"rollout", "undo", "till", n, "--to-revision=7"}, "workctl rollout history till")
	f.workctl(0, []string{"rollout", "resume", "till", n}, "resumed")
	f.workctl(0, []string{"describe", "set", "till", n}, "waiting for cluster1", "PLACEMENT", "PlacementRolledOut")
	status(metav1.ConditionFalse, "stopped: 2 clusters failed")
	f.workctl(1, []string{"rollout", "status", "till", n}, "is stopped", "workctl rollout undo till")
	f.workctl(1, []string{"wait", "set", "till", n}, "is stopped")
	f.workctl(1, []string{"rollout", "retry", "till", n}, "has not gone back")
	set, err = sets.Patch(t.Context(), "till", types.MergePatchType, []byte(`{"metadata":{"annotations":{"workwire.dev/served-revision":"1"}}}`), metav1.PatchOptions{})
	kit.NoError(t, err)
	const back = "revision 1: 3 of 3 clusters succeeded; back from revision 2 to revision 1: 1 cluster failed or timed out, more than allowed: cluster2"
	set.Status.Conditions = append(set.Status.Conditions, metav1.Condition{Type: workv1alpha1.ManifestWorkReplicaSetConditionProgressing,
		Status: metav1.ConditionFalse, Reason: workv1alpha1.ReasonRolledBack, Message: back, LastTransitionTime: metav1.Now()},
		metav1.Condition{Type: workv1alpha1.ManifestWorkReplicaSetConditionRolledBack, Status: metav1.ConditionTrue, Reason: workv1alpha1.ReasonTooManyFailures, LastTransitionTime: metav1.Now()})
	set.Status.Conditions[0].Message = "back from revision 2"
	_, err = sets.UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
	kit.NoError(t, err)
	f.workctl(1, []string{"rollout", "status", "till", n}, back, "the clusters have an earlier template", "workctl rollout retry till -n "+f.cluster)
	f.workctl(1, []string{"wait", "set", "till", n}, "the clusters have an earlier template")
	f.workctl(0, []string{"rollout", "retry", "till", n}, "its template is rolled out again")
	f.workctl(3, []string{"rollout", "status", "till", n, "--timeout=3s"}, "is not done after 3s: the hub has not seen")
	f.workctl(1, []string{"rollout", "retry", "till", n}, "has not gone back")
	status(metav1.ConditionTrue, "")
	f.workctl(0, []string{"rollout", "status", "till", n}, "clusters have the template")
	f.workctl(0, []string{"wait", "set", "till", n}, "✓ "+f.cluster+"/till")
	f.workctl(2, []string{"wait", "set", "till", n, "--for=applied"}, "have the goal ready only")
	status(metav1.ConditionFalse, "waiting")
	f.interrupted("rollout", "status", "till", n)
	set, err = sets.Get(t.Context(), "till", metav1.GetOptions{})
	kit.NoError(t, err)
	const fails = "revision 2: 1 of 3 clusters succeeded; the overrides of 2 clusters fail"
	for kind, status := range map[string]metav1.ConditionStatus{
		workv1alpha1.ManifestWorkReplicaSetConditionProgressing: metav1.ConditionFalse, workv1alpha1.ManifestWorkReplicaSetConditionStalled: metav1.ConditionTrue,
	} {
		set.Status.Conditions = append(set.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: workv1alpha1.ReasonOverrideFailed, Message: fails, LastTransitionTime: metav1.Now()})
	}
	_, err = sets.UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
	kit.NoError(t, err)
	f.workctl(1, []string{"rollout", "status", "till", n, "--timeout=30s"}, fails, "does not go on by itself")
	f.workctl(1, []string{"wait", "set", "till", n, "--timeout=30s"}, fails, "does not go on by itself")
	f.workctl(0, []string{"rollout", "status", "till", n, "--watch=false"}, fails)
	f.workctl(1, []string{"rollout", "status", "nope", n}, "workctl get sets -A")
}

// TestRolloutApprove approves stages of a plan and refuses those that it does not have, and shows them.
func TestRolloutApprove(t *testing.T) {
	f := newFixture(t)
	n := "-n=" + f.cluster
	sets := f.clients.WorkV1alpha1().ManifestWorkReplicaSets(f.cluster)
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Spec: workv1alpha1.ManifestWorkReplicaSetSpec{
		ManifestWorkTemplate: template(), PlacementRefs: []workv1alpha1.LocalPlacementReference{{Name: "all"}}}}
	_, err := sets.Create(t.Context(), set, metav1.CreateOptions{})
	kit.NoError(t, err)
	annotate := func(key, value string) {
		_, err := sets.Patch(t.Context(), "till", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value), metav1.PatchOptions{})
		kit.NoError(t, err)
	}
	f.workctl(1, []string{"rollout", "approve", "till", n}, "has no revision yet")
	annotate("workwire.dev/revision", "2")
	f.workctl(1, []string{"rollout", "approve", "till", n}, "has no RolloutPlan", "workwire.dev/rollout-plan")
	annotate("workwire.dev/rollout-plan", "plan")
	f.workctl(1, []string{"rollout", "approve", "till", n}, "get the RolloutPlan plan")
	_, err = f.clients.WorkwireV1alpha1().RolloutPlans(f.cluster).Create(t.Context(), &workwirev1alpha1.RolloutPlan{
		ObjectMeta: metav1.ObjectMeta{Name: "plan"}, Spec: workwirev1alpha1.RolloutPlanSpec{Stages: []workwirev1alpha1.RolloutStage{
			{Name: "canary"}, {Name: "eu", Approval: workwirev1alpha1.ApprovalRequired}, {Name: "world", Approval: workwirev1alpha1.ApprovalRequired},
		}},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	f.workctl(1, []string{"rollout", "approve", "till", n, "--stage=canary"}, "has no stage canary that needs an approval", "name one of eu, world")
	f.workctl(1, []string{"rollout", "approve", "till", n, "--to-revision=3"}, "is at revision 2, not 3")
	annotate(workwirev1alpha1.ApprovalsAnnotationKey, `[{"revision":1,"stage":"eu","time":null}]`)
	f.workctl(0, []string{"rollout", "approve", "set/till", n, "--reason=it is calm"}, "approved stage eu of revision 2\n")
	f.workctl(0, []string{"rollout", "approve", "till", n, "--to-revision=2"}, "approved stage world of revision 2\n")
	f.workctl(1, []string{"rollout", "approve", "till", n}, "all stages of revision 2 are approved: eu, world")
	f.workctl(0, []string{"rollout", "approve", "till", n, "--stage=preview"}, "approved stage preview of revision 2\n")
	f.workctl(0, []string{"rollout", "approve", "till", n, "--stage=eu"}, "approved stage eu of revision 2\n")
	set, err = sets.Get(t.Context(), "till", metav1.GetOptions{})
	kit.NoError(t, err)
	approvals, err := workwirev1alpha1.ApprovalsOf(set.Annotations)
	if err != nil || len(approvals) != 3 || approvals.Of(2, "eu").By == "" || approvals.Of(2, "eu").Time.IsZero() || approvals.Of(1, "eu") != nil {
		t.Errorf("%v, %+v", err, approvals)
	}
	set.Status.Conditions = []metav1.Condition{
		{Type: workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut, Status: metav1.ConditionFalse, Reason: "Progressing", LastTransitionTime: metav1.Now()},
		{Type: workv1alpha1.ManifestWorkReplicaSetConditionStaged, Status: metav1.ConditionFalse, Reason: workv1alpha1.ReasonWaitsForApproval,
			Message: "canary: 1 of 1 clusters succeeded; complete\neu: 0 of 3 clusters succeeded; waits for approval", LastTransitionTime: metav1.Now()},
	}
	_, err = sets.UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
	kit.NoError(t, err)
	const stages = "\n  stage canary: 1 of 1 clusters succeeded; complete\n  stage eu: 0 of 3 clusters succeeded; waits for approval\n"
	f.workctl(0, []string{"rollout", "status", "till", n, "--watch=false"}, stages)
	f.workctl(0, []string{"describe", "set", "till", n}, stages, "canary: 1 of 1 clusters succeeded; complete; eu: 0 of 3 clusters")
}

// TestNoHub checks what errors say about an API server without Workwire or no API server at all.
func TestNoHub(t *testing.T) {
	newFixture(t).workctl(1, []string{"get", "works", "--context=nope"}, "--context")
	var out bytes.Buffer
	cmd := newCommand("workctl", cli.Streams{Out: &out, Err: &out})
	cmd.SetArgs([]string{"status", "--kubeconfig=/nowhere"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "What to do: name the hub's kubeconfig") {
		t.Errorf("no kubeconfig: %v", err)
	}
}

// TestManyWorks checks that lists are paged, and that a status of more than a page is whole.
func TestManyWorks(t *testing.T) {
	f := newFixture(t)
	const total = 501 // one more than a page
	errs := make(chan error, 8)
	for i := range cap(errs) {
		go func() {
			var err error
			for j := i; j < total && err == nil; j += cap(errs) {
				_, err = f.clients.WorkV1().ManifestWorks(f.cluster).Create(t.Context(), &workv1.ManifestWork{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w%d", j), Labels: map[string]string{"app": "many"}}, Spec: template()}, metav1.CreateOptions{})
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		kit.NoError(t, <-errs)
	}
	start := time.Now()
	f.workctl(0, []string{"status", "-n=" + f.cluster}, fmt.Sprintf("WORKS     %d: 0 ready, %d pending", total, total))
	t.Logf("status of %d works took %s", total, time.Since(start).Round(time.Millisecond))
	f.workctl(3, []string{"wait", "work", "-l=app=many", "-n=" + f.cluster, "--for=applied", "--timeout=30s"}, fmt.Sprintf("%d works of %s are not applied", total, f.cluster))
}

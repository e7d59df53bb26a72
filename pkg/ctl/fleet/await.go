package fleet

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/explain"
)

// Goal is what is waited for.
type Goal struct {
	kind      string // ready, applied, available, delivered, deleted or condition
	condition string
	status    metav1.ConditionStatus
}

// goals are the values of --for without a condition.
var goals = []string{"ready", "applied", "available", "delivered", "deleted"}

// ParseGoal parses ready, applied, available, delivered, deleted, condition=TYPE or
// condition=TYPE=STATUS.
func ParseGoal(text string) (Goal, error) {
	if slices.Contains(goals, text) {
		return Goal{kind: text}, nil
	}
	name, ok := strings.CutPrefix(text, "condition=")
	name, status, given := strings.Cut(name, "=")
	if !ok || name == "" || given && status == "" {
		return Goal{}, cli.Usagef("--for must be %s or condition=TYPE[=STATUS], got %q", strings.Join(goals, ", "), text)
	}
	g := Goal{kind: "condition", condition: name, status: metav1.ConditionTrue}
	for _, s := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		if strings.EqualFold(status, string(s)) {
			g.status = s
			return g, nil
		}
	}
	if given {
		return Goal{}, cli.Usagef("--for: the status of a condition is True, False or Unknown, got %q", status)
	}
	return g, nil
}

// errNoReadiness says that a work will never be ready.
var errNoReadiness = errors.New("the work does not report readiness")

// Reached reports whether a work, nil if it does not exist, has reached the goal, and returns a
// line about it. Only conditions of the newest generation count. It fails if the work cannot reach
// the goal because it does not report readiness.
func (g Goal) Reached(w *workv1.ManifestWork, now time.Time) (done bool, line string, err error) {
	if w == nil {
		return g.kind == "deleted", map[bool]string{true: "deleted", false: "does not exist"}[g.kind == "deleted"], nil
	}
	e := explain.Explain(workstate.Facts{Now: now, Work: w})
	line = e.Word
	if b := e.Blocker; b != nil {
		line += fmt.Sprintf(": %s, %s: %s", b.Cause, b.Object, cli.OneLine(b.Message))
	}
	answered := workstate.Answered(w)
	current := func(kind string) *metav1.Condition {
		c := meta.FindStatusCondition(w.Status.Conditions, kind)
		if c == nil || c.ObservedGeneration != 0 && c.ObservedGeneration != w.Generation || !answered && kind != workv1.WorkDelivered {
			return nil
		}
		return c
	}
	is := func(kind string, status metav1.ConditionStatus) bool {
		c := current(kind)
		return c != nil && c.Status == status
	}
	switch g.kind {
	case "delivered":
		done = answered
	case "applied":
		done = is(workv1.WorkApplied, metav1.ConditionTrue)
	case "available":
		done = is(workv1.WorkApplied, metav1.ConditionTrue) && is(workv1.WorkAvailable, metav1.ConditionTrue)
	case "ready":
		progress := e.Readiness()
		done = progress == explain.Done
		if progress == explain.NotReported {
			return false, line, cli.Errorf("%s/%s: %w", w.Namespace, w.Name, errNoReadiness).
				Do("kubectl annotate --overwrite manifestwork -n %s %s %s=true, or wait --for=available", w.Namespace, w.Name, workv1.ReportReadinessAnnotationKey)
		}
	case "condition":
		done = is(g.condition, g.status)
	}
	return done, line, nil
}

// Await waits until works have reached the goal: those with the names, which may not exist yet, or those
// that match selector when it starts. It calls show with a line for each change of a work. It
// returns the names of those that have not reached the goal, with the error of ctx if that ends.
func (r *Reader) Await(ctx context.Context, namespace, selector string, names []string, goal Goal, show func(name, line string, done bool)) ([]string, error) {
	a := awaited{goal: goal, open: map[string]bool{}, show: show, lines: map[string]string{}}
	for _, name := range names {
		a.open[name] = true
	}
	client := r.Clients.WorkV1().ManifestWorks(namespace)
	options := func(o *metav1.ListOptions) { // without the selector: a work that does not match any more would look deleted
		if len(names) == 1 {
			o.FieldSelector = "metadata.name=" + names[0]
		}
	}
	// The first request also tells why the user may not read works; a watch would try forever.
	if len(names) > 0 {
		page := metav1.ListOptions{Limit: 1}
		options(&page)
		if _, err := client.List(ctx, page); err != nil {
			return a.left(), cli.APIError("list the works of "+namespace, err)
		}
	} else {
		matching, err := r.Works(ctx, namespace, selector)
		if err != nil {
			return nil, err
		}
		for i := range matching {
			a.open[matching[i].Name] = true
		}
		if len(a.open) == 0 {
			return nil, cli.Errorf("no work in namespace %s matches %q", namespace, selector)
		}
	}
	_, err := watchtools.UntilWithSync(silent(ctx), listwatch.Of(client, options, nil), &workv1.ManifestWork{}, a.start, a.event)
	return a.left(), err
}

// awaited is the state of [Reader.Await].
type awaited struct {
	goal  Goal
	open  map[string]bool // names that have not reached the goal
	lines map[string]string
	show  func(name, line string, done bool)
}

func (a *awaited) left() []string {
	var names []string
	for name, open := range a.open {
		if open {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// start looks at all works once they are listed.
func (a *awaited) start(store cache.Store) (bool, error) {
	found := map[string]*workv1.ManifestWork{}
	for _, object := range store.List() {
		if w, ok := object.(*workv1.ManifestWork); ok {
			found[w.Name] = w
		}
	}
	for _, name := range a.left() {
		if err := a.note(name, found[name]); err != nil {
			return false, err
		}
	}
	return len(a.left()) == 0, nil
}

func (a *awaited) event(e watch.Event) (bool, error) {
	w, ok := e.Object.(*workv1.ManifestWork)
	if !ok {
		return false, nil
	}
	if _, wanted := a.open[w.Name]; wanted {
		name := w.Name
		if e.Type == watch.Deleted {
			w = nil
		}
		if err := a.note(name, w); err != nil {
			return false, err
		}
	}
	return len(a.left()) == 0, nil
}

// note evaluates a work, nil if it does not exist. A work that had reached the goal can leave it.
func (a *awaited) note(name string, w *workv1.ManifestWork) error {
	done, line, err := a.goal.Reached(w, time.Now())
	if err != nil {
		return err
	}
	a.open[name] = !done
	if line != a.lines[name] || done {
		a.lines[name] = line
		a.show(name, line, done)
	}
	return nil
}

// Rollout is how far the rollout of a set has got.
type Rollout struct {
	// Done reports whether every cluster has the template and succeeded with it; Stopped whether
	// too many failed; Paused whether the set is paused; RolledBack whether every cluster has an earlier template and
	// succeeded with it, because too many failed; Stalled whether it goes on only when somebody changes something, for these or
	// other reasons.
	Done, Stopped, Paused, RolledBack, Stalled bool
	// Line says it for people, and Stages has an indented line for each stage of its RolloutPlan.
	Line, Stages string
}

// Ended reports whether the rollout has ended, one way or the other. Of one that is Stalled only time tells, see [Reader.AwaitRollout].
func (r Rollout) Ended() bool { return r.Done || r.Stopped || r.RolledBack }

// RolloutOf returns how far the rollout of a set has got.
func RolloutOf(set *workv1alpha1.ManifestWorkReplicaSet) Rollout {
	line := NewSetLine(set)
	r := Rollout{Paused: line.Paused}
	conditions := set.Status.Conditions
	rolledOut := meta.FindStatusCondition(conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut)
	progressing := meta.FindStatusCondition(conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
	if unseen(set) || rolledOut == nil && progressing == nil {
		r.Line = notSeen
		return r
	}
	if rolledOut == nil { // a set whose names are invalid, or whose placements do not exist
		rolledOut = &metav1.Condition{}
	}
	r.Done = rolledOut.Status == metav1.ConditionTrue
	if staged := meta.FindStatusCondition(conditions, workv1alpha1.ManifestWorkReplicaSetConditionStaged); staged != nil {
		r.Stages = stageLines(staged)
	}
	r.Stopped = meta.IsStatusConditionTrue(conditions, workv1alpha1.ManifestWorkReplicaSetConditionStopped) || strings.HasPrefix(rolledOut.Message, "stopped")
	r.RolledBack = progressing != nil && progressing.Reason == workv1alpha1.ReasonRolledBack
	// A set can be stalled because of its removals, too, while its rollout goes on.
	r.Stalled = meta.IsStatusConditionTrue(conditions, workv1alpha1.ManifestWorkReplicaSetConditionStalled) && progressing != nil && progressing.Status == metav1.ConditionFalse
	r.Line = fmt.Sprintf("%s the template: %d applied, %d available, %d progressing, %d degraded", cli.Plural(line.Total, "cluster has", "clusters have"),
		line.Applied, line.Available, line.Progressing, line.Degraded)
	if line.Message != "" && !r.Done {
		r.Line += "; " + cli.OneLine(line.Message)
	}
	if progressing != nil && progressing.Reason == workv1alpha1.ReasonWaitsForApproval {
		r.Line += "; to approve: " + approveCommand(set, progressing.Message)
	}
	return r
}

// waitingStage matches the stage that waits for an approval in the message of the condition Progressing.
var waitingStage = regexp.MustCompile(`stage (\S+): waits for approval`)

// approveCommand returns the command that approves what the message says is waited for. It names stage and revision: without them, it
// approves the next stage when a second person runs it, or one that is passed over.
func approveCommand(set *workv1alpha1.ManifestWorkReplicaSet, message string) string {
	command := fmt.Sprintf("workctl rollout approve %s -n %s", set.Name, set.Namespace)
	if stage := waitingStage.FindStringSubmatch(message); stage != nil {
		command += " --stage=" + stage[1]
	}
	if revision := workwirev1alpha1.RevisionOf(set.Annotations, workwirev1alpha1.RevisionAnnotationKey); revision != 0 {
		command += fmt.Sprintf(" --to-revision=%d", revision)
	}
	return command
}

// stageLine matches what the message of the condition Staged says of a stage, but not of the other clusters, which are in none.
var stageLine = regexp.MustCompile(`^\S+: \d+ of \d+ clusters succeeded`)

// stageLines returns the lines of a condition Staged, indented: one for each stage, or why no stage counts.
func stageLines(staged *metav1.Condition) (lines string) {
	for line := range strings.Lines(staged.Message) {
		line = cli.OneLine(strings.TrimSpace(line))
		if stageLine.MatchString(line) {
			line = "stage " + line
		}
		lines += "  " + line + "\n"
	}
	return lines
}

// settled is how long a rollout must have been Stalled while somebody follows it: what it needs may have been written a moment ago, such as
// its RolloutPlan by the same kubectl apply, or the override that mends it. The generation of the set does not tell whether the hub has seen that.
const settled = 10 * time.Second

// errSettled ends following a rollout that stays Stalled.
var errSettled = errors.New("the rollout does not go on by itself")

// AwaitRollout calls show for each change of the rollout of a set, until the rollout is done, or has been Stalled for [settled], show
// returns true, or ctx ends.
func (r *Reader) AwaitRollout(ctx context.Context, namespace, name string, show func(Rollout) (stop bool)) error {
	client := r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace)
	if _, err := client.Get(ctx, name, metav1.GetOptions{}); err != nil {
		return notFound(err, "set", name, "workctl get sets -A")
	}
	options := func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }
	following, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var stalled *time.Timer // nil: it is not
	last := ""
	_, err := watchtools.UntilWithSync(silent(following), listwatch.Of(client, options, nil), &workv1alpha1.ManifestWorkReplicaSet{}, nil, func(e watch.Event) (bool, error) {
		set, ok := e.Object.(*workv1alpha1.ManifestWorkReplicaSet)
		switch {
		case !ok:
			return false, nil
		case e.Type == watch.Deleted:
			return false, cli.Errorf("the set %s/%s is deleted", namespace, name)
		}
		rollout := RolloutOf(set)
		switch {
		case rollout.Stalled && stalled == nil:
			stalled = time.AfterFunc(settled, func() { stop(errSettled) })
		case !rollout.Stalled && stalled != nil:
			stalled.Stop()
			stalled = nil
		}
		now := fmt.Sprint(rollout.Line, rollout.Stages, rollout.Stalled)
		if now == last && !rollout.Done {
			return false, nil
		}
		last = now
		return show(rollout) || rollout.Done, nil
	})
	if stalled != nil && errors.Is(context.Cause(following), errSettled) {
		return nil
	}
	return err
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/test/kit"
)

// terminal is a terminal of a size that changes.
type terminal struct {
	mu            sync.Mutex
	written       bytes.Buffer
	width, height int // 0: it is a pipe
}

func (w *terminal) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written.Write(p)
}

func (w *terminal) size() (width, height int, isTerminal bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.width, w.height, w.width > 0
}

func (w *terminal) resize(width, height int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.width, w.height = width, height
}

// frame returns what was drawn last.
func (w *terminal) frame() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.written.String()
	return text[max(0, strings.LastIndex(text, screenStart)):]
}

func (w *terminal) shows(t *testing.T, wants ...string) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("it shows %q", wants), func() error {
		for _, want := range wants {
			if frame := w.frame(); !strings.Contains(frame, want) {
				return fmt.Errorf("it shows %q", frame)
			}
		}
		return nil
	})
}

// TestWatch follows a real API server on a terminal that is resized, and on a pipe.
func TestWatch(t *testing.T) {
	f := newFixture(t)
	reader, err := fleet.NewReader(plane.REST())
	kit.NoError(t, err)
	start := func(w *terminal) (stop func()) {
		followed, warnings, err := reader.Follow(t.Context(), f.cluster, string(works))
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		s := &screen{out: w, size: w.size, format: cli.Table, pace: pace{interval: time.Millisecond}}
		return kit.Run(t, "the screen", func(ctx context.Context) error {
			return s.run(ctx, followed.Changed(), func() *fleet.Snapshot { return followed.Snapshot(ctx) })
		})
	}
	big, pipe := &terminal{width: 200, height: 50}, &terminal{}
	stopBig, stopPipe := start(big), start(pipe)
	big.shows(t, "WORKS     0: 0 ready", clearBelow)
	pipe.shows(t, "works 0: 0 ready")
	f.work("web", nil)
	big.shows(t, "WORKS     1: 0 ready, 1 pending", "NotAnswered")
	pipe.shows(t, "works 1: 0 ready, 1 pending")
	f.answer("web", condition.Manifest{})
	big.shows(t, "WORKS     1: 1 ready (of all 1 delivered, 1 applied)")
	kit.NoError(t, f.clients.WorkV1().ManifestWorks(f.cluster).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	big.shows(t, "WORKS     0: 0 ready")
	pipe.shows(t, "works 1: 1 ready (of all 1 delivered, 1 applied)")
	big.resize(40, 3)
	kit.True(t, "it fits", func() bool { return strings.Count(big.frame(), "\n") == 2 })
	stopBig()
	stopPipe()
	if text := big.written.String(); !strings.HasPrefix(text, enterScreen) || !strings.HasSuffix(text, leaveScreen) {
		t.Errorf("it does not leave the terminal as it was: %q", text[max(0, len(text)-200):])
	}
	if text := pipe.written.String(); strings.Contains(text, "\x1b") || strings.Count(text, "works 0: 0 ready") > 2 {
		t.Errorf("a pipe gets\n%s", text)
	}
}

// TestDue checks when the screen is redrawn.
func TestDue(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		age            time.Duration
		dirty, resized bool
		want           bool
	}{
		"nothing":          {5 * time.Second, false, false, false},
		"ages":             {redrawEvery, false, false, true},
		"changed":          {2 * time.Second, true, false, true},
		"changed too soon": {time.Second, true, false, false},
		"resized":          {0, false, true, true},
	} {
		p := pace{interval: 2 * time.Second, shown: now.Add(-c.age), width: 80, height: 24}
		width := 80
		if c.resized {
			width = 79
		}
		if got := p.due(now, c.dirty, width, 24); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !(&pace{}).due(now, false, 0, 0) {
		t.Error("the first time")
	}
}

// TestChanges checks which rows of a table are printed again.
func TestChanges(t *testing.T) {
	table := func(rows ...string) *cli.Rows {
		table := &cli.Rows{Header: []string{"NAMESPACE", "NAME", "READY", "AGE"}}
		for _, row := range rows {
			cells := strings.Fields(row)
			table.Add(cells[0], cells[1], cells[2], cells[3])
		}
		return table
	}
	c := changes{gone: "gone"}
	for _, step := range []struct {
		compared, shown *cli.Rows
		want            string
	}{
		{table("n a True 0s", "n b True 0s"), table("n a True 5m", "n b True 5m"), "NAMESPACE NAME READY AGE\nn a True 5m\nn b True 5m"},
		{table("n a True 0s", "n b True 0s"), table("n a True 6m", "n b True 6m"), ""},
		{table("n a False 0s", "n b True 0s", "m a True 0s"), table("n a False 7m", "n b True 7m", "m a True 1s"), "n a False 7m\nm a True 1s"},
		{table("n a False 0s"), table("n a False 8m"), "m a - gone\nn b - gone"},
		{table(), table(), "n a - gone"},
	} {
		var out bytes.Buffer
		if rows := c.next(step.compared, step.shown); len(rows.Rows) > 0 {
			kit.NoError(t, rows.Write(&out, cli.Style{}, 0))
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for i, line := range lines {
			lines[i] = strings.Join(strings.Fields(line), " ")
		}
		if got := strings.Join(lines, "\n"); got != step.want {
			t.Errorf("it prints\n%s\nwant\n%s", got, step.want)
		}
	}
}

// TestGetWatch checks that get --watch prints a work, a cluster and a set of a real API server again when they change.
func TestGetWatch(t *testing.T) {
	f := newFixture(t)
	start := func(args ...string) (w *terminal, stop func()) {
		w = &terminal{}
		cmd := newCommand("workctl", cli.Streams{In: strings.NewReader(""), Out: w, Err: w})
		cmd.SetArgs(append(args, "--watch"))
		return w, kit.Run(t, strings.Join(args, " "), cmd.ExecuteContext)
	}
	n := "-n=" + f.cluster
	f.work("web", nil)
	all, stopAll := start("get", "works", n)
	some, stopSome := start("get", "works", n, "-l=app=other", "-o=wide")
	cluster, stopCluster := start("get", "clusters", f.cluster)
	set, stopSet := start("get", "sets", n)
	all.shows(t, "NAMESPACE", "NotAnswered")
	cluster.shows(t, f.cluster)
	f.answer("web", condition.Manifest{})
	f.work("other", nil)
	all.shows(t, "web    True       True")
	some.shows(t, "MESSAGE", "other")
	sets := f.clients.WorkV1alpha1().ManifestWorkReplicaSets(f.cluster)
	_, err := sets.Create(t.Context(), &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Spec: workv1alpha1.ManifestWorkReplicaSetSpec{
		ManifestWorkTemplate: template(), PlacementRefs: []workv1alpha1.LocalPlacementReference{{Name: "all"}}}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	set.shows(t, "ROLLED OUT", "till")
	works := f.clients.WorkV1().ManifestWorks(f.cluster)
	kit.NoError(t, works.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	all.shows(t, "gone")
	stopAll()
	stopSome()
	stopCluster()
	stopSet()
	if text := some.frame(); strings.Contains(text, "web") {
		t.Errorf("the selector lets through\n%s", text)
	}
	if text := all.frame(); strings.Count(text, "NAMESPACE") != 1 || strings.Contains(text, "\x1b") {
		t.Errorf("all prints\n%s", text)
	}
	t.Logf("\n%s", all.frame())
}

// TestFollowWithFewRights checks that a user who may only list sets can follow them, with a warning for each kind that
// is left out, and nothing else.
func TestFollowWithFewRights(t *testing.T) {
	f := newFixture(t)
	kube := kubernetes.NewForConfigOrDie(plane.REST()).RbacV1()
	_, err := kube.Roles(f.cluster).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "sets"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{workv1alpha1.GroupVersion.Group}, Resources: []string{"manifestworkreplicasets"}, Verbs: []string{"list", "watch"}}}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	_, err = kube.RoleBindings(f.cluster).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "sets"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "sets"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: f.cluster}}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	config := plane.REST()
	config.Impersonate.UserName = f.cluster
	reader, err := fleet.NewReader(config)
	kit.NoError(t, err)
	kit.Eventually(t, "sets are followed", func() error { // the API server knows the role later
		_, warnings, err := reader.Follow(t.Context(), f.cluster, string(sets))
		if err == nil && (len(warnings) != 2 || !strings.Contains(warnings[0], "list the works") || !strings.Contains(warnings[1], "list the clusters")) {
			t.Errorf("warnings %q", warnings)
		}
		return err
	})
	if _, _, err := reader.Follow(t.Context(), f.cluster, string(clusters)); err == nil || !strings.Contains(err.Error(), "list the clusters") ||
		!strings.Contains(err.Error(), "ask an administrator") {
		t.Errorf("clusters: %v", err)
	}
}

// TestBlocked checks that --blocked lists whatever is neither ready nor applied, also if nobody says why.
func TestBlocked(t *testing.T) {
	work := func(name string, conditions ...metav1.Condition) workv1.ManifestWork {
		w := workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name, Generation: 1}}
		for _, c := range append(conditions, metav1.Condition{Type: workv1.WorkDelivered}, metav1.Condition{Type: workv1.WorkApplied}) {
			c.Status, c.ObservedGeneration = metav1.ConditionTrue, 1
			w.Status.Conditions = append(w.Status.Conditions, c)
		}
		return w
	}
	f := getFlags{blocked: true}
	rows := f.rows(works, &fleet.Snapshot{Works: []workv1.ManifestWork{work("applied", metav1.Condition{Type: workv1.WorkAvailable}), work("begun")}})(time.Time{})
	if len(rows.Rows) != 1 || rows.Rows[0][1].Text != "begun" {
		t.Errorf("%+v", rows.Rows)
	}
}

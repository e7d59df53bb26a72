package reconcile

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

func TestUnlogged(t *testing.T) {
	logged, other, third := loggedError{errors.New("logged")}, errors.New("other"), errors.New("third")
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"logged", logged, ""},
		{"not logged", other, "other"},
		{"joined", errors.Join(logged, other), "other"},
		{"nested", errors.Join(errors.Join(logged, third), other), "third\nother"},
		{"all logged", errors.Join(logged, logged), ""},
		{"wrapped", fmt.Errorf("more: %w", logged), "more: logged"},
	} {
		got := ""
		if err := unlogged(c.err); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFailuresAreLoggedOnce(t *testing.T) {
	var h history
	log := &kit.Log{}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, cause := range []string{"a", "a", "b", "b", "a"} {
		h.logFailure(log.Logger(), errors.New(cause), now.Add(time.Duration(i)*time.Second))
	}
	if lines := log.Lines("reconcile failed"); len(lines) != 3 {
		t.Errorf("%d lines, want 3: %s", len(lines), log)
	}
	if h.isZero() {
		t.Error("the history of a failure is forgotten")
	}
	h.lastRemovals = map[object.Ref]*lastRemoval{{Name: "a"}: {}}
	h.logFailure(log.Logger(), nil, now)
	h.logFailure(log.Logger(), errors.New("a"), now)
	if lines := log.Lines("reconcile failed"); len(lines) != 3 {
		t.Errorf("%d lines while the removal waited, want 3: %s", len(lines), log)
	}
	h.lastRemovals = nil
	h.logFailure(log.Logger(), loggedError{errors.New("c")}, now)
	if lines := log.Lines("reconcile failed"); len(lines) != 3 || !h.isZero() {
		t.Errorf("%d lines after an error that was logged elsewhere; history %+v", len(lines), h)
	}
}

func TestFailureWaits(t *testing.T) {
	now := time.Now()
	live := &unstructured.Unstructured{Object: map[string]any{}}
	present, absent := object.Live{State: object.Present, Object: live}, object.Live{State: object.Absent}
	waits := backoff{failures: 4}.failed(now)
	if waits.failures != 5 || waits.wait(now) != 810*time.Millisecond || waits.wait(now.Add(time.Second)) > 0 {
		t.Errorf("%+v", waits)
	}
	for name, test := range map[string]struct {
		before *unstructured.Unstructured
		now    object.Live
		want   bool
	}{
		"there before and now":      {live, present, true},
		"there before, not known":   {live, object.Live{}, true},
		"there before, gone now":    {live, absent, false},
		"never there":               {nil, absent, true},
		"not there before, but now": {nil, present, true},
	} {
		failed := failure{backoff: waits, outcome: apply.Outcome{Err: errors.New("no"), Live: test.before}}
		if got := failed.waits(test.now, now) > 0; got != test.want {
			t.Errorf("%s: waits %t", name, got)
		}
		if failed.waits(test.now, now.Add(time.Second)) > 0 {
			t.Errorf("%s: waits for too long", name)
		}
	}
}

// TestFailuresOfManifests: what failed waits longer each time, keeps its error while repairs wait, and is forgotten once it is applied.
func TestFailuresOfManifests(t *testing.T) {
	log := &kit.Log{}
	r, e, now := &Reconciler{metrics: newMetrics(nil, NewTable())}, &entry{}, time.Now()
	unknown := strategy.Manifest{Meta: workv1.ManifestResourceMeta{Kind: "Nothing", Namespace: "default", Name: "x"}} // the kind
	reconcile := func(outcome apply.Outcome, repairsWait bool) *reconciliation {
		rec := &reconciliation{
			subject: subject{entry: e, work: &inbox.Entry{}, logger: log.Logger()}, manifests: []strategy.Manifest{unknown}, observed: make([]observed, 1), repairsWait: repairsWait,
			outcomes: []apply.Outcome{outcome},
		}
		rec.last = newLastApplied(&e.history, rec.work, nil, nil)
		rec.awaitFailed(now)
		rec.repeatFailed()
		r.noteOutcomes(rec, now)
		return rec
	}
	no := errors.New("no")
	for _, step := range []struct {
		name        string
		after       time.Duration
		outcome     apply.Outcome
		repairsWait bool
		waited      bool
		err         error
		failures    int
	}{
		{"fails", 0, apply.Outcome{Err: no}, false, false, no, 1},
		{"waits", 9 * time.Millisecond, apply.Outcome{Action: apply.Left}, false, true, no, 1},
		{"fails again", time.Millisecond, apply.Outcome{Err: no}, false, false, no, 2},
		{"waits longer", 29 * time.Millisecond, apply.Outcome{Action: apply.Left}, false, true, no, 2},
		{"repairs wait", time.Millisecond, apply.Outcome{Action: apply.Left}, true, false, no, 2},
		{"is applied", 0, apply.Outcome{Action: apply.Unchanged}, false, false, nil, 0},
	} {
		now = now.Add(step.after)
		rec := reconcile(step.outcome, step.repairsWait)
		failures := 0
		if f := e.history.failures[0]; f != nil {
			failures = f.failures
		}
		if err := rec.applyError(0); !errors.Is(err, step.err) || rec.retryWaits[0] != step.waited || failures != step.failures {
			t.Errorf("%s: error %v, waited %t, %d failures", step.name, err, rec.retryWaits[0], failures)
		}
	}
	if lines := log.Lines("applying a manifest failed", `kind=Nothing object="Nothing default/x"`); len(lines) != 1 || !e.history.isZero() {
		t.Errorf("%d lines, want 1: %s; history %+v", len(lines), log, e.history)
	}
}

// What failed and is complete meanwhile keeps its error as long as its retry waits, and nobody waits for it.
func TestFailedAndComplete(t *testing.T) {
	no := errors.New("no")
	rec := &reconciliation{
		subject:    subject{entry: &entry{history: history{failures: map[int]*failure{0: {outcome: apply.Outcome{Err: no}}}}}},
		manifests:  make([]strategy.Manifest, 1),
		retryWaits: []bool{true}, complete: conditionrules.Completion{Manifests: []bool{true}},
		outcomes: []apply.Outcome{{Action: apply.Left}},
	}
	rec.repeatFailed()
	if err, text := rec.applyError(0), (&Reconciler{}).notReady(t.Context(), rec, 0); !rec.skip(0) || !errors.Is(err, no) || text != "" {
		t.Errorf("skipped %t, error %v, not ready: %q", rec.skip(0), err, text)
	}
}

// A conflict is somebody else's write of the record meanwhile. It is tried again at once, and logged if that fails too.
func TestFirstConflictIsNotLogged(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "appliedmanifestworks"}, "a", errors.New("it has changed"))
	log, r := &kit.Log{}, &Reconciler{Config: Config{Table: NewTable()}}
	e := r.Table.acquire("a")
	for i, step := range []struct {
		err   error
		lines int // so far
	}{{conflict, 0}, {nil, 0}, {fmt.Errorf("record: %w", conflict), 0}, {conflict, 1}, {nil, 1}, {conflict, 1}, {nil, 1}, {errors.New("no conflict"), 2}} {
		if ok := r.requeue(t.Context(), log.Logger(), e, 0, step.err); ok != (step.err == nil) {
			t.Errorf("step %d: %v", i, ok)
		}
		if lines := log.Lines("reconcile failed"); len(lines) != step.lines {
			t.Errorf("step %d: %d lines, want %d: %s", i, len(lines), step.lines, log)
		}
	}
}

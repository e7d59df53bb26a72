package source

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

func TestDecideWait(t *testing.T) {
	const applied = Condition(workv1.WorkApplied)
	work := func(first wire.Generation, status metav1.ConditionStatus, observed int64) *storedWork {
		w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "w", Generation: 2}}
		w.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: status, ObservedGeneration: observed}}
		return &storedWork{work: w, firstGeneration: first}
	}
	was, is := work(1, metav1.ConditionFalse, 1), work(1, metav1.ConditionTrue, 2)
	deleting := work(1, metav1.ConditionTrue, 2)
	deleting.work.DeletionTimestamp = &metav1.Time{}
	reporting := func(available, progressing metav1.ConditionStatus, annotated bool) *storedWork {
		r := work(1, metav1.ConditionTrue, 2)
		for kind, status := range map[string]metav1.ConditionStatus{workv1.WorkAvailable: available, workv1.WorkProgressing: progressing} {
			if status != "" {
				r.work.Status.Conditions = append(r.work.Status.Conditions, metav1.Condition{Type: kind, Status: status, ObservedGeneration: 2})
			}
		}
		if annotated {
			r.work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
		}
		return r
	}
	for name, test := range map[string]struct {
		condition  Condition
		first, now *storedWork
		done       bool
		err        func(error) bool
	}{
		"not yet":                 {condition: applied, first: was, now: was},
		"applied":                 {condition: applied, first: was, now: is, done: true},
		"applied, it came since":  {condition: applied, now: is, done: true},
		"an older generation was": {condition: applied, first: was, now: work(1, metav1.ConditionTrue, 1)},
		"another condition":       {condition: Condition(workv1.WorkAvailable), first: was, now: is},
		"ready":                   {condition: Ready, first: is, now: reporting("True", "False", true), done: true},
		"ready by a rule":         {condition: Ready, first: is, now: reporting("True", "False", false), done: true},
		"on its way":              {condition: Ready, first: is, now: reporting("True", "True", true)},
		"not available yet":       {condition: Ready, first: is, now: is},
		"asked a moment ago":      {condition: Ready, first: is, now: reporting("True", "", true)},
		"nobody asks for it":      {condition: Ready, first: is, now: reporting("True", "", false), err: apierrors.IsBadRequest},
		"gone":                    {condition: applied, first: was, err: apierrors.IsNotFound},
		"being deleted":           {condition: applied, first: was, now: deleting, err: apierrors.IsConflict},
		"to be deleted":           {condition: Deleted, first: was, now: is},
		"it is being deleted":     {condition: Deleted, first: was, now: deleting},
		"deleted":                 {condition: Deleted, first: was, done: true},
		"deleted and made again":  {condition: Deleted, first: was, now: work(2, metav1.ConditionTrue, 2), done: true},
		"made since":              {condition: Deleted, now: is},
		"never there":             {condition: Deleted, done: true},
	} {
		done, err := decideWait(test.condition, test.first, test.now, "w")
		if done != test.done || (err != nil) != (test.err != nil) || test.err != nil && !test.err(err) {
			t.Errorf("%s: %t, %v", name, done, err)
		}
	}
}

// TestWaitErrorText: what is at fault is said first, and nothing about a cluster that this client cannot have heard.
func TestWaitErrorText(t *testing.T) {
	when := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	refused := errors.New("remote error: tls: unknown certificate authority")
	for name, test := range map[string]struct {
		given WaitError
		want  string
	}{
		"Run is not called": {WaitError{NoConnection: &NoConnection{}}, ": the source has not loaded its works: is Run called?"},
		"nobody heard":      {WaitError{Generation: 2}, `; generation 2 has no condition Applied; no agent of cluster "c1" has been heard`},
		"heard":             {WaitError{Generation: 2, AgentHeard: true, LastHeard: when}, `; generation 2 has no condition Applied; the last message of cluster "c1" came at 2026-05-01T12:00:00Z`},
		"disconnected":      {WaitError{Generation: 2, AgentHeard: true, LastHeard: when, Disconnected: when}, `; generation 2 has no condition Applied; the agent of cluster "c1" is disconnected since 2026-05-01T12:00:00Z`},
		"deleted, and nobody heard": {WaitError{Generation: 2, Condition: Deleted, deleting: true}, `; generation 2 has no condition Deleted; no agent of cluster "c1" has been heard; ` +
			"if none will answer, remove the work's finalizers with Update or Patch"},
		"never connected":           {WaitError{Generation: 2, NoConnection: &NoConnection{Err: refused}}, "; this client was never connected to the broker: remote error: tls: unknown certificate authority; generation 2 has no condition Applied"},
		"no connection, and no why": {WaitError{Generation: 2, NoConnection: &NoConnection{}}, "; this client was never connected to the broker; generation 2 has no condition Applied"},
		"connection lost": {WaitError{Generation: 2, AgentHeard: true, LastHeard: when, NoConnection: &NoConnection{Since: when, Err: refused}},
			"; this client is not connected to the broker since 2026-05-01T12:00:00Z: remote error: tls: unknown certificate authority; " +
				`generation 2 has no condition Applied; the last message of cluster "c1" came at 2026-05-01T12:00:00Z`},
	} {
		test.given.Cluster, test.given.Name, test.given.cause = "c1", "w", context.DeadlineExceeded
		test.given.Condition = cmp.Or(test.given.Condition, Applied)
		want := "wait until work c1/w is " + string(test.given.Condition) + ": context deadline exceeded" + test.want
		if got := test.given.Error(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

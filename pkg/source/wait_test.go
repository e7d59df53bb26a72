package source

import (
	"testing"

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

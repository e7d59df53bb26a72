package reconcile

import (
	"time"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// maxTimer is the longest wait for a time of the wall clock: somebody may set the clock, and it goes on while a machine sleeps.
const maxTimer = 10 * time.Minute

// stage sets what a spec that was not applied waits for at now, and has the work reconciled when that ends by itself.
func (rec *reconciliation) stage(at *workv1.ApplyAt, err error, now time.Time) {
	var wait time.Duration
	received := rec.work.Received
	if received.IsZero() { // before the agent started
		received = rec.work.Meta.CreationTimestamp.Time
	}
	if rec.staged, wait = staged(at, err, received, now); wait > 0 {
		rec.requeueWithin(min(wait, maxTimer))
	}
}

// staged returns what a spec that was not applied, and was received then, waits for by its annotation, nil if it does not, and for how long; 0: for somebody.
func staged(at *workv1.ApplyAt, err error, received, now time.Time) (*condition.Waiting, time.Duration) {
	switch {
	case err != nil:
		return &condition.Waiting{Reason: workv1.ReasonInvalidApplyAt, Message: "Nothing new is applied: " + err.Error()}, 0
	case at == nil:
		return nil, 0
	case at.Start.IsZero():
		return &condition.Waiting{Reason: workv1.ReasonStaged, Message: "Staged until the annotation " + workv1.ApplyAtAnnotationKey + " has a time"}, 0
	case now.Before(at.Start):
		return &condition.Waiting{Reason: workv1.ReasonStaged, Message: "Staged until " + timeText(at.Start)}, at.Start.Sub(now)
	case !at.End.IsZero() && !now.Before(at.End):
		message := "Missed the window from " + timeText(at.Start) + " to " + timeText(at.End)
		if !at.End.After(received) {
			message = "The window from " + timeText(at.Start) + " to " + timeText(at.End) + " " + condition.WindowWasOver
		}
		return &condition.Waiting{Reason: workv1.ReasonWindowMissed, Message: message + ": waits until the annotation " + workv1.ApplyAtAnnotationKey + " has a later one, or is removed"}, 0
	}
	return nil, 0
}

func timeText(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// blocked returns why nothing new of the work is applied until somebody changes it; nil if it is.
func (rec *reconciliation) blocked() *condition.Waiting {
	switch cycle, invalid := rec.history().cycle, impossible(rec.dependsOn); {
	case cycle != "":
		return &condition.Waiting{Reason: workv1.ReasonDependencyCycle, Message: cycle}
	case invalid != "":
		return &condition.Waiting{Reason: workv1.ReasonInvalidDependsOn, Message: invalid}
	case rec.staged != nil && rec.staged.Reason == workv1.ReasonInvalidApplyAt:
		return rec.staged
	}
	return nil
}

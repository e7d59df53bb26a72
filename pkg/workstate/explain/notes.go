package explain

import (
	"fmt"
	"time"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate"
)

// notes returns remarks that are no blockers.
func notes(f *workstate.Facts, e *Explanation) []string {
	var all []string
	w := f.Work
	// Not the time of publishing, which is the last of several.
	if d := w.Status.Delivery; d != nil && d.Generation == w.Generation && d.ReceivedTime != nil && d.AcceptedTime != nil {
		if early := d.AcceptedTime.Sub(d.ReceivedTime.Time); early > time.Second {
			all = append(all, fmt.Sprintf("The clock of the cluster is at least %s behind the hub's: the times of received, applied and ready are by its clock.",
				early.Round(time.Second)))
		}
	}
	if b := f.Warnings(); b != nil && (e.Blocker == nil || e.Blocker.Cause != workstate.Warning) {
		text := b.Object + ": " + b.Message
		if n := b.Objects(); n > 1 {
			text = fmt.Sprintf("%s (and %d more)", text, n-1)
		}
		all = append(all, "Warning: "+text)
	}
	if e.Blocker == nil && e.Readiness() == NotReported {
		all = append(all, fmt.Sprintf("Nobody reports whether the objects are ready. To see it: kubectl annotate --overwrite manifestwork -n %s %s %s=true",
			w.Namespace, w.Name, workv1.ReportReadinessAnnotationKey))
	}
	if e.Observed > 0 && e.Observed < w.Generation {
		all = append(all, fmt.Sprintf("The conditions of the work are about generation %d, not about %d.", e.Observed, w.Generation))
	}
	return all
}

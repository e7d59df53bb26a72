package replicaset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/runtime/redaction"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// Limits of messages.
const (
	maxClusters = 20    // cluster names
	maxMessage  = 32768 // bytes, by the schema of conditions
)

// count adds a chosen cluster to r. Its work is part of the summary if it has the template, see
// current.
func (r *placementRollout) count(cluster rollout.Cluster, work *workv1.ManifestWork, current bool) {
	r.clusters[cluster.Status]++
	if cluster.Away {
		r.away++
	}
	if !current {
		return
	}
	r.summary.Total++
	for kind, counter := range map[string]*int{
		workv1.WorkApplied: &r.summary.Applied, workv1.WorkAvailable: &r.summary.Available,
		workv1.WorkProgressing: &r.summary.Progressing, workv1.WorkDegraded: &r.summary.Degraded,
	} {
		if meta.IsStatusConditionTrue(work.Status.Conditions, kind) {
			*counter++
		}
	}
}

// summarize sets the summaries and conditions of status from the rollouts.
func summarize(status *workv1alpha1.ManifestWorkReplicaSetStatus, rollouts []placementRollout, in input) {
	status.Summary = workv1alpha1.ManifestWorkReplicaSetSummary{}
	status.PlacementsSummary = make([]workv1alpha1.PlacementSummary, 0, len(rollouts))
	n := countProgress(rollouts)
	status.SelectedClusters = 0
	var errs, invalid []error
	for _, r := range rollouts {
		status.PlacementsSummary = append(status.PlacementsSummary, workv1alpha1.PlacementSummary{
			Name:                    r.placement,
			AvailableDecisionGroups: fmt.Sprintf("%d (%d / %d clusters applied)", r.decisionGroups, r.summary.Total, r.selected),
			Summary:                 r.summary,
		})
		status.Summary.Total += r.summary.Total
		status.Summary.Applied += r.summary.Applied
		status.Summary.Available += r.summary.Available
		status.Summary.Progressing += r.summary.Progressing
		status.Summary.Degraded += r.summary.Degraded
		status.SelectedClusters += r.selected
		errs, invalid = append(errs, r.err, outsideError(r)), append(invalid, r.err)
	}
	err := errors.Join(errs...)
	complete, held := err == nil && status.SelectedClusters == n.succeeded, ""
	switch {
	case workv1.IsPaused(in.set):
		held = pausedText
	case waitsForPreview(in, rollouts):
		held = in.held
	}
	set := conditionSetter(status, in.now)
	set(verified(n.chosen, err))
	set(rolledOut(complete && in.back == "", joinTexts(stoppedMessage(rollouts), in.back, in.unwritten, waitingMessage(rollouts), held)))
	set(applied(status.Summary, n.chosen))
	setProgress(status, in, rollouts, complete, errors.Join(invalid...))
}

// outsideError returns which clusters a placement has chosen that its namespace may not reach; nil if
// there are none.
func outsideError(r placementRollout) error {
	if len(r.outside) == 0 {
		return nil
	}
	return fmt.Errorf("placement %s: %d clusters are in no ManagedClusterSet that is bound to the namespace, and their works stay unchanged: %s",
		r.placement, len(r.outside), joinNames(r.outside))
}

func verified(chosen int, err error) metav1.Condition {
	const kind = workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified
	switch {
	case err != nil:
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: workv1alpha1.ReasonNotAsExpected,
			Message: redaction.WithoutValues(err, false).Error()}
	case chosen == 0:
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: workv1alpha1.ReasonPlacementDecisionEmpty}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: workv1alpha1.ReasonAsExpected}
}

func rolledOut(complete bool, message string) metav1.Condition {
	const kind = workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut
	if complete {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: workv1alpha1.ReasonComplete}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: workv1alpha1.ReasonProgressing, Message: message}
}

func applied(works workv1alpha1.ManifestWorkReplicaSetSummary, chosen int) metav1.Condition {
	c := metav1.Condition{
		Type:   workv1alpha1.ManifestWorkReplicaSetConditionManifestworkApplied,
		Status: metav1.ConditionFalse, Reason: workv1alpha1.ReasonNotAsExpected,
	}
	switch {
	case works.Total == 0:
		if chosen == 0 {
			c.Reason = workv1alpha1.ReasonPlacementDecisionEmpty
		}
	case works.Available == works.Total && works.Progressing == 0 && works.Degraded == 0:
		c.Status, c.Reason = metav1.ConditionTrue, workv1alpha1.ReasonAsExpected
	case works.Progressing > 0 && works.Degraded == 0:
		c.Reason = workv1alpha1.ReasonProcessing
	}
	return c
}

// stoppedMessage names the clusters whose failures stop rollouts; empty if there are none. It names
// the placements if there are several.
func stoppedMessage(rollouts []placementRollout) string {
	var texts []string
	for _, r := range rollouts {
		clusters := r.decision.StoppedBy
		if len(clusters) == 0 {
			continue
		}
		where := ""
		if len(rollouts) > 1 {
			where = " in placement " + r.placement
		}
		texts = append(texts, "stopped"+where+": "+failuresText(clusters))
	}
	return strings.Join(texts, "; ")
}

func failuresText(clusters []string) string {
	noun := "clusters"
	if len(clusters) == 1 {
		noun = "cluster"
	}
	return fmt.Sprintf("%d %s failed or timed out, more than allowed: %s", len(clusters), noun, joinNames(clusters))
}

// joinNames joins up to maxClusters cluster names.
func joinNames(clusters []string) string {
	return condition.First(clusters, maxClusters, len(clusters), ", ")
}

// conditionSetter returns a function that sets a condition. Its transition time is now if its
// status has changed.
func conditionSetter(status *workv1alpha1.ManifestWorkReplicaSetStatus, now time.Time) func(metav1.Condition) {
	status.Conditions = slices.Clone(status.Conditions)
	return func(c metav1.Condition) {
		c.LastTransitionTime = metav1.NewTime(now)
		if len(c.Message) > maxMessage {
			c.Message = strings.ToValidUTF8(c.Message[:maxMessage], "")
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
}

package dashboard

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/works"
)

// state is how something is, as one word of the pages and of the filters in URLs.
type state string

// States of works, the ones that need somebody first.
const (
	stateFailed      state = "failed"      // it cannot be delivered or applied, or it is degraded
	statePending     state = "pending"     // its cluster has not answered for this generation
	statePaused      state = "paused"      // pending, because somebody has paused it
	stateDeleting    state = "deleting"    // its cluster removes the objects
	stateProgressing state = "progressing" // applied, and not ready yet
	stateReady       state = "ready"       // applied and available, or complete
)

// workStates are all states of works in the order of their ranks.
var workStates = []state{stateFailed, statePending, statePaused, stateDeleting, stateProgressing, stateReady}

// WorkStates returns all states of works, the ones that need somebody first.
func WorkStates() []string {
	names := make([]string, len(workStates))
	for i, s := range workStates {
		names[i] = string(s)
	}
	return names
}

// StatePending is the state of a work whose cluster has not answered for its newest generation.
const StatePending = string(statePending)

// StateOf returns the state of a work, one of [WorkStates]. It depends on the work alone.
func StateOf(work *workv1.ManifestWork) string {
	s, _, _ := stateOf(work, workv1.IsPaused(work))
	return string(s)
}

// workRow is a work in lists.
type workRow struct {
	Namespace, Name string
	State           state
	Since           time.Time // since when it is in State, zero if that is not known
	Why             string    // what keeps it from being ready, "" if it is
	Generation      int64
	Observed        int64 // the generation that the cluster has answered for, 0 if none
	Paused          bool
	ReplicaSet      string // namespace.name, "" if it is of none
	Labels          map[string]string
}

// rowOf returns the row of a work.
func rowOf(work *workv1.ManifestWork) workRow {
	row := workRow{
		Namespace: work.Namespace, Name: work.Name, Generation: work.Generation, Labels: work.Labels,
		Paused:     workv1.IsPaused(work),
		ReplicaSet: work.Labels[workv1.ReplicaSetLabelKey],
	}
	if applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); applied != nil {
		row.Observed = applied.ObservedGeneration
	}
	row.State, row.Since, row.Why = stateOf(work, row.Paused)
	return row
}

// stateOf returns the state of a work, since when, and why it is not ready.
func stateOf(work *workv1.ManifestWork, paused bool) (state, time.Time, string) {
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(work.Status.Conditions, kind) }
	applied, delivered := find(workv1.WorkApplied), find(workv1.WorkDelivered)
	current := applied != nil && applied.ObservedGeneration >= work.Generation
	switch {
	case work.DeletionTimestamp != nil:
		why := "the cluster has not confirmed yet that the objects are gone"
		if c := find(workv1.WorkDeleting); is(c, metav1.ConditionTrue) && c.Message != "" {
			why = c.Message
		}
		return stateDeleting, work.DeletionTimestamp.Time, why
	case !current:
		return undelivered(work, applied, delivered, paused)
	case applied.Status != metav1.ConditionTrue:
		return stateFailed, applied.LastTransitionTime.Time, cmp.Or(manifestError(work, workv1.ManifestApplied, metav1.ConditionFalse), text(applied))
	}
	available := find(workv1.WorkAvailable)
	if c := find(workv1.WorkDegraded); is(c, metav1.ConditionTrue) {
		return stateFailed, c.LastTransitionTime.Time, cmp.Or(manifestError(work, workv1.ManifestDegraded, metav1.ConditionTrue), text(c))
	}
	if c := find(workv1.WorkComplete); is(c, metav1.ConditionTrue) {
		return stateReady, c.LastTransitionTime.Time, ""
	}
	if !is(available, metav1.ConditionTrue) {
		if available == nil {
			return stateProgressing, applied.LastTransitionTime.Time, "the cluster has not reported yet whether the objects are there"
		}
		return stateProgressing, available.LastTransitionTime.Time,
			cmp.Or(manifestError(work, workv1.ManifestAvailable, metav1.ConditionFalse), text(available))
	}
	if c := find(workv1.WorkProgressing); is(c, metav1.ConditionTrue) {
		return stateProgressing, c.LastTransitionTime.Time, cmp.Or(manifestError(work, workv1.ManifestProgressing, metav1.ConditionTrue), text(c))
	}
	return stateReady, available.LastTransitionTime.Time, ""
}

// undelivered returns the state of a work whose cluster has not answered for its generation.
func undelivered(work *workv1.ManifestWork, applied, delivered *metav1.Condition, paused bool) (state, time.Time, string) {
	if delivered != nil && delivered.ObservedGeneration >= work.Generation && delivered.Status != metav1.ConditionTrue {
		since := delivered.LastTransitionTime.Time
		switch {
		case delivered.Reason == workv1.ReasonPaused:
			return statePaused, since, text(delivered)
		case delivered.Status == metav1.ConditionFalse && permanent[delivered.Reason]:
			return stateFailed, since, text(delivered)
		}
		return statePending, since, text(delivered)
	}
	if paused {
		return statePaused, time.Time{}, "paused: newer specs are not published"
	}
	if applied == nil {
		return statePending, work.CreationTimestamp.Time, "the cluster has not answered yet"
	}
	return statePending, time.Time{}, fmt.Sprintf("the cluster has answered for generation %d, not yet for %d", applied.ObservedGeneration, work.Generation)
}

// manifestError returns the first manifest whose condition has this status, and how many have.
func manifestError(work *workv1.ManifestWork, kind string, status metav1.ConditionStatus) string {
	first, count := "", 0
	work = works.UnpackStatus(work)
	for i := range work.Status.ResourceStatus.Manifests {
		m := &work.Status.ResourceStatus.Manifests[i]
		c := meta.FindStatusCondition(m.Conditions, kind)
		if !is(c, status) {
			continue
		}
		if count++; count == 1 {
			first = objectName(m.ResourceMeta) + ": " + text(c)
		}
	}
	if count > 1 {
		first = fmt.Sprintf("%s (and %d more)", first, count-1)
	}
	return first
}

// objectName returns how people name an object: Deployment shop/web.
func objectName(m workv1.ManifestResourceMeta) string {
	name := strings.TrimPrefix(m.Namespace+"/"+m.Name, "/")
	if m.Kind == "" && m.Name == "" {
		return fmt.Sprintf("manifest %d", m.Ordinal)
	}
	return strings.TrimSpace(cmp.Or(m.Kind, m.Resource) + " " + name)
}

func is(c *metav1.Condition, status metav1.ConditionStatus) bool {
	return c != nil && c.Status == status
}

// text returns the message of a condition, or its reason.
func text(c *metav1.Condition) string { return cmp.Or(c.Message, c.Reason) }

// permanent are the reasons of Delivered=False that waiting does not repair.
var permanent = map[string]bool{
	workv1.ReasonClusterNotFound: true, workv1.ReasonNobodyListens: true, workv1.ReasonTooLarge: true, workv1.ReasonAccessRefused: true,
}

// Package workstate tells how a ManifestWork is: the phase that it is in, since when, the one thing that
// keeps it from going on, and what to do about it. Pages, commands, metrics and rollouts say what it
// says. It is pure: a state is a function of objects of the hub's API.
//
//	s := workstate.Of(work, cluster)
//	fmt.Println(s.Phase, s.Since, s.Why())
//	if s.Blocker != nil { fmt.Println(s.Blocker.Cause, s.Blocker.Do) }
//
// It reads what hub and agent write: the conditions of the work and of its manifests (docs/conditions.md),
// and the conditions of the cluster (docs/clusters.md). Conditions of an older generation do not count.
// Texts of errors are the API server's; where a cause has no reason of its own they tell it.
//
// workstate.go decides about the phase, cause.go about what keeps a work from going on: manifest.go by its manifests,
// delivery.go on the way to the cluster, agent.go by what the agent says of the work as a whole. advice.go has what to do, set.go the same for a set.
package workstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// Phase is what a work is in, one word.
type Phase string

// Phases, the ones that need somebody first.
const (
	PhaseFailed      Phase = "failed"      // it cannot be delivered or applied, or it is degraded
	PhasePending     Phase = "pending"     // its cluster has not answered for this generation
	PhasePaused      Phase = "paused"      // pending, because somebody has paused it
	PhaseDeleting    Phase = "deleting"    // its cluster removes the objects
	PhaseProgressing Phase = "progressing" // its cluster has it, and it is not ready yet
	PhaseWarned      Phase = "warned"      // as PhaseApplied or PhaseReady, and something in it is not as somebody wrote it
	PhaseApplied     Phase = "applied"     // applied and available; nobody watches whether its objects are ready
	PhaseReady       Phase = "ready"       // applied and ready, or complete
)

// Phases returns all phases, the ones that need somebody first.
func Phases() []Phase {
	return []Phase{PhaseFailed, PhasePending, PhasePaused, PhaseDeleting, PhaseProgressing, PhaseWarned, PhaseApplied, PhaseReady}
}

// NotWatched says why a work is in [PhaseApplied].
const NotWatched = "readiness not watched"

// State is how a work is.
type State struct {
	Phase Phase `json:"-"`
	// Since is when Phase began; zero: not known.
	Since time.Time `json:"-"`
	// By is the condition that decided Phase; nil if none did, as where one is missing.
	By *metav1.Condition `json:"-"`
	// Blocker is what keeps the work from going on, or somebody has to correct; nil: nothing.
	Blocker *Blocker `json:"blocker,omitempty"`
}

// Blocker is a cause, and what to do.
type Blocker struct {
	// Cause is one word for programs.
	Cause Cause `json:"cause"`
	// Object is what the cause is about, such as "Deployment default/web" or "ManagedCluster cluster1".
	Object string `json:"object"`
	// Reason is the reason of the condition that told it; empty if no condition did.
	Reason string `json:"reason,omitempty"`
	// Message is one sentence for people.
	Message string `json:"message"`
	// Do is what to do.
	Do string `json:"do"`
	// Since is when it began, if known.
	Since *metav1.Time `json:"since,omitempty"`
	// More is how many other manifests of the work are blocked by the same.
	More int `json:"more,omitempty"`
	// Others are what else blocks manifests of the work, one for each cause and message.
	Others []Blocker `json:"others,omitempty"`
	// OfManifest says that Object is that of a manifest of the work, and Message what it reports.
	OfManifest bool `json:"-"`
}

// Facts is what is known of a work.
type Facts struct {
	// Now is the time to which Leases are compared.
	Now time.Time
	// Work is the work; required.
	Work *workv1.ManifestWork
	// Cluster is the ManagedCluster of the work's namespace. NoCluster says that there is none; nil
	// without it means that it is not known.
	Cluster   *clusterv1.ManagedCluster
	NoCluster bool
	// Presence is the hub's Lease [clusterv1.HubPresenceLeaseName], and Leader that of its leader
	// election; nil if not known.
	Presence, Leader *coordinationv1.Lease
	// Set is the ManifestWorkReplicaSet that the work belongs to; nil if it belongs to none or the set
	// is not known.
	Set *workv1alpha1.ManifestWorkReplicaSet
}

// Of returns how a work is. cluster is the ManagedCluster of its namespace; nil: not known.
func Of(work *workv1.ManifestWork, cluster *clusterv1.ManagedCluster) State {
	return (&Facts{Work: work, Cluster: cluster}).State()
}

// PhaseOf returns the phase of a work by the work alone. It costs less than [Of], and reads no manifests.
func PhaseOf(work *workv1.ManifestWork) Phase { return warned(work, Reached(work)) }

// Reached is [PhaseOf] but for warnings: of a work in [PhaseWarned], whether it is applied or ready.
func Reached(work *workv1.ManifestWork) Phase {
	phase, _ := decide(work, nil)
	return phase
}

func warned(work *workv1.ManifestWork, phase Phase) Phase {
	if (phase == PhaseApplied || phase == PhaseReady) && condition.Warnings(Current(work, workv1.WorkApplied)) != "" {
		return PhaseWarned
	}
	return phase
}

// State returns how the work is, as far as f tells.
func (f *Facts) State() State {
	s := State{}
	s.Phase, s.By = decide(f.Work, f.Cluster)
	s.Since = since(f.Work, &s)
	s.Phase = warned(f.Work, s.Phase)
	s.Blocker = f.blocker(&s)
	return s
}

// since returns when the phase of a work began.
func since(w *workv1.ManifestWork, s *State) time.Time {
	applied := Current(w, workv1.WorkApplied)
	switch {
	case s.Phase == PhaseDeleting:
		return w.DeletionTimestamp.Time
	case s.By != nil:
		return s.By.LastTransitionTime.Time
	case s.Phase == PhasePending && meta.FindStatusCondition(w.Status.Conditions, workv1.WorkApplied) == nil:
		return w.CreationTimestamp.Time
	case s.Phase == PhaseProgressing && applied != nil:
		return applied.LastTransitionTime.Time
	}
	return time.Time{}
}

// Why says in one line what keeps the work from being ready; empty if it is.
func (s *State) Why() string {
	switch b := s.Blocker; {
	case b == nil && s.Phase == PhaseReady:
		return ""
	case b == nil && s.Phase == PhaseApplied:
		return NotWatched
	case b == nil && s.By != nil:
		return text(s.By)
	case b == nil && s.Phase == PhaseDeleting:
		return "the cluster has not confirmed yet that the objects are gone"
	case b == nil:
		return "the cluster has not reported yet whether the objects are there"
	case !b.OfManifest:
		return b.Message
	case b.Objects() > 1:
		return fmt.Sprintf("%s: %s (and %d more)", b.Object, b.Message, b.Objects()-1)
	default:
		return b.Object + ": " + b.Message
	}
}

// Done reports whether a work has got as far as it can: it is ready, or applied and nobody watches more, and there is nothing to correct.
func (s *State) Done() bool {
	return s.Blocker == nil && (s.Phase == PhaseReady || s.Phase == PhaseApplied)
}

// Word says in one word, for workctl, whether a work goes on: Blocked, Progressing while it waits for what ends by itself, or
// else its phase.
func (s *State) Word() string {
	switch {
	case s.Blocked():
		return "Blocked"
	case s.Blocker != nil && s.Blocker.Cause != Warning:
		return "Progressing"
	}
	return strings.ToUpper(string(s.Phase[:1])) + string(s.Phase[1:])
}

// Objects returns how many objects of the work are blocked: this one, those by the same, and the others.
func (b *Blocker) Objects() int {
	n := 1 + b.More
	for i := range b.Others {
		n += b.Others[i].Objects()
	}
	return n
}

// decide returns the phase of a work, and the condition that decides.
func decide(w *workv1.ManifestWork, cluster *clusterv1.ManagedCluster) (Phase, *metav1.Condition) {
	applied, available := Current(w, workv1.WorkApplied), Current(w, workv1.WorkAvailable)
	progressing, degraded := Current(w, workv1.WorkProgressing), Current(w, workv1.WorkDegraded)
	complete := Current(w, workv1.WorkComplete)
	switch {
	case w.DeletionTimestamp != nil:
		if c := meta.FindStatusCondition(w.Status.Conditions, workv1.WorkDeleting); is(c, metav1.ConditionTrue) {
			return PhaseDeleting, c
		}
		return PhaseDeleting, nil
	case !Answered(w):
		return undelivered(w, cluster)
	case is(applied, metav1.ConditionFalse):
		return PhaseFailed, applied
	case !is(applied, metav1.ConditionTrue):
		return waiting(applied, degraded)
	case is(complete, metav1.ConditionTrue) && !is(degraded, metav1.ConditionTrue):
		return PhaseReady, complete
	case available == nil, stale(w, workv1.WorkProgressing), stale(w, workv1.WorkDegraded):
		return PhaseProgressing, nil // the agent reports the conditions of rules together with Available
	case is(degraded, metav1.ConditionTrue):
		return PhaseFailed, degraded
	case progressing != nil && progressing.Status != metav1.ConditionFalse:
		return PhaseProgressing, progressing
	case available.Status != metav1.ConditionTrue:
		return PhaseProgressing, available
	case progressing != nil:
		return PhaseReady, progressing
	case degraded != nil:
		return PhaseReady, available
	}
	return PhaseApplied, available
}

// waiting is [decide] for a work that is neither applied nor not applied. What it waits for may have failed.
func waiting(applied, degraded *metav1.Condition) (Phase, *metav1.Condition) {
	switch {
	case applied == nil || waits[applied.Reason].cause == "":
		return PhaseProgressing, nil
	case is(degraded, metav1.ConditionTrue):
		return PhaseFailed, degraded
	}
	return PhaseProgressing, applied
}

// undelivered is [decide] for a work whose newest generation the agent has not answered.
func undelivered(w *workv1.ManifestWork, cluster *clusterv1.ManagedCluster) (Phase, *metav1.Condition) {
	applied, delivered := Current(w, workv1.WorkApplied), Current(w, workv1.WorkDelivered)
	switch {
	case delivered != nil && delivered.Reason == workv1.ReasonPaused:
		return PhasePaused, delivered
	case workv1.IsPaused(w), cluster != nil && workv1.IsPaused(cluster):
		return PhasePaused, nil
	case is(applied, metav1.ConditionFalse): // by the hub, which cannot send it
		return PhaseFailed, applied
	case is(delivered, metav1.ConditionFalse) && permanent[delivered.Reason]:
		return PhaseFailed, delivered
	}
	return PhasePending, delivered
}

// permanent are the reasons of Delivered False that waiting does not repair. A cluster that is not accepted
// may be at any time.
var permanent = map[string]bool{
	workv1.ReasonClusterNotFound: true, workv1.ReasonNobodyListens: true, workv1.ReasonTooLarge: true, workv1.ReasonAccessRefused: true,
	workv1.ReasonNoSealKey: true,
}

// Answered reports whether the agent has answered the newest generation of a work.
func Answered(w *workv1.ManifestWork) bool {
	if c := Current(w, workv1.WorkDelivered); c != nil {
		return c.Status == metav1.ConditionTrue
	}
	return IsAnswer(w, &w.Status)
}

// IsAnswer reports whether status is the agent's about the newest generation of w. A status of a spec
// that is not deleted yet says nothing about the deletion.
func IsAnswer(w *workv1.ManifestWork, status *workv1.ManifestWorkStatus) bool {
	if w.DeletionTimestamp != nil {
		return meta.IsStatusConditionTrue(status.Conditions, workv1.WorkDeleting) || meta.IsStatusConditionTrue(status.Conditions, workv1.WorkDeleted)
	}
	return slices.ContainsFunc(status.Conditions, func(c metav1.Condition) bool {
		return c.Type == workv1.WorkApplied && c.ObservedGeneration >= w.Generation && !writtenByHub(&c)
	})
}

// Observed returns the generation that the agent's newest status is about, 0 if there is none.
// Conditions that the hub writes do not count.
func Observed(w *workv1.ManifestWork) int64 {
	newest := int64(0)
	for i := range w.Status.Conditions {
		if c := &w.Status.Conditions[i]; !workv1.IsOfHub(c) && !writtenByHub(c) {
			newest = max(newest, c.ObservedGeneration)
		}
	}
	return newest
}

// writtenByHub reports whether the hub has written an Applied condition for a spec that it cannot send.
func writtenByHub(c *metav1.Condition) bool {
	return c.Type == workv1.WorkApplied && workv1.IsRefusal(c.Reason)
}

// Current returns a condition of the newest generation of a work; nil if there is none.
func Current(w *workv1.ManifestWork, kind string) *metav1.Condition {
	c := meta.FindStatusCondition(w.Status.Conditions, kind)
	if c == nil || c.ObservedGeneration != w.Generation {
		return nil
	}
	return c
}

// stale reports whether a work has a condition, and it is of another generation.
func stale(w *workv1.ManifestWork, kind string) bool {
	return Current(w, kind) == nil && meta.FindStatusCondition(w.Status.Conditions, kind) != nil
}

// ReportsReady reports whether conditions of a work say that all objects are ready; works that do not report readiness are not.
func ReportsReady(conditions []metav1.Condition) bool {
	return meta.IsStatusConditionFalse(conditions, workv1.WorkProgressing) && !meta.IsStatusConditionTrue(conditions, workv1.WorkDegraded)
}

func is(c *metav1.Condition, status metav1.ConditionStatus) bool {
	return c != nil && c.Status == status
}

// text returns the message of a condition, or its reason.
func text(c *metav1.Condition) string { return cmp.Or(c.Message, c.Reason) }

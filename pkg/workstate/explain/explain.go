// Package explain tells how far the newest spec of a ManifestWork has got, and the one thing that keeps
// it from going on, with what to do about it. It is pure: the explanation is a function of objects of
// the hub's API.
//
//	e := explain.Explain(explain.Facts{Now: time.Now(), Work: work, Cluster: cluster, Presence: lease})
//	for _, hop := range e.Hops { ... }
//	if e.Blocker != nil { fmt.Println(e.Blocker.Message, e.Blocker.Do) }
//
// It reads what hub and agent write: the condition Delivered and status.delivery, the conditions of the
// work and of its manifests (docs/conditions.md), and the conditions of the cluster (docs/clusters.md).
// Texts of errors are the API server's; where a cause has no reason of its own they tell it.
package explain

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// Facts is what is known of a work.
type Facts struct {
	// Now is the time of the explanation.
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

// Explanation says how far the newest generation of a work has got.
type Explanation struct {
	// Cluster and Name identify the work, Generation is that of its newest spec.
	Cluster    string `json:"cluster"`
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	// Observed is the generation that the agent's newest status is about; 0 if there is none.
	Observed int64 `json:"observedGeneration"`
	// State sums it up.
	State State `json:"state"`
	// Hops are the steps of the way, in order.
	Hops []Hop `json:"hops"`
	// Blocker is what keeps the work from going on; nil if nothing does.
	Blocker *Blocker `json:"blocker,omitempty"`
	// Notes are further remarks, each a sentence.
	Notes []string `json:"notes,omitempty"`
}

// State is a summary of a work.
type State string

// States.
const (
	// Ready: the newest spec is applied and its objects are ready, as far as they report it.
	Ready State = "Ready"
	// Progressing: the newest spec is on its way, and nothing is known to block it.
	Progressing State = "Progressing"
	// Blocked: the newest spec does not go on without an action, or before somebody is back.
	Blocked State = "Blocked"
	// Deleting: the work is being deleted, and nothing is known to block it.
	Deleting State = "Deleting"
)

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
	// More is how many other manifests of the work have a blocker too.
	More int `json:"more,omitempty"`
}

// Cause is what blocks a work.
type Cause string

// Causes on the way to the cluster.
const (
	ClusterNotFound    Cause = "ClusterNotFound"
	ClusterNotAccepted Cause = "ClusterNotAccepted"
	AgentOff           Cause = "AgentOff"
	BrokerOff          Cause = "BrokerOff"
	HubOff             Cause = "HubOff"
	AccessRefused      Cause = "AccessRefused"
	TooLarge           Cause = "TooLarge"
	InvalidClusterName Cause = "InvalidClusterName"
	HeldBack           Cause = "HeldBack"
	NobodyListens      Cause = "NobodyListens"
	Paused             Cause = "Paused"
	ClusterPaused      Cause = "ClusterPaused"
	SetPaused          Cause = "SetPaused"
	RolloutWaits       Cause = "RolloutWaits"
	StatusesRefused    Cause = "StatusesRefused"
	NotAnswered        Cause = "NotAnswered"
)

// Causes at the agent.
const (
	Untrusted    Cause = "Untrusted"
	Unsealed     Cause = "Unsealed"
	InvalidSpec  Cause = "InvalidSpec"
	DeletionHeld Cause = "DeletionHeld"
)

// Causes on the cluster.
const (
	Forbidden       Cause = "Forbidden"
	ExecutorDenied  Cause = "ExecutorDenied"
	Webhook         Cause = "Webhook"
	WebhookFailed   Cause = "WebhookFailed"
	Policy          Cause = "Policy"
	Quota           Cause = "Quota"
	Conflict        Cause = "Conflict"
	UnknownKind     Cause = "UnknownKind"
	NoNamespace     Cause = "NoNamespace"
	Immutable       Cause = "Immutable"
	UnknownStrategy Cause = "UnknownStrategy"
	InvalidManifest Cause = "InvalidManifest"
	NotApplied      Cause = "NotApplied"
	Missing         Cause = "Missing"
	Unreadable      Cause = "Unreadable"
	Unschedulable   Cause = "Unschedulable"
	ImagePull       Cause = "ImagePull"
	CrashLoop       Cause = "CrashLoop"
	NotReady        Cause = "NotReady"
	Failed          Cause = "Failed"
	Finalizer       Cause = "Finalizer"
	Budget          Cause = "Budget"
	InvalidRule     Cause = "InvalidRule"
)

// Explain explains the newest generation of a work.
func Explain(f Facts) Explanation {
	w := f.Work
	e := Explanation{Cluster: w.Namespace, Name: w.Name, Generation: w.Generation, Observed: observed(w), State: Ready}
	e.Hops = hops(w)
	e.Blocker = blocker(&f)
	e.Notes = notes(&f, &e)
	switch {
	case e.Blocker != nil && waits(e.Blocker.Cause):
		e.State = Progressing
	case e.Blocker != nil:
		e.State = Blocked
	case w.DeletionTimestamp != nil:
		e.State = Deleting
	case !Answered(w) || !settled(e.Hops):
		e.State = Progressing
	}
	return e
}

// waits reports whether a cause usually ends by itself.
func waits(cause Cause) bool {
	return cause == NotAnswered || cause == NotReady || cause == RolloutWaits
}

// blocker returns the first cause in the order of the way.
func blocker(f *Facts) *Blocker {
	for _, look := range []func(*Facts) *Blocker{clusterBlocker, deliveryBlocker, presenceBlocker, agentBlocker} {
		if b := look(f); b != nil {
			return b
		}
	}
	if f.Work.DeletionTimestamp != nil {
		return deletionBlocker(f)
	}
	for _, look := range []func(*Facts) *Blocker{answerBlocker, manifestBlocker, setBlocker} {
		if b := look(f); b != nil {
			return b
		}
	}
	return nil
}

// observed returns the generation that the agent's newest status is about. Conditions that the hub
// writes do not count.
func observed(w *workv1.ManifestWork) int64 {
	newest := int64(0)
	for _, c := range w.Status.Conditions {
		if c.Type != workv1.WorkDelivered && !writtenByHub(&c) {
			newest = max(newest, c.ObservedGeneration)
		}
	}
	return newest
}

// writtenByHub reports whether the hub has written an Applied condition for a spec that it cannot send.
func writtenByHub(c *metav1.Condition) bool {
	return c.Type == workv1.WorkApplied && (c.Reason == reasonTooLarge || c.Reason == reasonNotAuthorized || c.Reason == reasonInvalidClusterName)
}

// Answered reports whether the agent has answered the newest generation of a work.
func Answered(w *workv1.ManifestWork) bool {
	if c := meta.FindStatusCondition(w.Status.Conditions, workv1.WorkDelivered); c != nil && c.ObservedGeneration == w.Generation {
		return c.Status == metav1.ConditionTrue
	}
	return observed(w) >= w.Generation && w.Generation > 0
}

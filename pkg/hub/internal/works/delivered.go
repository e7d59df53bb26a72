package works

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
)

// facts are what is known about the delivery of a pending work.
type facts struct {
	// name of the cluster.
	name string
	// deleting: the newest state of the work is its deletion.
	deleting bool
	// pausedBy is the kind of the object with the annotation that pauses the work, empty: none.
	pausedBy string
	// registry: clusters have ManagedClusters, and cluster is that of the work, nil if there is none.
	registry bool
	cluster  *clusterv1.ManagedCluster
	// accepted: works may be delivered to the cluster.
	accepted bool
	// connected: the hub is connected to the broker.
	connected bool
	// published is the last publish of the generation that has ended, nil: none has.
	published *delivery.Publication
}

// delivered returns status, reason and message of the condition Delivered. The message depends on
// nothing that changes while the cause stays.
func delivered(f facts) (status metav1.ConditionStatus, reason, message string) {
	what := "spec"
	if f.deleting {
		what = "deletion"
		if f.refused() != "" {
			what = "last spec, which must go before the deletion,"
		}
	}
	if reason, message = blockedByHub(f, what); reason == "" {
		reason, message = blockedByBroker(f, what)
	}
	if reason != "" {
		return metav1.ConditionFalse, reason, message
	}
	return metav1.ConditionUnknown, workv1.ReasonPublished, fmt.Sprintf(
		"The broker has the %s, and the agent of cluster %s has not answered: if this lasts, see the agent's log", what, f.name)
}

// blockedByHub returns why the hub does not send the newest state, an empty reason if it does.
func blockedByHub(f facts, what string) (reason, message string) {
	switch {
	case f.pausedBy != "" && !f.deleting:
		return workv1.ReasonPaused, workstate.PausedMessage(f.pausedBy)
	case f.refused() == workv1.ReasonInvalidClusterName:
		return workv1.ReasonClusterNotFound, fmt.Sprintf(
			"The namespace %s cannot be the name of a cluster that this hub serves: create the work in the namespace of a cluster", f.name)
	case f.registry && f.cluster == nil && (!f.accepted || f.nobodyListens()):
		return workv1.ReasonClusterNotFound, fmt.Sprintf(
			"There is no ManagedCluster %s: create the work in the namespace of a cluster, or have an agent of that name join", f.name)
	case f.cluster != nil && !f.accepted:
		return workv1.ReasonClusterNotAccepted, fmt.Sprintf(
			"The hub does not accept cluster %s: set spec.hubAcceptsClient of its ManagedCluster to true", f.name)
	case f.refused() == workv1.ReasonTooLarge:
		return workv1.ReasonTooLarge, fmt.Sprintf("The %s is not sent: %v. Make the work smaller, or raise the limit of the broker", what, f.published.Err)
	case f.refused() == workv1.ReasonNoSealKey:
		return workv1.ReasonNoSealKey, fmt.Sprintf(
			"The %s is not sent in clear, and cannot be sealed: %v. Put the public key of the cluster into the directory of --seal-keys", what, f.published.Err)
	}
	return "", ""
}

// blockedByBroker returns why what the hub sends does not arrive, an empty reason if it may.
func blockedByBroker(f facts, what string) (reason, message string) {
	switch {
	case !f.connected:
		return workv1.ReasonBrokerUnreachable, "The hub is not connected to the broker: see the log of work-hub, which says why"
	case f.refused() == workv1.ReasonNotAuthorized:
		return workv1.ReasonAccessRefused, fmt.Sprintf(
			"The broker does not allow the hub to publish to cluster %s: change the broker's access rules, the hub tries again when it reconnects", f.name)
	case f.away():
		message := fmt.Sprintf("The agent of cluster %s is not connected: the %s is delivered when it is back; its ManagedCluster says since when", f.name, what)
		if f.nobodyListens() {
			message += ". The broker holds no subscription of it: if it runs, the broker refuses its subscription, or it serves another cluster or source"
		}
		return workv1.ReasonClusterAway, message
	case f.nobodyListens():
		return workv1.ReasonNobodyListens, fmt.Sprintf(
			"The broker has no subscriber for cluster %s: check the topics and the cluster name of its agent", f.name)
	case f.published == nil:
		return workv1.ReasonHeldBack, fmt.Sprintf("The hub has not sent the %s yet: other works are sent before it, or its finalizer is not written; see the log of work-hub", what)
	case f.published.Err != nil:
		return workv1.ReasonHeldBack, fmt.Sprintf("The %s could not be sent and is tried again: %v", what, f.published.Err)
	}
	return "", ""
}

func (f facts) refused() string {
	if f.published == nil {
		return ""
	}
	return f.published.Refused
}

func (f facts) nobodyListens() bool { return f.published != nil && f.published.NobodyListens }

// away reports whether the agent is known not to be connected.
func (f facts) away() bool {
	if f.cluster == nil {
		return false
	}
	return clusterv1.IsAway(meta.FindStatusCondition(f.cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable))
}

// pausedBy returns the kind of the object that pauses work, empty if none does.
func pausedBy(work *workv1.ManifestWork, cluster *clusterv1.ManagedCluster) string {
	switch {
	case workv1.IsPaused(work):
		return "ManifestWork"
	case cluster != nil && workv1.IsPaused(cluster):
		return "ManagedCluster"
	}
	return ""
}

// answered returns the status to store when an agent sends s: what it reports, with the conditions
// Delivered and Ready, and with the times of known, which may be nil, and of s.
func answered(work *workv1.ManifestWork, s *wire.Status, known *workv1.DeliveryStatus, now metav1.Time) workv1.ManifestWorkStatus {
	status := s.Status
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool { return workv1.IsOfHub(&c) })
	for i := range work.Status.Conditions {
		if c := &work.Status.Conditions[i]; workv1.IsOfHub(c) && meta.FindStatusCondition(status.Conditions, c.Type) == nil {
			status.Conditions = append(status.Conditions, *c)
		}
	}
	status.Delivery = work.Status.Delivery
	if !isAnswer(work, s) {
		setReady(work, &status, now)
		return status
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: workv1.WorkDelivered, Status: metav1.ConditionTrue, Reason: workv1.ReasonAnswered,
		Message: "The agent has answered", ObservedGeneration: work.Generation, LastTransitionTime: now,
	})
	status.Delivery = merge(work, known)
	d := status.Delivery
	if s.Generation == wire.Generation(work.Generation) {
		setTime(&d.ReceivedTime, s.Times.Received, d.ReceivedTime == nil)
		setTime(&d.AppliedTime, s.Times.Applied, d.AppliedTime == nil)
		setTime(&d.ReadyTime, s.Times.Ready, true)
	}
	if !workstate.ReportsReady(status.Conditions) {
		d.ReadyTime = nil
	}
	setReady(work, &status, now)
	return status
}

// isAnswer reports whether s is about the newest state of work.
func isAnswer(work *workv1.ManifestWork, s *wire.Status) bool {
	current := s.Generation >= wire.Generation(work.Generation)
	if deleting := work.DeletionTimestamp != nil; deleting {
		current = s.Meta.DeletionTimestamp != nil
	}
	return current || workstate.IsAnswer(work, &s.Status)
}

// setTime sets to if from is not zero and it may be replaced.
func setTime(to **metav1.MicroTime, from metav1.MicroTime, replace bool) {
	if !from.IsZero() && replace {
		*to = from.DeepCopy()
	}
}

// merge returns what is stored of the delivery of work's generation, and known, which may be nil.
func merge(work *workv1.ManifestWork, known *workv1.DeliveryStatus) *workv1.DeliveryStatus {
	d := &workv1.DeliveryStatus{Generation: work.Generation}
	if stored := work.Status.Delivery; stored != nil && stored.Generation == work.Generation {
		d = stored.DeepCopy()
	}
	if known == nil || known.Generation != work.Generation {
		return d
	}
	if d.AcceptedTime == nil {
		d.AcceptedTime = known.AcceptedTime
	}
	if known.PublishedTime != nil {
		d.PublishedTime, d.AcknowledgedTime = known.PublishedTime, known.AcknowledgedTime
	}
	return d
}

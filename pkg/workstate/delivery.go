package workstate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// doDelivery is what to do for causes on the way. {cluster} and {work} stand for their names.
var doDelivery = map[Cause]string{
	ClusterNotFound:    "create the ManagedCluster {cluster}, or move the work to the namespace of a cluster that exists: workctl get clusters",
	ClusterNotAccepted: "accept it: kubectl patch managedcluster {cluster} --type=merge -p '{\"spec\":{\"hubAcceptsClient\":true}}'",
	AgentOff: "look at the agent on {cluster}: is its pod running, can it reach the broker, is its certificate valid? " +
		"May it subscribe to its topics (docs/brokers.md)? Its log says why it cannot connect or subscribe. The spec is delivered as soon as it is back",
	BrokerOff: "start the broker, or mend the hub's way to it: the hub's log has the error of each attempt to connect. " +
		"What waits is delivered as soon as the broker is back",
	HubOff: "start the hub: kubectl get pods -n workwire-hub, and its log. Until then nothing is delivered, and no status is newer than that",
	AccessRefused: "allow the hub's user to publish to the topic of {cluster} in the access rules of the broker (docs/brokers.md). " +
		"The hub sends the spec again when it next connects",
	TooLarge:           "split the work into smaller ones, or raise the packet limit of the broker (docs/limits.md)",
	InvalidClusterName: "create the work in the namespace of a cluster: names of clusters must be part of a topic, without /, + and #",
	HeldBack:           "read what holds it in the message; workctl describe cluster {cluster} shows the condition with what releases it",
	NobodyListens: "look at the agent on {cluster}: none subscribes to the topic of this hub. Its --cluster-name must be {cluster}, and its topics " +
		"must include this hub's source id",
	Unsealed:      "put the public sealing key of {cluster} into the directory of --seal-keys at the hub (docs/sealing.md)",
	Paused:        "to resume it: workctl resume work {work} -n {cluster}",
	ClusterPaused: "to resume it: workctl resume cluster {cluster}",
	StatusesRefused: "start the agent of {cluster} with --signing-key, and add its key to a file of --trusted-agents at the hub: workctl keys public " +
		"--key=FILE --cluster={cluster}. If it signs with a key that is there, somebody forges statuses (docs/signing.md)",
	NotAnswered: "wait some seconds. If it stays: the agent of {cluster} is connected but does not answer; its log and its Lease say " +
		"whether another replica leads, or it cannot reach its API server",
}

func (f *Facts) delivery(cause Cause, object, reason, message string, since *metav1.Time) *Blocker {
	return &Blocker{Cause: cause, Object: object, Reason: reason, Message: message, Since: since,
		Do: f.fill(doDelivery[cause])}
}

// fill puts the names of cluster and work into a text.
func (f *Facts) fill(text string) string {
	return strings.NewReplacer("{cluster}", f.Work.Namespace, "{work}", f.Work.Name).Replace(text)
}

func (f *Facts) clusterObject() string { return "ManagedCluster " + f.Work.Namespace }
func (f *Facts) workObject() string {
	return fmt.Sprintf("ManifestWork %s/%s", f.Work.Namespace, f.Work.Name)
}

// clusterBlocker looks at whether the cluster exists and is accepted.
func clusterBlocker(f *Facts) *Blocker {
	name := f.Work.Namespace
	delivered := Current(f.Work, workv1.WorkDelivered)
	switch {
	// A hub without --auto-register serves clusters that have no ManagedCluster: what it says counts.
	case f.NoCluster && !Answered(f.Work) && (delivered == nil || delivered.Reason == workv1.ReasonClusterNotFound):
		return f.delivery(ClusterNotFound, f.clusterObject(), "", fmt.Sprintf("There is no ManagedCluster %s, so the work is sent to nobody.", name), nil)
	case f.Cluster != nil && !f.Cluster.Spec.HubAcceptsClient:
		return f.delivery(ClusterNotAccepted, f.clusterObject(), "", fmt.Sprintf("The hub does not accept the cluster %s: hubAcceptsClient is false.", name), nil)
	}
	return nil
}

// deliveryCauses maps reasons of Delivered False to causes.
var deliveryCauses = map[string]Cause{
	workv1.ReasonClusterNotFound: ClusterNotFound, workv1.ReasonClusterNotAccepted: ClusterNotAccepted,
	workv1.ReasonClusterAway: AgentOff, workv1.ReasonBrokerUnreachable: BrokerOff, workv1.ReasonNobodyListens: NobodyListens,
	workv1.ReasonTooLarge: TooLarge, workv1.ReasonAccessRefused: AccessRefused, workv1.ReasonHeldBack: HeldBack, workv1.ReasonNoSealKey: Unsealed, workv1.ReasonPaused: Paused,
	workv1.ReasonNotAuthorized: AccessRefused, workv1.ReasonInvalidClusterName: InvalidClusterName,
}

// PausedMessage is the message of Delivered with the reason Paused, where the annotation that pauses the work is on an
// object of this kind: ManifestWork or ManagedCluster.
func PausedMessage(kind string) string {
	return fmt.Sprintf("The %s carries the annotation %s: remove it to have the newest spec sent", kind, workv1.PausedAnnotationKey)
}

// deliveryBlocker looks at what the hub says about the newest generation, and at pauses.
func deliveryBlocker(f *Facts) *Blocker {
	w := f.Work
	if Answered(w) && w.DeletionTimestamp == nil {
		return nil
	}
	if w.DeletionTimestamp == nil { // deletions are not paused
		if workv1.IsPaused(f.Work) {
			return f.delivery(Paused, f.workObject(), workv1.ReasonPaused, "The work is paused: the hub sends no newer spec of it.", nil)
		}
		if f.Cluster != nil && workv1.IsPaused(f.Cluster) {
			return f.delivery(ClusterPaused, f.clusterObject(), workv1.ReasonPaused, "The cluster is paused: the hub sends it no newer specs.", nil)
		}
	}
	for _, c := range []*metav1.Condition{Current(w, workv1.WorkDelivered), Current(w, workv1.WorkApplied)} {
		if c == nil || c.Status != metav1.ConditionFalse || c.Type == workv1.WorkApplied && !writtenByHub(c) {
			continue
		}
		if cause := deliveryCauses[c.Reason]; cause != "" {
			if w.DeletionTimestamp != nil && cause == Paused {
				continue
			}
			if cause == Paused && c.Message == PausedMessage("ManagedCluster") {
				cause = ClusterPaused
			}
			object := f.workObject()
			switch cause {
			case AgentOff, ClusterNotFound, ClusterNotAccepted, NobodyListens, ClusterPaused:
				object = f.clusterObject()
			case BrokerOff:
				object = "broker"
			}
			return f.delivery(cause, object, c.Reason, text(c), &c.LastTransitionTime)
		}
	}
	return nil
}

// presenceBlocker looks at whether hub, broker and agent are there.
func presenceBlocker(f *Facts) *Blocker {
	if f.Presence != nil && Expired(f.Presence, f.Now) {
		since := renewed(f.Presence)
		if f.Leader != nil && !Expired(f.Leader, f.Now) {
			return f.delivery(BrokerOff, "broker", "", "The hub is running and has no connection to the broker: "+
				"statuses are as they were when it was lost.", since)
		}
		return f.delivery(HubOff, "hub", "", "The hub does not renew its Lease: it is not running, or cannot reach this API, or has lost the broker. "+
			"Everything shown is as it was then.", since)
	}
	if f.Cluster == nil {
		return nil
	}
	available := meta.FindStatusCondition(f.Cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	if available == nil || available.Status == metav1.ConditionTrue {
		return nil
	}
	if available.Reason == clusterv1.ReasonHubDisconnected && f.Presence == nil { // or else its Lease tells that the hub is back
		return f.delivery(BrokerOff, "broker", available.Reason, available.Message, &available.LastTransitionTime)
	}
	return f.delivery(AgentOff, f.clusterObject(), available.Reason, cmp.Or(available.Message, "The agent of the cluster is not connected."), &available.LastTransitionTime)
}

// defaultLease is the duration of a Lease that says none.
const defaultLease = 60 * time.Second

// Expired reports whether a Lease has not been renewed for longer than its duration, by default 60 s.
func Expired(l *coordinationv1.Lease, now time.Time) bool {
	at := renewed(l)
	duration := defaultLease
	if l.Spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return at == nil || now.Sub(at.Time) > duration
}

func renewed(l *coordinationv1.Lease) *metav1.Time {
	if l.Spec.RenewTime == nil {
		return nil
	}
	return &metav1.Time{Time: l.Spec.RenewTime.Time}
}

// answerBlocker tells that the spec is on its way and the agent has not answered yet, or that its
// answers are refused.
func answerBlocker(f *Facts) *Blocker {
	if Answered(f.Work) {
		return nil
	}
	if b := refusedBlocker(f); b != nil {
		return b
	}
	since := f.Work.CreationTimestamp
	message := "The cluster has not answered yet: the hub has not told yet whether it has sent this generation."
	if observed := Observed(f.Work); observed > 0 {
		message = fmt.Sprintf("The cluster has answered for generation %d, not yet for %d: the hub has not told yet whether it has sent it.", observed, f.Work.Generation)
	}
	reason := ""
	if c := Current(f.Work, workv1.WorkDelivered); c != nil {
		since, message, reason = c.LastTransitionTime, text(c), c.Reason
	}
	return f.delivery(NotAnswered, f.clusterObject(), reason, message, &since)
}

// refusedBlocker tells that the hub refuses statuses of the cluster because of their signature.
func refusedBlocker(f *Facts) *Blocker {
	if f.Cluster == nil {
		return nil
	}
	c := meta.FindStatusCondition(f.Cluster.Status.Conditions, clusterv1.ManagedClusterConditionStatusesTrusted)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return f.delivery(StatusesRefused, f.clusterObject(), c.Reason, c.Message, &c.LastTransitionTime)
}

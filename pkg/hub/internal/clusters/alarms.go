package clusters

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// alarm is something that may be wrong with a cluster.
type alarm int

const (
	diverged  alarm = iota // works that its agent holds differ from those of the hub
	untrusted              // statuses are refused because of their signature
	noisy                  // it has used up its quota
	alarmCount
)

// alarms are the conditions of alarms, and the events when they begin and end. A cluster that never had an alarm does not
// have its condition.
var alarms = [alarmCount]struct {
	condition string
	during    metav1.ConditionStatus // while there is an alarm
	// reason and message of the condition after an alarm.
	reason, message string
	began, ended    string
	// memory is how long an alarm of a hub before this process stays, while the agent is connected and this process has
	// found nothing.
	memory time.Duration
}{
	diverged: {
		condition: clusterv1.ManagedClusterConditionWorksInSync, during: metav1.ConditionFalse,
		reason: clusterv1.ReasonInSync, message: "The agent holds the works of this hub",
		began: clusterv1.EventWorksDiverged, ended: clusterv1.EventWorksInSync, memory: 5 * time.Minute,
	},
	untrusted: {
		condition: clusterv1.ManagedClusterConditionStatusesTrusted, during: metav1.ConditionFalse,
		reason: clusterv1.ReasonSigned, message: "No status of the cluster was refused because of its signature for 15 minutes",
		began: clusterv1.EventStatusesRefused, ended: clusterv1.EventStatusesTrusted, memory: 15 * time.Minute,
	},
	noisy: {
		condition: clusterv1.ManagedClusterConditionNoisy, during: metav1.ConditionTrue,
		reason: clusterv1.ReasonWithinQuota, message: "The cluster has not used up its quota for 10 minutes",
		began: clusterv1.ReasonOverQuota, ended: clusterv1.ReasonWithinQuota, memory: quota.Memory,
	},
}

// finding is what this process knows of an alarm of a cluster. The zero value: nothing yet.
type finding struct {
	known bool
	since time.Time // zero: there is no alarm
	// reason and message of the condition during the alarm.
	reason, message string
}

// divergence returns the finding for an event of the delivery engine.
func divergence(event delivery.DivergenceChanged) finding {
	return finding{true, event.Since, clusterv1.ReasonDiverged, fmt.Sprintf("Since %s, works or statuses of the agent differ from those of this hub, "+
		"which exchanges them again with each digest of the agent; the logs of both name them", event.Since.UTC().Format(time.RFC3339))}
}

// refusals are the reasons of the condition StatusesTrusted while it is False, and what they mean.
var refusals = map[signing.Reason]struct{ reason, why string }{
	signing.Unsigned: {clusterv1.ReasonUnsigned, "they have no signature: start its agent with --signing-key"},
	signing.UnknownKey: {clusterv1.ReasonUnknownKey, "the key that signs them is not trusted: add the output of workctl keys public, run where the key of its agent is, " +
		"to a file of --trusted-agents"},
	signing.WrongCluster: {clusterv1.ReasonWrongCluster, "the key that signs them is that of another cluster"},
	signing.Expired:      {clusterv1.ReasonExpired, "they were signed too long ago: compare the clocks of its agent and of the hub"},
	signing.Future:       {clusterv1.ReasonSignedInFuture, "they were signed in the future: compare the clocks of its agent and of the hub"},
}

// distrust returns the finding for an event of the delivery engine.
func distrust(event delivery.TrustChanged) finding {
	refusal, ok := refusals[event.Reason]
	if !ok {
		refusal.reason, refusal.why = clusterv1.ReasonInvalidSignature, "they are not what was signed"
	}
	return finding{true, event.Since, refusal.reason,
		fmt.Sprintf("Since %s, statuses in the name of this cluster are refused: %s. If its agent signs with a trusted key, somebody forges them",
			event.Since.UTC().Format(time.RFC3339), refusal.why)}
}

// resourceWords are the resources of quotas in messages.
var resourceWords = map[quota.Resource]string{
	quota.Messages: "messages", quota.Bytes: "bytes", quota.LargeBytes: "bytes of large messages", quota.Writes: "changes of statuses", quota.WrittenBytes: "bytes of statuses",
}

// noise returns the finding for an event of the delivery engine.
func noise(event delivery.NoiseChanged) finding {
	return finding{true, event.Since, clusterv1.ReasonOverQuota,
		fmt.Sprintf("Since %s, the cluster sends more %s than its quota. What is over it is dropped or stored later, and asked for again; "+
			"other clusters do not wait. If its agent is not to blame, somebody has its credentials: issue new ones",
			event.Since.UTC().Format(time.RFC3339), resourceWords[event.Resource])}
}

// found notes what was found about a cluster. Noise counts also before a cluster has a ManagedCluster, which may come.
func (x *clusterIndex) found(name wire.ClusterName, a alarm, f finding, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[name]
	if !ok && a == noisy && !f.since.IsZero() {
		e, ok = x.addUnregistered(name, now)
	}
	if ok && e.findings[a] != f {
		if e.findings[a] = f; e.registered {
			x.enqueue(name, e)
		}
	}
}

// hasAlarm reports whether a hub, perhaps one before this process, has stored an alarm.
func hasAlarm(cluster *clusterv1.ManagedCluster) bool {
	for a := range alarms {
		if meta.IsStatusConditionPresentAndEqual(cluster.Status.Conditions, alarms[a].condition, alarms[a].during) {
			return true
		}
	}
	return false
}

// conditionOf returns the condition of an alarm; nil: what is stored stays, for requeueAfter if that is not 0.
func (v *view) conditionOf(a alarm, now time.Time) (_ *metav1.Condition, requeueAfter time.Duration) {
	is, found := &alarms[a], v.findings[a]
	stored := v.stored != nil && meta.IsStatusConditionPresentAndEqual(v.stored.Status.Conditions, is.condition, is.during)
	switch heard := v.held.heard; {
	case !found.since.IsZero():
		return &metav1.Condition{Type: is.condition, Status: is.during, Reason: found.reason, Message: found.message}, 0
	case !stored, !found.known && heard.IsZero():
		return nil, 0
	case !found.known && now.Before(heard.Add(is.memory)):
		return nil, heard.Add(is.memory).Sub(now)
	}
	over := metav1.ConditionTrue
	if is.during == over {
		over = metav1.ConditionFalse
	}
	return &metav1.Condition{Type: is.condition, Status: over, Reason: is.reason, Message: is.message}, 0
}

// alarmEvents returns the events about a condition that is a warning while its status is alarm:
// began when it becomes so, ended when it is no more.
func alarmEvents(before, after []metav1.Condition, kind string, alarm metav1.ConditionStatus, began, ended string) []event {
	was, is := meta.IsStatusConditionPresentAndEqual(before, kind, alarm), meta.IsStatusConditionPresentAndEqual(after, kind, alarm)
	switch {
	case is && !was:
		return []event{{corev1.EventTypeWarning, began, meta.FindStatusCondition(after, kind).Message}}
	case was && !is:
		return []event{{corev1.EventTypeNormal, ended, meta.FindStatusCondition(after, kind).Message}}
	}
	return nil
}

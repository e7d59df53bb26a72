package clusters

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/leadership"
	"github.com/workwire/workwire/pkg/runtime/walltime"
	"github.com/workwire/workwire/pkg/wire"
)

// AnnouncesAnnotationKey is "true" on the ManagedCluster of an agent that announces itself. After a
// restart of the hub such an agent has 1.5 keepalives to send a message, others have
// Config.Silence.
const AnnouncesAnnotationKey = "workwire.dev/announces"

// How old the last-seen annotation may become while the agent sends messages: lastSeenInterval, or longer, so that
// all clusters together cost the API server one write in lastSeenPace.
const (
	lastSeenInterval = 5 * time.Minute
	lastSeenPace     = 200 * time.Millisecond
)

// lastSeenAge returns how old the last-seen annotation may become in a fleet of so many clusters.
func lastSeenAge(clusters int) time.Duration {
	return max(lastSeenInterval, time.Duration(clusters)*lastSeenPace)
}

// policy is the part of the configuration that decides about clusters.
type policy struct {
	autoRegister, autoAccept bool
	registers                func(wire.ClusterName) bool // with autoRegister: whether a cluster may be; nil: all
	limits                   limits
	clock                    *walltime.Clock // of the times that are stored; nil: it never steps
	shard                    *leadership.Shard
}

// accepts reports whether works may be delivered to a cluster with this ManagedCluster; nil is for
// none.
func (p policy) accepts(cluster *clusterv1.ManagedCluster) bool {
	if cluster == nil {
		return !p.autoRegister && p.shard.Holds(nil)
	}
	return p.shard.Holds(cluster) && cluster.Spec.HubAcceptsClient && cluster.DeletionTimestamp == nil
}

// step is the plan for one reconcile, in the order in which it is carried out.
type step struct {
	// register is the ManagedCluster to create; then another step follows. nil for none.
	register *clusterv1.ManagedCluster
	// namespace is whether the namespace of the cluster may be missing.
	namespace bool
	// conditions to store; nil for no change.
	conditions []metav1.Condition
	// about is what the cluster says of itself, to be stored; nil for no change.
	about *wire.About
	// events to record about the change of conditions.
	events []event
	// spec is whether to store taints and annotations.
	spec        bool
	taints      []clusterv1.Taint
	annotations map[string]string
	// held is about works that the hub does not know.
	held heldStep
	// requeueAfter is the time until something else is due; zero: nothing is.
	requeueAfter time.Duration
}

// event is an event about a ManagedCluster.
type event struct{ kind, reason, message string }

// decide plans the reconcile of a cluster.
func decide(name wire.ClusterName, v view, p policy, now time.Time) step {
	if v.stored == nil {
		if p.autoRegister && v.spoken {
			return step{register: registration(name, v, p)}
		}
		return step{}
	}
	if wait := admissionDue(v.stored).Sub(now); 0 < wait && wait <= admissionDelay {
		return step{requeueAfter: wait}
	}
	s := step{held: decideHeld(v.stored, v.held, now)}
	conditions := conditionsFor(v, p, now)
	due := []time.Duration{s.held.requeueAfter}
	add := func(c *metav1.Condition) {
		if c != nil {
			c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
			meta.SetStatusCondition(&conditions, *c)
		}
	}
	add(s.held.condition)
	for a := range alarmCount {
		condition, after := v.conditionOf(a, now)
		add(condition)
		due = append(due, after)
	}
	joined := meta.IsStatusConditionTrue(v.stored.Status.Conditions, clusterv1.ManagedClusterConditionJoined)
	accepted := meta.IsStatusConditionTrue(v.stored.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
	s.namespace = v.stored.DeletionTimestamp == nil &&
		(p.autoRegister && !joined && !v.presence.heard.IsZero() || v.stored.Spec.HubAcceptsClient && !accepted)
	if !apiequality.Semantic.DeepEqual(conditions, v.stored.Status.Conditions) {
		s.conditions, s.events = conditions, eventsFor(v.stored.Status.Conditions, conditions)
	}
	if v.about != nil && !showsAbout(v.stored, v.about) {
		if wait := v.aboutWritten.Add(aboutInterval).Sub(now); wait > 0 {
			due = append(due, wait)
		} else {
			s.about = v.about
		}
	}
	available := meta.FindStatusCondition(conditions, clusterv1.ManagedClusterConditionAvailable)
	at, ok := taintDue(available, v.failover, p)
	ok = ok && v.presence.state != unvouched // expected back: it is queued, and the brake counts it, once it is missing
	s.taints = taintsFor(v.stored.Spec.Taints, available.Status, ok && !at.After(now), now)
	if ok && available.Status != metav1.ConditionTrue {
		s.requeueAfter = max(0, at.Sub(now))
	}
	for _, after := range due {
		if after > 0 && (s.requeueAfter == 0 || after < s.requeueAfter) {
			s.requeueAfter = after
		}
	}
	// Not with each change of presence: it would be a second request, and thousands of clusters may change at once.
	s.annotations = annotationsFor(v.presence)
	s.spec = !apiequality.Semantic.DeepEqual(s.taints, v.stored.Spec.Taints) || outdated(v.stored, v.presence, v.clusters) ||
		v.stored.Annotations[AnnouncesAnnotationKey] != s.annotations[AnnouncesAnnotationKey] || len(s.held.annotations) > 0
	return s
}

// registration returns the ManagedCluster to create for a cluster. If one was deleted before, only
// an administrator accepts the next.
func registration(name wire.ClusterName, v view, p policy) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: string(name), Annotations: annotationsFor(v.presence)},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: p.autoAccept && !v.removed},
	}
}

// annotationsFor returns the annotations that store p.
func annotationsFor(p presence) map[string]string {
	annotations := map[string]string{}
	if !p.heard.IsZero() {
		annotations[clusterv1.LastSeenAnnotationKey] = p.heard.UTC().Format(time.RFC3339)
	}
	if p.announces {
		annotations[AnnouncesAnnotationKey] = "true"
	}
	return annotations
}

// outdated reports whether the last-seen annotation of cluster, one of so many, is too old.
func outdated(cluster *clusterv1.ManagedCluster, p presence, clusters int) bool {
	if p.heard.IsZero() {
		return false
	}
	at, err := time.Parse(time.RFC3339, cluster.Annotations[clusterv1.LastSeenAnnotationKey])
	return err != nil || p.heard.Sub(at) >= lastSeenAge(clusters)
}

// conditionsFor returns the conditions of a ManagedCluster: ours, and those of others.
func conditionsFor(v view, p policy, now time.Time) []metav1.Condition {
	conditions := slices.Clone(v.stored.Status.Conditions)
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	if v.stored.Spec.HubAcceptsClient {
		set(clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionTrue, clusterv1.ReasonAccepted, "Accepted by hub cluster admin")
	} else {
		set(clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionFalse, clusterv1.ReasonNotAccepted,
			"Not accepted by hub cluster admin: works are delivered once spec.hubAcceptsClient is true")
	}
	if !v.presence.heard.IsZero() {
		set(clusterv1.ManagedClusterConditionJoined, metav1.ConditionTrue, clusterv1.ReasonJoined, "Managed cluster joined")
	}
	status, reason, message := availability(v.presence.state, p.limits)
	if reason == clusterv1.ReasonNotSeen && waitsForApproval(v.stored) {
		message = fmt.Sprintf("The cluster asks to join: kubectl certificate approve $(kubectl get csr -o name -l %s=%s)", v1alpha1.ClusterLabelKey, v.stored.Name)
	}
	set(clusterv1.ManagedClusterConditionAvailable, status, reason, message)
	return conditions
}

// withoutNamespace leaves out of s what is not so before the cluster has its namespace: that is as it is stored.
func (s *step) withoutNamespace(stored []metav1.Condition) {
	conditions := slices.DeleteFunc(s.conditions, func(c metav1.Condition) bool {
		waits := c.Type == clusterv1.ManagedClusterConditionHubAccepted || c.Type == clusterv1.ManagedClusterConditionJoined
		return waits && meta.FindStatusCondition(stored, c.Type) == nil
	})
	for _, kind := range []string{clusterv1.ManagedClusterConditionHubAccepted, clusterv1.ManagedClusterConditionJoined} {
		if before := meta.FindStatusCondition(stored, kind); before != nil {
			*meta.FindStatusCondition(conditions, kind) = *before // in its place, so that what is equal stays equal
		}
	}
	s.conditions, s.events = nil, nil
	if !apiequality.Semantic.DeepEqual(conditions, stored) {
		s.conditions, s.events = conditions, eventsFor(stored, conditions)
	}
}

// admissionDelay is how long after a cluster has asked to join its first status is written: by then it has its certificate, or somebody has to
// approve it.
const admissionDelay = 2 * time.Second

// admissionDue returns when the first status of a cluster that asks to join is written; the zero time for others.
func admissionDue(cluster *clusterv1.ManagedCluster) time.Time {
	if !waitsForApproval(cluster) || len(cluster.Status.Conditions) > 0 {
		return time.Time{}
	}
	return cluster.CreationTimestamp.Add(admissionDelay)
}

// waitsForApproval reports whether a cluster has asked to join and nobody has let it in (docs/join.md).
func waitsForApproval(cluster *clusterv1.ManagedCluster) bool {
	_, issued := cluster.Annotations[v1alpha1.CertificateExpiresAnnotationKey]
	return cluster.Annotations[v1alpha1.DeviceAnnotationKey] != "" && !issued
}

// availability returns the condition ManagedClusterConditionAvailable for a state.
func availability(s presenceState, l limits) (status metav1.ConditionStatus, reason, message string) {
	switch s {
	case present:
		return metav1.ConditionTrue, clusterv1.ReasonAvailable, "Managed cluster is available"
	case ended:
		return metav1.ConditionUnknown, clusterv1.ReasonDisconnected, "The agent of the cluster has stopped, or has lost its connection to the broker"
	case silent:
		return metav1.ConditionUnknown, clusterv1.ReasonSilent,
			fmt.Sprintf("Nothing was heard for %s from the agent of the cluster, which does not announce itself", l.silence)
	case unvouched:
		return metav1.ConditionUnknown, clusterv1.ReasonHubDisconnected,
			fmt.Sprintf("The hub had no connection to the broker for more than %s: nobody knows whether the agent is there", l.hubAbsence)
	case missing:
		return metav1.ConditionUnknown, clusterv1.ReasonMissing,
			fmt.Sprintf("The agent of the cluster did not announce itself within %s, as it does while it is connected", l.absence)
	default:
		return metav1.ConditionUnknown, clusterv1.ReasonNotSeen, "The agent of the cluster was not heard from yet"
	}
}

// stateForReason returns the state for a reason of ManagedClusterConditionAvailable. A reason of
// others stands for a cluster that is not present.
func stateForReason(reason string) presenceState {
	known := map[string]presenceState{clusterv1.ReasonNotSeen: unseen, clusterv1.ReasonSilent: silent, clusterv1.ReasonMissing: missing, clusterv1.ReasonHubDisconnected: unvouched}
	return cmp.Or(known[reason], ended)
}

// taintDue returns when a cluster with the condition Available not True gets its taint; false if it
// does not until it is queued again. A cluster that was never heard from, and so has no objects,
// gets it at once.
func taintDue(available *metav1.Condition, f failover, p policy) (time.Time, bool) {
	if available.Reason == clusterv1.ReasonNotSeen {
		return time.Time{}, true
	}
	at := p.clock.Adjusted(available.LastTransitionTime.Time).Add(p.limits.grace)
	if f.from.After(at) {
		at = f.from
	}
	return at, !f.held
}

// hasTaint reports whether placements do not select a cluster because of a taint with this key.
func hasTaint(taints []clusterv1.Taint, key string) bool {
	return slices.ContainsFunc(taints, func(t clusterv1.Taint) bool { return t.Key == key && t.Effect == clusterv1.TaintEffectNoSelect })
}

// taintsFor returns the taints of a cluster for a status of ManagedClusterConditionAvailable: ours,
// and those of others. A taint of ours that the cluster does not have is added only if it is due.
func taintsFor(taints []clusterv1.Taint, available metav1.ConditionStatus, due bool, now time.Time) []clusterv1.Taint {
	want := ""
	switch available {
	case metav1.ConditionTrue:
	case metav1.ConditionFalse:
		want = clusterv1.ManagedClusterTaintUnavailable
	default:
		want = clusterv1.ManagedClusterTaintUnreachable
	}
	var kept []clusterv1.Taint
	has := false
	for _, taint := range taints {
		ours := taint.Key == clusterv1.ManagedClusterTaintUnavailable || taint.Key == clusterv1.ManagedClusterTaintUnreachable
		switch {
		case !ours:
		case taint.Key != want || has || taint.Effect != clusterv1.TaintEffectNoSelect:
			continue
		default:
			has = true
		}
		kept = append(kept, taint)
	}
	if want != "" && !has && due {
		kept = append(kept, clusterv1.Taint{
			Key: want, Effect: clusterv1.TaintEffectNoSelect, TimeAdded: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	return kept
}

// eventsFor returns the events about a change of conditions.
func eventsFor(before, after []metav1.Condition) []event {
	var events []event
	was, is := meta.FindStatusCondition(before, clusterv1.ManagedClusterConditionHubAccepted),
		meta.FindStatusCondition(after, clusterv1.ManagedClusterConditionHubAccepted)
	switch {
	case is == nil || was != nil && was.Status == is.Status:
	case is.Status == metav1.ConditionTrue:
		events = append(events, event{corev1.EventTypeNormal, clusterv1.EventAccepted, "Works are delivered to the cluster"})
	case was != nil:
		events = append(events, event{corev1.EventTypeNormal, clusterv1.EventNotAccepted, "Works are no longer delivered to the cluster"})
	}
	was, is = meta.FindStatusCondition(before, clusterv1.ManagedClusterConditionAvailable),
		meta.FindStatusCondition(after, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case is == nil || was != nil && was.Status == is.Status:
	case is.Status == metav1.ConditionTrue:
		events = append(events, event{corev1.EventTypeNormal, clusterv1.EventAvailable, is.Message})
	case was != nil:
		events = append(events, event{corev1.EventTypeWarning, clusterv1.EventUnavailable, is.Message})
	}
	events = append(events, alarmEvents(before, after, clusterv1.ManagedClusterConditionWorksHeld, metav1.ConditionTrue, clusterv1.EventWorksHeld, clusterv1.ReasonNoWorksHeld)...)
	for _, a := range alarms {
		events = append(events, alarmEvents(before, after, a.condition, a.during, a.began, a.ended)...)
	}
	return events
}

// statusPatch returns the merge patch that stores conditions and what the cluster says of itself. It replaces lists,
// so it applies to this resource version only.
func statusPatch(cluster *clusterv1.ManagedCluster, s step) any {
	status := aboutPatch(cluster.Status, s.about)
	if s.conditions != nil {
		status["conditions"] = s.conditions
	}
	return map[string]any{
		"metadata": map[string]any{"resourceVersion": cluster.ResourceVersion},
		"status":   status,
	}
}

// specPatch returns the merge patch that stores taints and annotations of s in cluster. It applies
// to this resource version only.
func specPatch(cluster *clusterv1.ManagedCluster, s step) any {
	values := map[string]any{AnnouncesAnnotationKey: nil}
	for key, value := range s.annotations {
		values[key] = value
	}
	maps.Copy(values, s.held.annotations)
	return map[string]any{
		"metadata": map[string]any{"resourceVersion": cluster.ResourceVersion, "annotations": values},
		"spec":     map[string]any{"taints": s.taints},
	}
}

package explain_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/pkg/workstate/explain"
)

var (
	now    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	before = metav1.NewTime(now.Add(-time.Minute))
	deploy = workv1.ManifestResourceMeta{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "default", Name: "web"}
	pod    = workv1.ManifestResourceMeta{Ordinal: 1, Version: "v1", Kind: "Pod", Resource: "pods", Namespace: "default", Name: "one"}
	config = workv1.ManifestResourceMeta{Ordinal: 2, Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "default", Name: "settings"}
)

// facts returns what is known of a work that the agent has answered with the states of manifests, as
// the agent writes it.
func facts(manifests ...condition.Manifest) workstate.Facts {
	const generation = 3
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: "cluster1", Name: "web", Generation: generation, CreationTimestamp: before,
		Annotations: map[string]string{workv1.ReportReadinessAnnotationKey: "true"}, Finalizers: []string{workv1.ManifestWorkFinalizer},
	}}
	if len(manifests) == 0 {
		manifests = []condition.Manifest{{Meta: deploy}}
	}
	work.Status = condition.WorkStatus(condition.Input{Generation: generation, Manifests: manifests, Readiness: true, Now: before})
	setDelivered(work, metav1.ConditionTrue, workv1.ReasonAnswered, "The agent has answered")
	at := func(ms int) *metav1.MicroTime {
		return new(metav1.NewMicroTime(before.Add(time.Duration(ms) * time.Millisecond)))
	}
	work.Status.Delivery = &workv1.DeliveryStatus{Generation: generation, AcceptedTime: at(0), PublishedTime: at(1), AcknowledgedTime: at(3),
		ReceivedTime: at(5), AppliedTime: at(25), ReadyTime: at(1025)}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable,
		Status: metav1.ConditionTrue, Reason: "ManagedClusterAvailable", Message: "Managed cluster is available"})
	return workstate.Facts{Now: now, Work: work, Cluster: cluster, Presence: lease(5 * time.Second), Leader: lease(5 * time.Second)}
}

// warned returns what is known of a work that is ready, and has a warning of its own.
func warned(warning string) workstate.Facts {
	f := facts()
	before := f.Work.Status
	f.Work.Status = condition.WorkStatus(condition.Input{Generation: f.Work.Generation, Manifests: []condition.Manifest{{Meta: deploy}}, Readiness: true,
		Warnings: []string{warning}, Now: *before.Conditions[0].LastTransitionTime.DeepCopy()})
	f.Work.Status.Delivery = before.Delivery
	setDelivered(f.Work, metav1.ConditionTrue, workv1.ReasonAnswered, "The agent has answered")
	return f
}

func lease(age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(now.Add(-age))), LeaseDurationSeconds: new(int32(60))}}
}

func setDelivered(w *workv1.ManifestWork, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: workv1.WorkDelivered, Status: status, Reason: reason, Message: message,
		ObservedGeneration: w.Generation, LastTransitionTime: before})
}

// pending is a work whose newest generation the agent has not answered.
func pending(status metav1.ConditionStatus, reason, message string, change ...func(*workstate.Facts)) workstate.Facts {
	f := facts()
	f.Work.Generation++
	setDelivered(f.Work, status, reason, message)
	for _, c := range change {
		c(&f)
	}
	return f
}

func failed(err error) workstate.Facts {
	return facts(condition.Manifest{Meta: deploy, ApplyError: fmt.Errorf("apply deployments.v1.apps default/web: %w", err)}, condition.Manifest{Meta: config})
}

// unready is a manifest with the readiness that kstatus computes.
func unready(m workv1.ManifestResourceMeta, degraded bool, message string) workstate.Facts {
	conditions := []metav1.Condition{{Type: workv1.ManifestProgressing, Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRuleEvaluated, Message: message},
		{Type: workv1.ManifestDegraded, Status: metav1.ConditionFalse, Reason: workv1.ReasonConditionRuleEvaluated, Message: message}}
	if degraded {
		conditions[1].Status = metav1.ConditionTrue
	}
	return facts(condition.Manifest{Meta: config}, condition.Manifest{Meta: m, Rules: []string{workv1.ManifestProgressing, workv1.ManifestDegraded}, Evaluated: conditions})
}

// waiting is a work of a manifest that waits.
func waiting(reason, message string) workstate.Facts {
	return facts(condition.Manifest{Meta: config, Presence: condition.Missing, Waiting: &condition.Waiting{Reason: reason, Message: message}})
}

// executedBy gives a work an executor.
func executedBy(f workstate.Facts) workstate.Facts {
	f.Work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "team", Name: "ci"},
	}}
	return f
}

func changed(f workstate.Facts, change func(*workstate.Facts)) workstate.Facts {
	change(&f)
	return f
}

func with(kind, reason, message string) workstate.Facts {
	return changed(facts(), func(f *workstate.Facts) {
		meta.SetStatusCondition(&f.Work.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: 3})
	})
}

func deleting(f workstate.Facts) workstate.Facts {
	f.Work.DeletionTimestamp = &before
	f.Work.Generation++
	f.Work.Status = condition.DeletingStatus(f.Work.Status, f.Work.Generation, func(workv1.ManifestResourceMeta) condition.Presence {
		return condition.Present
	}, before)
	return f
}

func pause(f *workstate.Facts) { f.Work.Annotations[workv1.PausedAnnotationKey] = workv1.PausedValue }

func away(reason string) func(*workstate.Facts) {
	return func(f *workstate.Facts) {
		meta.SetStatusCondition(&f.Cluster.Status.Conditions, metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable,
			Status: metav1.ConditionUnknown, Reason: reason, Message: "The agent of the cluster has stopped, or has lost its connection to the broker"})
	}
}

func ofSet(paused bool) workstate.Facts {
	f := facts()
	f.Set = &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", Annotations: map[string]string{}}}
	f.Set.Spec.ManifestWorkTemplate.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	f.Set.Status.Conditions = []metav1.Condition{{Type: "PlacementRolledOut", Status: metav1.ConditionFalse, Reason: "Progressing", Message: "waiting for cluster9: Deployment default/web: Available: 0/1"}}
	if paused {
		f.Set.Annotations[workv1.PausedAnnotationKey] = workv1.PausedValue
	}
	return f
}

// Conditions that the hub sets for sets of generation 0.
var (
	rolledOut = []metav1.Condition{{Type: "PlacementRolledOut", Status: metav1.ConditionTrue, Reason: "Complete"},
		{Type: "Progressing", Status: metav1.ConditionFalse, Reason: "Complete"}}
	overridden = []metav1.Condition{{Type: "OverridesRendered", Status: metav1.ConditionTrue, Reason: "AsExpected"}}
)

// setSays sets conditions of the set of a work.
func setSays(f workstate.Facts, conditions []metav1.Condition) workstate.Facts {
	for _, c := range conditions {
		meta.SetStatusCondition(&f.Set.Status.Conditions, c)
	}
	return f
}

var apps = schema.GroupResource{Group: "apps", Resource: "deployments"}

// TestCauses checks the cause, its object and what to do for each state that hub and agent can report, and which of
// them no retry ends.
func TestCauses(t *testing.T) {
	stalled := map[string]bool{
		"too large": true, "too large, by the hub's Applied": true, "invalid spec": true, "namespace not set": true, "immutable": true, "strategy": true,
		"invalid": true, "invalid rule": true, "immutable, after quota": true, "a hook failed": true,
	}
	denied := errors.New(`admission webhook "guard.example.com" denied the request: no Mondays`)
	for name, c := range map[string]struct {
		facts workstate.Facts
		word  string
		cause workstate.Cause // empty for no blocker
		want  string          // a part of "object message do"
	}{
		"ready":                {facts(), "Ready", "", ""},
		"an unknown field":     {facts(condition.Manifest{Meta: deploy, Warnings: []string{`unknown field "spec.replcas"`}}), "Warned", workstate.Warning, `Deployment default/web unknown field "spec.replcas"`},
		"a config of nothing":  {warned("manifestConfigs[0] matches no manifest"), "Warned", workstate.Warning, "ManifestWork cluster1/web manifestConfigs[0] matches no manifest"},
		"agent off":            {pending("False", workv1.ReasonClusterAway, "The agent is away"), "Blocked", workstate.AgentOff, "ManagedCluster cluster1 The agent is away look at the agent on cluster1"},
		"agent off, answered":  {changed(facts(), away("ManagedClusterDisconnected")), "Blocked", workstate.AgentOff, "has lost its connection"},
		"agent off, deletion":  {changed(deleting(facts()), away("ManagedClusterDisconnected")), "Blocked", workstate.AgentOff, "cluster1"},
		"broker off":           {pending("False", workv1.ReasonBrokerUnreachable, "no broker"), "Blocked", workstate.BrokerOff, "broker no broker start the broker"},
		"broker off, answered": {changed(facts(), func(f *workstate.Facts) { f.Presence = lease(5 * time.Minute) }), "Blocked", workstate.BrokerOff, "no connection to the broker"},
		"broker off, by the cluster alone": {changed(changed(facts(), away(clusterv1.ReasonHubDisconnected)), func(f *workstate.Facts) { f.Presence, f.Leader = nil, nil }),
			"Blocked", workstate.BrokerOff, "start the broker"},
		"broker off before": {changed(facts(), away(clusterv1.ReasonHubDisconnected)), "Blocked", workstate.AgentOff, "look at the agent on cluster1"},
		"hub off": {changed(facts(), func(f *workstate.Facts) { f.Presence, f.Leader = lease(5*time.Minute), lease(5*time.Minute) }),
			"Blocked", workstate.HubOff, "start the hub"},
		"hub off, pending": {pending("Unknown", workv1.ReasonPublished, "sent", func(f *workstate.Facts) { f.Presence, f.Leader = lease(5*time.Minute), nil }),
			"Blocked", workstate.HubOff, "start the hub"},
		"no ManagedCluster, answered": {changed(facts(), func(f *workstate.Facts) { f.Cluster, f.NoCluster = nil, true }), "Ready", "", ""},
		"no cluster":                  {pending("False", workv1.ReasonClusterNotFound, "", func(f *workstate.Facts) { f.Cluster, f.NoCluster = nil, true }), "Blocked", workstate.ClusterNotFound, "create the ManagedCluster cluster1"},
		"cluster unknown":             {changed(facts(), func(f *workstate.Facts) { f.Cluster, f.Presence, f.Leader = nil, nil, nil }), "Ready", "", ""},
		"not accepted":                {changed(facts(), func(f *workstate.Facts) { f.Cluster.Spec.HubAcceptsClient = false }), "Blocked", workstate.ClusterNotAccepted, `kubectl patch managedcluster cluster1 --type=merge -p '{"spec":{"hubAcceptsClient":true}}'`},
		"access refused":              {pending("False", workv1.ReasonAccessRefused, "the broker refuses"), "Blocked", workstate.AccessRefused, "docs/brokers.md"},
		"too large":                   {pending("False", workv1.ReasonTooLarge, "1 MB > 512 kB"), "Blocked", workstate.TooLarge, "split the work"},
		"too large, by the hub's Applied": {pending("Unknown", workv1.ReasonPublished, "", func(f *workstate.Facts) {
			meta.SetStatusCondition(&f.Work.Status.Conditions, metav1.Condition{Type: "Applied", Status: "False", Reason: "TooLarge", Message: "The work is not sent to its cluster", ObservedGeneration: 4})
		}), "Blocked", workstate.TooLarge, "split the work"},
		"no key to seal":   {pending("False", workv1.ReasonNoSealKey, "cluster1 has no key"), "Blocked", workstate.Unsealed, "sealing key"},
		"nobody listens":   {pending("False", workv1.ReasonNobodyListens, "no subscriber"), "Blocked", workstate.NobodyListens, "--cluster-name must be cluster1"},
		"held back":        {pending("False", workv1.ReasonHeldBack, "The hub holds deletions back"), "Blocked", workstate.HeldBack, "workctl describe cluster cluster1"},
		"paused":           {pending("False", workv1.ReasonPaused, "paused", pause), "Blocked", workstate.Paused, "workctl resume work web -n cluster1"},
		"paused, answered": {changed(facts(), pause), "Ready", "", ""},
		"cluster paused": {pending("False", workv1.ReasonPaused, "", func(f *workstate.Facts) {
			f.Cluster.Annotations = map[string]string{workv1.PausedAnnotationKey: workv1.PausedValue}
		}), "Blocked", workstate.ClusterPaused, "workctl resume cluster cluster1"},
		"set paused":                       {ofSet(true), "Blocked", workstate.SetPaused, "workctl rollout resume till -n shop"},
		"rollout waits":                    {ofSet(false), "Progressing", workstate.RolloutWaits, "waiting for cluster9"},
		"rolled out, and the spec differs": {setSays(ofSet(false), rolledOut), "Ready", "", ""},
		"rolled out before":                {setSays(changed(ofSet(false), func(f *workstate.Facts) { f.Set.Generation++ }), rolledOut), "Progressing", workstate.RolloutWaits, "has not reached this cluster"},
		"overridden":                       {setSays(ofSet(false), overridden), "Ready", "", ""},
		"overridden, paused":               {setSays(ofSet(true), overridden), "Ready", "", ""},
		"published":                        {pending("Unknown", workv1.ReasonPublished, "The broker has it"), "Progressing", workstate.NotAnswered, "The broker has it wait"},
		"statuses refused": {pending("Unknown", workv1.ReasonPublished, "", func(f *workstate.Facts) {
			meta.SetStatusCondition(&f.Cluster.Status.Conditions, metav1.Condition{Type: "StatusesTrusted", Status: "False", Reason: "Unsigned", Message: "they have no signature"})
		}), "Blocked", workstate.StatusesRefused, "they have no signature start the agent of cluster1 with --signing-key"},
		"statuses refused, answered": {changed(facts(), func(f *workstate.Facts) {
			meta.SetStatusCondition(&f.Cluster.Status.Conditions, metav1.Condition{Type: "StatusesTrusted", Status: "False", Reason: "Unsigned"})
		}), "Ready", "", ""},
		"not yet seen":  {changed(facts(), func(f *workstate.Facts) { f.Work.Generation++ }), "Progressing", workstate.NotAnswered, "has not told yet"},
		"unsigned":      {with(workv1.WorkSpecUntrusted, workv1.ReasonUnsigned, "An event of this work was refused"), "Blocked", workstate.Untrusted, "workctl keys list"},
		"deletion held": {with(workv1.WorkDeletionHeld, workv1.ReasonSourceKnowsTooFew, "Source hub1 does not know"), "Blocked", workstate.DeletionHeld, "release"},
		"invalid spec": {changed(facts(), func(f *workstate.Facts) {
			f.Work.Status = condition.InvalidStatus(f.Work.Status, f.Work.Status, 3, "", "manifest 0: not JSON", before)
		}), "Blocked", workstate.InvalidSpec, "kubectl edit manifestwork -n cluster1 web"},
		"webhook":      {failed(denied), "Blocked", workstate.Webhook, "no Mondays change the manifest as the webhook asks"},
		"webhook away": {failed(errors.New(`Internal error occurred: failed calling webhook "guard.example.com": connection refused`)), "Blocked", workstate.WebhookFailed, "does not answer on cluster1"},
		"policy":       {failed(errors.New(`deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`)), "Blocked", workstate.Policy, "as the policy asks"},
		"pod security": {failed(errors.New(`pods "web" is forbidden: violates PodSecurity "restricted:latest"`)), "Blocked", workstate.Policy, "policy"},
		"quota":        {failed(errors.New(`pods "web" is forbidden: exceeded quota: q, requested: pods=1`)), "Blocked", workstate.Quota, "ResourceQuota"},
		"rbac":         {failed(apierrors.NewForbidden(apps, "web", errors.New(`User "system:serviceaccount:a:work-agent" cannot patch resource "deployments"`))), "Blocked", workstate.Forbidden, "give the agent on cluster1 the right"},
		"executor":     {failed(errors.New("not allowed to apply the resource apps deployments, default web, will try again in 1m0s")), "Blocked", workstate.ExecutorDenied, "rights on Deployment default/web"},
		"executor, by its name": {executedBy(failed(errors.New("not allowed to apply the resource apps deployments, default web, will try again in 1m0s"))), "Blocked", workstate.ExecutorDenied,
			"give ServiceAccount team/ci, the executor of the work, the rights on Deployment default/web (create, update, patch, get, delete: docs/executor.md); it is tried again by itself. " +
				"What it may do, on cluster1: kubectl auth can-i --list --as=system:serviceaccount:team:ci -n default"},
		"executor may not read": {executedBy(facts(condition.Manifest{Meta: config, Presence: condition.Undecided, ReadError: errors.New("the executor team/ci may not get it")})),
			"Blocked", workstate.ExecutorDenied, "the right to get ConfigMap default/settings on cluster1. What it may do, on cluster1: kubectl auth can-i --list"},
		"fight":             {facts(condition.Manifest{Meta: deploy, Flapping: `ManifestWork "web" sets /spec/replicas, undone by field manager "hpa"`}), "Blocked", workstate.Flapping, "docs/strategies.md#drift-and-conflicts); it ends by itself two minutes after the last time"},
		"ssa conflict":      {failed(errors.New(`Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas`)), "Blocked", workstate.Conflict, "force"},
		"no namespace":      {failed(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")), "Blocked", workstate.NoNamespace, "add the Namespace"},
		"unknown kind":      {failed(errors.New(`the server doesn't have a resource type "Deployment"`)), "Blocked", workstate.UnknownKind, "check apiVersion apps/v1 and kind, or install the CustomResourceDefinition of Deployment default/web"},
		"namespace not set": {failed(errors.New("the server does not allow this method on the requested resource: Deployment has no metadata.namespace, and its kind is namespaced")), "Blocked", workstate.InvalidManifest, "set metadata.namespace of Deployment default/web"},
		"immutable":         {failed(errors.New(`Deployment.apps "web" is invalid: spec.selector: field is immutable`)), "Blocked", workstate.Immutable, workv1.RecreateAnnotationKey},
		"strategy":          {failed(errors.New(`unknown update strategy "Rego": it must be Update, CreateOnly, ServerSideApply or ReadOnly`)), "Blocked", workstate.UnknownStrategy, "docs/strategies.md"},
		"port taken":        {failed(errors.New(`Service "web" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated`)), "Blocked", workstate.InvalidManifest, "correct the manifest"},
		"too many specs": {changed(facts(), func(f *workstate.Facts) {
			f.Work.Status = condition.InvalidStatus(f.Work.Status, f.Work.Status, 3, workv1.ReasonTooManySpecs, "the agent holds as many specs as it may", before)
		}), "Blocked", workstate.InvalidSpec, "the agent holds"},
		"invalid rule":           {failed(errors.New(`the condition rule names Applied, which the agent sets itself`)), "Blocked", workstate.InvalidRule, "correct the rule"},
		"immutable, after quota": {facts(condition.Manifest{Meta: pod, ApplyError: errors.New("exceeded quota: q")}, condition.Manifest{Meta: deploy, ApplyError: errors.New("field is immutable")}), "Blocked", workstate.Quota, "ResourceQuota"},
		"invalid":                {failed(errors.New(`Deployment.apps "web" is invalid: spec.replicas`)), "Blocked", workstate.InvalidManifest, "correct the manifest"},
		"other failure":          {failed(errors.New("etcdserver: leader changed")), "Blocked", workstate.NotApplied, "tries again by itself"},
		"unschedulable":          {unready(pod, true, "Pod could not be scheduled"), "Blocked", workstate.Unschedulable, "Pod default/one Pod could not be scheduled no node of cluster1 can run the pod"},
		"not scheduled yet":      {unready(pod, false, "Pod has not been scheduled"), "Blocked", workstate.Unschedulable, "no node"},
		"image":                  {unready(pod, false, `Pod is in the Pending phase: container app waits: ImagePullBackOff`), "Blocked", workstate.ImagePull, "kubectl describe -n default pods one"},
		"crash loop":             {unready(pod, true, "Containers in CrashLoop state: app"), "Blocked", workstate.CrashLoop, "--previous"},
		"not ready":              {unready(deploy, false, "Available: 0/1"), "Progressing", workstate.NotReady, "kubectl describe -n default deployments.apps web, and its pods"},
		"past deadline":          {unready(deploy, true, "Progress deadline exceeded"), "Blocked", workstate.Failed, "does not become ready by itself"},
		"waits for a wave": {facts(condition.Manifest{Meta: config, Presence: condition.Missing, Waiting: &condition.Waiting{Reason: workv1.ReasonWaitsForWave, Message: "Waits for wave 0: Deployment default/web: Available: 0/1"}},
			condition.Manifest{Meta: deploy, Rules: []string{"Progressing"}, Evaluated: []metav1.Condition{{Type: "Progressing", Status: "True", Reason: workv1.ReasonConditionRuleEvaluated, Message: "Available: 0/1"}}}),
			"Progressing", workstate.WaitsForWave, "ConfigMap default/settings Waits for wave 0: Deployment default/web: Available: 0/1 nothing: it goes on"},
		"waits for a wave that is blocked": {facts(condition.Manifest{Meta: config, Presence: condition.Missing, Waiting: &condition.Waiting{Reason: workv1.ReasonWaitsForWave, Message: "Waits for wave 0"}},
			condition.Manifest{Meta: deploy, Rules: []string{"Progressing"}, Evaluated: []metav1.Condition{{Type: "Progressing", Status: "True", Reason: workv1.ReasonConditionRuleEvaluated, Message: "Available: 0/1: ImagePullBackOff"}}}),
			"Blocked", workstate.WaitsForWave, "ConfigMap default/settings Waits for wave 0 nothing"},
		"waits for a work": {waiting(workv1.ReasonWaitsForWork, "Waits for work db is not ready"), "Progressing", workstate.WaitsForWork, "db is not ready nothing: it goes on by itself"},
		"waits for a work that is not there": {waiting(workv1.ReasonWaitsForWork, "Waits for work db is not ready; work nosuch is not on this cluster; work other is not on this cluster"),
			"Progressing", workstate.WaitsForWork, "no work nosuch, other is on cluster1: create it, or correct the annotation workwire.dev/depends-on"},
		"window missed": {waiting(workv1.ReasonWindowMissed, "Missed the window from A to B"), "Blocked", workstate.WindowMissed, "from A to B look why the agent could not"},
		"window over before": {waiting(workv1.ReasonWindowMissed, "The window from A to B "+condition.WindowWasOver), "Blocked", workstate.WindowMissed,
			condition.WindowWasOver + " give the annotation workwire.dev/apply-at of the work a later time"},
		"held": {changed(waiting(workv1.ReasonStaged, "Staged until the annotation workwire.dev/apply-at has a time"), func(f *workstate.Facts) {
			f.Work.Annotations[workv1.ApplyAtAnnotationKey] = workv1.ApplyAtHeld
		}), "Progressing", workstate.Staged, "has a time give the annotation workwire.dev/apply-at of the work a time"},
		"staged": {changed(waiting(workv1.ReasonStaged, "Staged until 2026-11-28T22:00:00Z"), func(f *workstate.Facts) {
			f.Work.Annotations[workv1.ApplyAtAnnotationKey] = "2026-11-28T22:00:00Z"
		}), "Progressing", workstate.Staged, "22:00:00Z nothing: it is applied at the time in the message"},
		"a hook failed": {facts(condition.Manifest{Meta: pod, Waiting: &condition.Waiting{Reason: workv1.ReasonHookFailed, Message: "The hook has failed"}},
			condition.Manifest{Meta: config, Presence: condition.Missing, Waiting: &condition.Waiting{Reason: workv1.ReasonWaitsForHook, Message: "Waits for a hook"}}),
			"Blocked", workstate.HookFailed, "Pod default/one The hook has failed on cluster1, look at the pods"},
		"object gone": {facts(condition.Manifest{Meta: config, Presence: condition.Missing}), "Blocked", workstate.Missing, "creates it again"},
		"may not be read": {facts(condition.Manifest{Meta: config, Presence: condition.Forbidden, ApplyError: errors.New("not allowed to apply the resource  configmaps, default settings")}),
			"Blocked", workstate.ExecutorDenied, "the rights on ConfigMap default/settings"},
		"may not be read, of an older agent": {facts(condition.Manifest{Meta: config, Presence: condition.Undecided, ReadError: errors.New("the executor a/b may not get it")}),
			"Blocked", workstate.ExecutorDenied, "the right to get ConfigMap default/settings"},
		"budget": {facts(condition.Manifest{Meta: config, Rules: []string{"Warm"}, Evaluated: []metav1.Condition{{Type: "Warm", Status: "False",
			Reason: workv1.ReasonConditionRuleExpressionError, Message: "CEL evaluation budget exceeded"}}}), "Blocked", workstate.Budget, "docs/conditions.md"},
		"feedback": {facts(condition.Manifest{Meta: config, HasFeedback: true, FeedbackError: errors.New("path .x is not found")}), "Blocked", workstate.InvalidRule, "docs/feedback.md"},
		"finalizer": {deleting(facts(condition.Manifest{Meta: config}, condition.Manifest{Meta: pod})), "Blocked", workstate.Finalizer,
			"ConfigMap default/settings The work is being deleted"},
		"finalizer with its name": {changed(deleting(facts(condition.Manifest{Meta: config}, condition.Manifest{Meta: pod})), func(f *workstate.Facts) {
			condition.AddHeld(&f.Work.Status, []condition.Held{{Meta: pod, Finalizers: []string{"example.com/drain"}}}, 0)
		}), "Blocked", workstate.Finalizer, "Pod default/one The work is being deleted: Pod default/one waits for its finalizers example.com/drain"},
		"finalizer of a dropped object": {changed(deleting(facts(condition.Manifest{Meta: config})), func(f *workstate.Facts) {
			condition.AddHeld(&f.Work.Status, []condition.Held{{Meta: workv1.ManifestResourceMeta{Kind: "ConfigMap", Namespace: "default", Name: "f1"}, Dropped: true, Finalizers: []string{"example.com/drain"}}}, 1)
		}), "Blocked", workstate.Finalizer, "ConfigMap default/f1 The work is being deleted: ConfigMap default/f1, which the spec no longer has, waits for its finalizers example.com/drain; " +
			"1 object of lower waves waits on cluster1: kubectl get -n default configmap f1 -o"},
		"lower waves wait for what is not named": {changed(deleting(facts(condition.Manifest{Meta: config})), func(f *workstate.Facts) {
			condition.AddHeld(&f.Work.Status, nil, 1)
		}), "Progressing", workstate.WaitsForWave, "ManifestWork cluster1/web The work is being deleted: 1 object of lower waves waits wait; if it stays, on cluster1, kubectl get appliedmanifestworks"},
		"finalizer on the hub": {changed(deleting(facts()), func(f *workstate.Facts) {
			f.Work.Status = condition.WithDeleted(f.Work.Status, "cluster1", before)
			meta.RemoveStatusCondition(&f.Work.Status.Conditions, workv1.WorkDeleting)
			f.Work.Finalizers = append(f.Work.Finalizers, "example.com/hold")
		}), "Blocked", workstate.Finalizer, "example.com/hold"},
		"deletion is not paused": {changed(deleting(facts()), pause), "Blocked", workstate.Finalizer, "Deployment default/web"},
	} {
		if s := c.facts.State(); s.Stalled() != stalled[name] {
			t.Errorf("%s: stalled %v", name, s.Stalled())
		}
		e := explain.Explain(c.facts)
		if e.Word != c.word || (e.Blocker != nil) != (c.cause != "") {
			t.Errorf("%s: %s %+v, want %s", name, e.Word, e.Blocker, c.word)
			continue
		}
		if b := e.Blocker; b != nil {
			text := strings.Join([]string{b.Object, b.Message, b.Do}, " ")
			if b.Cause != c.cause || !strings.Contains(text, c.want) || strings.ContainsAny(strings.ReplaceAll(strings.ReplaceAll(text, `{"spec":{"hubAcceptsClient":true}}`, ""), "{.metadata", ""), "{") {
				t.Errorf("%s: %s: %s, want %s: %s", name, b.Cause, text, c.cause, c.want)
			}
		}
	}
}

// TestMoreThatIsHeld: what waits for the object that holds a deletion is not counted as held itself.
func TestMoreThatIsHeld(t *testing.T) {
	f := deleting(facts(condition.Manifest{Meta: config}, condition.Manifest{Meta: pod}, condition.Manifest{Meta: deploy}))
	if b := explain.Explain(f).Blocker; b.More != 2 {
		t.Errorf("of a deletion that names nothing: %+v", b)
	}
	condition.AddHeld(&f.Work.Status, []condition.Held{{Meta: pod, Finalizers: []string{"example.com/drain"}}}, 2)
	if b := explain.Explain(f).Blocker; b.More != 0 {
		t.Errorf("of one that names an object: %+v", b)
	}
}

// TestHops checks how far a work has got, with and without times.
func TestHops(t *testing.T) {
	old := facts()
	old.Work.Status.Delivery = nil
	meta.RemoveStatusCondition(&old.Work.Status.Conditions, workv1.WorkDelivered)
	meta.RemoveStatusCondition(&old.Work.Status.Conditions, workv1.WorkProgressing)
	for name, c := range map[string]struct {
		facts workstate.Facts
		want  string
	}{
		"ready":        {facts(), "accepted done published done 1 acknowledged done 2 received done 2 applied done 20 ready done 1000"},
		"peers of OCM": {old, "accepted done published done acknowledged done received done applied done ready not reported"},
		"on the way":   {pending("Unknown", workv1.ReasonPublished, ""), "accepted waiting published waiting acknowledged waiting received waiting applied waiting ready waiting"},
		"not applied":  {failed(errors.New("no")), "accepted done published done 1 acknowledged done 2 received done 2 applied waiting ready waiting"},
		"not ready":    {unready(pod, true, "Pod could not be scheduled"), "accepted done published done 1 acknowledged done 2 received done 2 applied done 20 ready waiting"},
		"deleting":     {deleting(facts()), "accepted done published done acknowledged done received done removed waiting"},
		"deletion on the way": {changed(facts(), func(f *workstate.Facts) {
			f.Work.DeletionTimestamp = &before
			f.Work.Generation++
			f.Work.Status.Delivery.Generation++
			f.Work.Status.Delivery.ReceivedTime, f.Work.Status.Delivery.AppliedTime, f.Work.Status.Delivery.ReadyTime = nil, nil, nil
		}), "accepted done published done 1 acknowledged done 2 received waiting removed waiting"},
		"deleted": {changed(deleting(facts()), func(f *workstate.Facts) {
			f.Work.Status = condition.WithDeleted(f.Work.Status, "cluster1", before)
		}), "accepted done published done acknowledged done received done removed done"},
		"no cluster": {pending("False", workv1.ReasonClusterNotFound, "", func(f *workstate.Facts) {
			f.Cluster, f.NoCluster = nil, true
			d := f.Work.Status.Delivery
			f.Work.Status.Delivery = &workv1.DeliveryStatus{Generation: 4, AcceptedTime: d.AcceptedTime, PublishedTime: d.PublishedTime, AcknowledgedTime: d.AcknowledgedTime}
		}), "accepted done published waiting acknowledged waiting received waiting applied waiting ready waiting"},
		"no answer": {pending("Unknown", workv1.ReasonPublished, "", func(f *workstate.Facts) {
			d := f.Work.Status.Delivery
			f.Work.Status.Delivery = &workv1.DeliveryStatus{Generation: 4, AcceptedTime: d.AcceptedTime, PublishedTime: d.PublishedTime}
		}), "accepted done published done 1 acknowledged waiting received waiting applied waiting ready waiting"},
	} {
		var got []string
		for _, h := range explain.Explain(c.facts).Hops {
			got = append(got, h.Name, string(h.Progress))
			if h.Took != nil {
				got = append(got, fmt.Sprint(*h.Took))
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, text, c.want)
		}
	}
	for name, c := range map[string]struct {
		change func(*workv1.DeliveryStatus)
		says   bool
	}{
		"a spec that was sent again": {func(d *workv1.DeliveryStatus) { d.PublishedTime = new(metav1.NewMicroTime(now.Add(time.Hour))) }, false},
		"times of an older spec": {func(d *workv1.DeliveryStatus) {
			d.Generation--
			d.AcceptedTime = new(metav1.NewMicroTime(now.Add(time.Hour)))
		}, false},
		"a clock that is behind": {func(d *workv1.DeliveryStatus) { d.ReceivedTime = new(metav1.NewMicroTime(before.Add(-time.Minute))) }, true},
	} {
		f := facts()
		c.change(f.Work.Status.Delivery)
		if notes := strings.Join(explain.Explain(f).Notes, ""); strings.Contains(notes, "is at least 1m0s behind the hub's") != c.says {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
	both := facts(condition.Manifest{Meta: deploy, Warnings: []string{`unknown field "spec.replcas"`}}, condition.Manifest{Meta: pod, ApplyError: errors.New("no")})
	if notes := explain.Explain(both).Notes; len(notes) != 1 || notes[0] != `Warning: Deployment default/web: unknown field "spec.replcas"` {
		t.Errorf("beside an error: notes %q", notes)
	}
	notes := explain.Explain(old).Notes
	if len(notes) != 1 || !strings.Contains(notes[0], workv1.ReportReadinessAnnotationKey) {
		t.Errorf("notes %q", notes)
	}
}

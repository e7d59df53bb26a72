package reconcile

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/pods"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// podResource is what the reasons of workloads are read from.
var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// causes finds the reasons of the workloads of one status.
type causes struct {
	reconciler *Reconciler
	rec        *reconciliation
	since      func(workv1.ManifestResourceMeta) (time.Time, bool) // nil: not made yet
	known      map[object.Ref]pods.Known
}

// readiness returns conditions, the evaluated ones of manifest i, with the cause of its pods in the
// message of those that say that its object, live, is not ready.
func (c *causes) readiness(ctx context.Context, i int, live *unstructured.Unstructured, conditions []metav1.Condition) []metav1.Condition {
	m := &c.rec.manifests[i]
	progressing := meta.FindStatusCondition(conditions, workv1.ManifestProgressing)
	if progressing == nil || progressing.Status != metav1.ConditionTrue || live == nil || !pods.HasPods(live) ||
		!conditionrules.IsReadiness(m.ConditionRules, workv1.ManifestProgressing) {
		return conditions
	}
	known := c.next(ctx, m.Meta, m.Ref, live)
	if known.Text == "" {
		return conditions
	}
	conditions = slices.Clone(conditions) // they may be those of the observed object
	for j := range conditions {
		said := &conditions[j]
		told := said.Type == workv1.ManifestProgressing || said.Type == workv1.ManifestDegraded
		if told && said.Status == metav1.ConditionTrue && conditionrules.IsReadiness(m.ConditionRules, said.Type) {
			said.Message += ": " + known.Text
		}
	}
	return conditions
}

// next returns what is known of the pods of a workload that is not ready, and requeues the work for
// when to look again.
func (c *causes) next(ctx context.Context, m workv1.ManifestResourceMeta, ref object.Ref, live *unstructured.Unstructured) pods.Known {
	r, rec, now := c.reconciler, c.rec, time.Now()
	if c.since == nil {
		c.since = condition.TrueSince(&rec.previous, workv1.ManifestProgressing)
	}
	since, ok := c.since(m)
	if !ok {
		since = now
	}
	who := "the agent"
	if rec.account != nil {
		who = "the executor " + rec.account.String()
	}
	known, again := r.pods.Next(ctx, rec.history().pods[ref], pods.Request{
		Workload: live, Since: since, Who: who, Client: func(ctx context.Context) (rest.Interface, error) { return r.podClient(ctx, rec, ref.Namespace) },
	}, now)
	rec.requeueWithin(again)
	if known == (pods.Known{}) { // most are ready before their pods are listed
		return known
	}
	if c.known == nil {
		c.known = map[object.Ref]pods.Known{}
	}
	c.known[ref] = known
	return known
}

// podClient returns the client that lists pods for a work, if the policy of the cluster's owner allows
// them. That of a work with an executor needs the executor's right to get them, because it may be the
// agent's own.
func (r *Reconciler) podClient(ctx context.Context, rec *reconciliation, namespace string) (rest.Interface, error) {
	ref := object.Ref{GroupVersionResource: podResource, Namespace: namespace}
	if err := rec.policy.RefuseObject(ref); err != nil {
		return nil, apierrors.NewForbidden(podResource.GroupResource(), "", err)
	}
	if rec.account == nil {
		return r.Raw, nil
	}
	if _, err := r.Executors.MayRead(ctx, *rec.account, ref); denied(err) {
		return nil, apierrors.NewForbidden(podResource.GroupResource(), "", err)
	} else if err != nil {
		return nil, err
	}
	return r.Executors.Client(ctx, *rec.account)
}

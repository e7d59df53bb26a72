package clustersets

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

// BindingStatus serves ManagedClusterSetBindings.
type BindingStatus struct {
	*controller.Controller[types.NamespacedName]
	cfg      Config
	sets     *controller.Cache[*clusterv1beta2.ManagedClusterSet]
	bindings *controller.Cache[*clusterv1beta2.ManagedClusterSetBinding]
}

// NewBindingStatus returns a controller. It does no I/O and starts nothing. It reports every fault of
// cfg.
func NewBindingStatus(cfg Config) (*BindingStatus, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("clustersets: %w", err)
	}
	b := &BindingStatus{cfg: cfg, sets: cfg.Informers.ManagedClusterSets(), bindings: cfg.Informers.ManagedClusterSetBindings()}
	var err error
	b.Controller, err = controller.New(controller.Config[types.NamespacedName]{
		Name: "clustersetbindings", Reconcile: b.reconcile, Queues: cfg.Queues, Logger: cfg.Logger,
		Watches: []controller.Watch{controller.On(b.sets, b.setChanged), controller.On(b.bindings, b.bindingChanged)},
	})
	return b, err
}

// setChanged queues the bindings of a set that has come or gone. It reads all bindings, since that
// is rare.
func (b *BindingStatus) setChanged(before, after *clusterv1beta2.ManagedClusterSet) {
	if before != nil && after != nil {
		return
	}
	set := after
	if set == nil {
		set = before
	}
	for _, binding := range b.bindings.All() {
		if binding.Spec.ClusterSet == set.Name {
			b.Add(controller.KeyOf(binding))
		}
	}
}

func (b *BindingStatus) bindingChanged(_, after *clusterv1beta2.ManagedClusterSetBinding) {
	if after != nil {
		b.Add(controller.KeyOf(after))
	}
}

// reconcile writes the status of a binding.
func (b *BindingStatus) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	binding, ok := b.bindings.Latest(key)
	if !ok || binding.DeletionTimestamp != nil {
		return 0, nil
	}
	_, exists := b.sets.Get(types.NamespacedName{Name: binding.Spec.ClusterSet})
	changed := binding.DeepCopy()
	if !meta.SetStatusCondition(&changed.Status.Conditions, boundCondition(binding, exists)) {
		return 0, nil
	}
	written, err := b.cfg.Client.ClusterV1beta2().ManagedClusterSetBindings(key.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("update status of ManagedClusterSetBinding %s: %w", key, err)
	}
	b.bindings.Wrote(written)
	return 0, nil
}

// boundCondition returns the condition Bound of a binding whose set exists, or does not.
func boundCondition(binding *clusterv1beta2.ManagedClusterSetBinding, exists bool) metav1.Condition {
	c := metav1.Condition{Type: clusterv1beta2.ClusterSetBindingBoundType, Status: metav1.ConditionFalse, ObservedGeneration: binding.Generation,
		Reason: clusterv1beta2.ReasonClusterSetNotFound}
	switch {
	case binding.Name != binding.Spec.ClusterSet:
		c.Message = "the name of a binding must be that of its set"
	case !exists:
		c.Message = fmt.Sprintf("ManagedClusterSet %s does not exist", binding.Spec.ClusterSet)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, clusterv1beta2.ReasonClusterSetBound
	}
	return c
}

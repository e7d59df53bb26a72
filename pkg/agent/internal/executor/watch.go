package executor

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

// rbacWatch keeps the policy of the cluster from watches of the four RBAC kinds.
type rbacWatch struct {
	client dynamic.Interface
	logger *slog.Logger
	// changed is called, without a lock held, with what a change affects. Synced means that a kind
	// was listed for the first time, so that anything may have changed.
	changed func(affected []dependency, synced bool)

	mu     sync.Mutex
	policy *policy
	kinds  map[string]*kindState // by resource; the map itself does not change
}

// kindState is the state of the watch of one kind. rbacWatch.mu guards it.
type kindState struct{ synced, failing bool }

// rbacObject is a decoded RBAC object, as the informers store it.
type rbacObject struct {
	metav1.ObjectMeta // namespace, name and resourceVersion
	binds             bool
	rules             []rbacv1.PolicyRule // of a role
	binding           binding
}

func newRBACWatch(client dynamic.Interface, logger *slog.Logger, changed func([]dependency, bool)) *rbacWatch {
	return &rbacWatch{client: client, logger: logger, changed: changed, policy: newPolicy(), kinds: map[string]*kindState{
		"roles": {}, "clusterroles": {}, "rolebindings": {}, "clusterrolebindings": {},
	}}
}

// run watches until ctx ends.
func (w *rbacWatch) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(w.logger.Handler()))
	var informers sync.WaitGroup
	for resource := range w.kinds {
		informers.Go(func() { w.watchKind(ctx, resource) })
	}
	informers.Wait()
}

// watchKind watches one kind until ctx ends.
func (w *rbacWatch) watchKind(ctx context.Context, resource string) {
	source := listwatch.Of(w.client.Resource(rbacv1.SchemeGroupVersion.WithResource(resource)), nil,
		func(ctx context.Context, err error) { w.requested(ctx, resource, err) })
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, w.client), &unstructured.Unstructured{}, 0, nil)
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    w.update,
		UpdateFunc: func(_, obj any) { w.update(obj, false) },
		DeleteFunc: w.delete,
	})
	err = errors.Join(err, informer.SetTransform(decoder(strings.HasSuffix(resource, "bindings"))),
		// requested logs failures once. A kind that the agent may not watch is no error.
		informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			klog.FromContext(ctx).V(4).Info("watch ended, retrying", "resource", resource, "error", err)
		}))
	if err != nil { // the informer was stopped before it was started, which is impossible
		w.logger.Error("watch of RBAC failed", "resource", resource, "error", err)
		return
	}
	var synced sync.WaitGroup
	synced.Go(func() {
		select {
		case <-registration.HasSyncedChecker().Done():
			w.mu.Lock()
			w.kinds[resource].synced = true
			w.mu.Unlock()
			w.changed(nil, true)
		case <-ctx.Done():
		}
	})
	informer.RunWithContext(ctx)
	synced.Wait()
}

// evaluate decides q from the watched objects. Nothing is known without a watch, until all kinds
// have been listed, and while one cannot be watched.
func (w *rbacWatch) evaluate(subjects []dependency, q query) (d decision, known bool) {
	if !w.complete() {
		return d, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, verb := range q.verbs() {
		if !w.policy.allows(subjects, verb, q.ref) {
			return decision{denied: verb, reason: "no RBAC rule allows it"}, true
		}
	}
	return d, true
}

// complete reports whether all kinds have been listed, and are watched, so that all changes are
// noticed. It is false without a watch.
func (w *rbacWatch) complete() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range w.kinds {
		if !kind.synced || kind.failing {
			return false
		}
	}
	return true
}

// requested records the result of a list or watch request.
func (w *rbacWatch) requested(ctx context.Context, resource string, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	before := w.kinds[resource].failing
	w.kinds[resource].failing = err != nil
	w.mu.Unlock()
	switch {
	case err != nil && !before:
		w.logger.WarnContext(ctx, "watch of RBAC failed, retrying; decisions about executors may be minutes old and are not made from memory; "+
			"give the agent the verbs list and watch", "resource", resource, "error", err)
	case err == nil && before:
		w.logger.InfoContext(ctx, "watch of RBAC restored", "resource", resource)
	}
}

// update adds or replaces an object. The first list affects everything anyway.
func (w *rbacWatch) update(obj any, initial bool) {
	w.change(obj, initial, func(name types.NamespacedName, o *rbacObject) []dependency {
		if o.binds {
			return w.policy.setBinding(name, o.binding)
		}
		return w.policy.setRole(name, o.rules)
	})
}

func (w *rbacWatch) delete(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	w.change(obj, false, func(name types.NamespacedName, o *rbacObject) []dependency {
		if o.binds {
			return w.policy.deleteBinding(name)
		}
		return w.policy.deleteRole(name)
	})
}

// change makes a change of the policy, and reports what it affects unless it is silent.
func (w *rbacWatch) change(obj any, silent bool, apply func(types.NamespacedName, *rbacObject) []dependency) {
	o, ok := obj.(*rbacObject)
	if !ok {
		return
	}
	w.mu.Lock()
	affected := apply(types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, o)
	w.mu.Unlock()
	if len(affected) > 0 && !silent {
		w.changed(affected, false)
	}
}

// decoder returns the function that turns roles or bindings into *rbacObjects.
func decoder(binds bool) cache.TransformFunc {
	return func(from any) (any, error) {
		obj, ok := from.(*unstructured.Unstructured)
		if !ok {
			return from, nil
		}
		o := &rbacObject{binds: binds}
		o.Namespace, o.Name, o.ResourceVersion = obj.GetNamespace(), obj.GetName(), obj.GetResourceVersion()
		var err error
		if binds {
			o.binding, err = decodeBinding(obj)
		} else {
			o.rules, err = decodeRole(obj)
		}
		return o, err
	}
}

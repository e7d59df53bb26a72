package executor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// rbacWatch holds the policy of the cluster from watches of the four RBAC kinds.
type rbacWatch struct {
	client dynamic.Interface
	logger *slog.Logger
	// changed is told, without a lock held, what a change concerns; renewed means
	// that a kind was listed for the first time, so anything may have changed.
	changed func(concerned []matter, renewed bool)

	mu     sync.Mutex
	policy *policy
	kinds  map[string]*watchedKind // by resource; the map itself does not change
}

// watchedKind is one of the four kinds, and the store of its reflector.
type watchedKind struct {
	watch      *rbacWatch
	resource   string
	namespaced bool
	binds      bool

	synced, failing bool // rbacWatch.mu guards both
}

var _ cache.ReflectorStore = (*watchedKind)(nil)

func newRBACWatch(client dynamic.Interface, logger *slog.Logger, changed func([]matter, bool)) *rbacWatch {
	w := &rbacWatch{client: client, logger: logger, changed: changed, policy: newPolicy(), kinds: map[string]*watchedKind{}}
	for _, kind := range []watchedKind{
		{resource: "roles", namespaced: true},
		{resource: "clusterroles"},
		{resource: "rolebindings", namespaced: true, binds: true},
		{resource: "clusterrolebindings", binds: true},
	} {
		kind.watch = w
		w.kinds[kind.resource] = &kind
	}
	return w
}

// run watches until ctx ends.
func (w *rbacWatch) run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(w.logger.Handler()))
	var reflectors sync.WaitGroup
	for _, kind := range w.kinds {
		reflectors.Go(func() { kind.run(ctx) })
	}
	reflectors.Wait()
}

// run watches the kind until ctx ends.
func (k *watchedKind) run(ctx context.Context) {
	client := k.watch.client.Resource(rbacv1.SchemeGroupVersion.WithResource(k.resource))
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, options)
			k.tried(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			opened, err := client.Watch(ctx, options)
			k.tried(ctx, err)
			return opened, err
		},
	}
	logger := klog.FromContext(ctx)
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(source, k.watch.client),
		&unstructured.Unstructured{}, k, cache.ReflectorOptions{Name: k.resource, Logger: &logger})
	// Not its RunWithContext, which logs every try as an error: a kind that may not
	// be watched is no fault.
	backoff := wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
	delay := backoff.DelayWithReset(clock.RealClock{}, 2*time.Minute)
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			logger.V(4).Info("the watch has ended", "resource", k.resource, "error", err)
		}
		return false, nil
	})
}

// evaluate decides q from memory. Nothing is known while a kind has not been listed
// or can not be watched.
func (w *rbacWatch) evaluate(subjects []matter, q question) (v verdict, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range w.kinds {
		if !kind.synced || kind.failing {
			return v, false
		}
	}
	for _, verb := range q.verbs() {
		if !w.policy.allows(subjects, verb, q.ref) {
			return verdict{denied: verb, reason: "no RBAC rule allows it"}, true
		}
	}
	return v, true
}

// tried notes how a list or a watch went.
func (k *watchedKind) tried(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	k.watch.mu.Lock()
	before := k.failing
	k.failing = err != nil
	k.watch.mu.Unlock()
	switch {
	case err != nil && !before:
		k.watch.logger.Warn("RBAC can not be watched: answers about executors may be minutes old, and are not given from memory; "+
			"give the agent the verbs list and watch", "resource", k.resource, "error", err)
	case err == nil && before:
		k.watch.logger.Info("RBAC is watched again", "resource", k.resource)
	}
}

// record is an RBAC object, decoded.
type record struct {
	name    types.NamespacedName
	rules   []rbacv1.PolicyRule
	binding binding
}

func (k *watchedKind) decode(from any) (record, error) {
	obj, ok := from.(*unstructured.Unstructured)
	if !ok {
		return record{}, fmt.Errorf("the watch of %s delivered a %T", k.resource, from)
	}
	r := record{name: types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}}
	var err error
	if k.binds {
		r.binding, err = decodeBinding(obj)
	} else {
		r.rules, err = decodeRole(obj)
	}
	return r, err
}

// set puts in an object. The caller holds rbacWatch.mu.
func (k *watchedKind) set(r record) []matter {
	if k.binds {
		return k.watch.policy.setBinding(r.name, r.binding)
	}
	return k.watch.policy.setRole(r.name, r.rules)
}

// drop takes out an object. The caller holds rbacWatch.mu.
func (k *watchedKind) drop(name types.NamespacedName) []matter {
	if k.binds {
		return k.watch.policy.dropBinding(name)
	}
	return k.watch.policy.dropRole(name)
}

// Add implements [cache.ReflectorStore].
func (k *watchedKind) Add(obj any) error { return k.Update(obj) }

// Update implements [cache.ReflectorStore].
func (k *watchedKind) Update(obj any) error {
	r, err := k.decode(obj)
	if err != nil {
		return err
	}
	k.watch.mu.Lock()
	concerned := k.set(r)
	k.watch.mu.Unlock()
	if len(concerned) > 0 {
		k.watch.changed(concerned, false)
	}
	return nil
}

// Delete implements [cache.ReflectorStore].
func (k *watchedKind) Delete(obj any) error {
	gone, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("the watch of %s delivered a %T", k.resource, obj)
	}
	k.watch.mu.Lock()
	concerned := k.drop(types.NamespacedName{Namespace: gone.GetNamespace(), Name: gone.GetName()})
	k.watch.mu.Unlock()
	if len(concerned) > 0 {
		k.watch.changed(concerned, false)
	}
	return nil
}

// Replace implements [cache.ReflectorStore]: list is all that there is.
func (k *watchedKind) Replace(list []any, _ string) error {
	records := make(map[types.NamespacedName]record, len(list))
	for _, obj := range list {
		r, err := k.decode(obj)
		if err != nil {
			return err
		}
		records[r.name] = r
	}
	k.watch.mu.Lock()
	var concerned []matter
	for name := range k.names() {
		if _, ok := records[name]; !ok {
			concerned = append(concerned, k.drop(name)...)
		}
	}
	for _, r := range records {
		concerned = append(concerned, k.set(r)...)
	}
	first := !k.synced
	k.synced = true
	k.watch.mu.Unlock()
	switch {
	case first:
		k.watch.changed(nil, true)
	case len(concerned) > 0:
		k.watch.changed(concerned, false)
	}
	return nil
}

// names gives the objects of the kind that the policy has. The caller holds
// rbacWatch.mu.
func (k *watchedKind) names() set[types.NamespacedName] {
	names := set[types.NamespacedName]{}
	note := func(name types.NamespacedName) {
		if (name.Namespace != "") == k.namespaced {
			names[name] = struct{}{}
		}
	}
	if k.binds {
		for name := range k.watch.policy.bindings {
			note(name)
		}
		return names
	}
	for name := range k.watch.policy.roles {
		note(name)
	}
	return names
}

// Resync implements [cache.ReflectorStore]: there is nothing to do.
func (k *watchedKind) Resync() error { return nil }

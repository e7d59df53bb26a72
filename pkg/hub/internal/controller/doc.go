// Package controller is the frame that all controllers of the hub are built on: shared informers
// with one cache per resource, and a rate-limited work queue with workers.
//
// [Informers] holds one list, one watch and one copy of each resource, whichever controllers use
// it. A resource that no controller asks for is not watched. Each [Cache] also overlays the
// controllers' own writes until the informer has caught up with them, so that a reconcile never
// acts on an object that is older than what was written here ([Cache.Latest], [Cache.Wrote]).
//
// [Controller] runs Reconcile for keys: it waits for the caches, retries with backoff, requeues,
// logs failures, and ends only when its goroutines have ended. A new controller is a Reconcile
// function and a list of the caches that it watches:
//
//	type Labeler struct {
//		clusters *controller.Cache[*clusterv1.ManagedCluster]
//		queue    *controller.Controller[types.NamespacedName]
//	}
//
//	func New(informers *controller.Informers, ...) (*Labeler, error) {
//		l := &Labeler{clusters: informers.ManagedClusters()}
//		changed := func(before, after *clusterv1.ManagedCluster) { l.queue.Add(controller.KeyOf(cmp.Or(after, before))) }
//		var err error
//		l.queue, err = controller.New(controller.Config[types.NamespacedName]{
//			Name: "labels", Reconcile: l.reconcile, Watches: []controller.Watch{controller.On(l.clusters, changed)},
//		})
//		return l, err
//	}
//
//	func (l *Labeler) Run(ctx context.Context) error { return l.queue.Run(ctx) }
//
//	func (l *Labeler) reconcile(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
//		cluster, ok := l.clusters.Latest(key)
//		if !ok {
//			return 0, nil
//		}
//		... compare with what should be; write; l.clusters.Wrote(written) ...
//	}
//
// The hub starts [Informers.Run] and each controller's Run, see package hub.
package controller

package leader

import (
	"context"
	"log/slog"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

// watch follows one Lease. The goroutines of run write the channels, the candidate reads them.
type watch struct {
	// leases holds the newest state that was not read yet; nil for a Lease that was deleted.
	leases chan *coordinationv1.Lease
	// refused holds the error when this client has no right to watch that was not read yet.
	refused chan error
}

func newWatch() *watch {
	return &watch{leases: make(chan *coordinationv1.Lease, 1), refused: make(chan error, 1)}
}

// run watches until ctx ends, with an informer's retries.
func (w *watch) run(ctx context.Context, leases Leases, o *Options, log *slog.Logger) {
	only := fields.OneTermEqualSelector("metadata.name", o.Name).String()
	source := listwatch.Of(leases, func(options *metav1.ListOptions) { options.FieldSelector = only }, nil)
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, leases), &coordinationv1.Lease{}, 0, nil)
	// Neither call fails before the informer runs.
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Debug("watch of the Lease failed, retrying", "error", err)
		if apierrors.IsForbidden(err) {
			select {
			case w.refused <- err:
			default:
			}
		}
	})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.put(object.(*coordinationv1.Lease)) },
		UpdateFunc: func(_, object any) { w.put(object.(*coordinationv1.Lease)) },
		DeleteFunc: func(any) { w.put(nil) },
	})
	informer.RunWithContext(ctx)
}

// put replaces the state that was not read yet. It is called by one goroutine at a time.
func (w *watch) put(lease *coordinationv1.Lease) {
	select {
	case <-w.leases:
	default:
	}
	w.leases <- lease
}

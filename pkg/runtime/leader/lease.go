package leader

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/runtime/kube"
)

// Leases reads and writes the Leases of a namespace. Clients of Kubernetes implement it.
type Leases interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error)
	List(ctx context.Context, options metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error)
}

// newLeases returns the client of the Leases in a namespace.
func newLeases(config *rest.Config, namespace string) (Leases, error) {
	return kube.NewObjects(config, coordinationv1.SchemeGroupVersion.WithResource("leases"), namespace,
		func() *coordinationv1.Lease { return &coordinationv1.Lease{} }, func() *coordinationv1.LeaseList { return &coordinationv1.LeaseList{} })
}

// lease is one Lease of the API server. It is not safe for concurrent use.
type lease struct {
	client Leases
	name   string
	last   observation // as it was last read or written
}

// get reads the Lease.
func (l *lease) get(ctx context.Context) error {
	stored, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		stored, err = nil, nil
	}
	if err == nil {
		l.last = l.last.observe(stored, time.Now())
	}
	return err
}

// put writes the Lease, unless it has changed since it was last read or written.
func (l *lease) put(ctx context.Context, want *coordinationv1.Lease) (err error) {
	var stored *coordinationv1.Lease
	if l.last.lease == nil {
		stored, err = l.client.Create(ctx, want, metav1.CreateOptions{})
	} else {
		stored, err = l.client.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err == nil {
		l.last = l.last.observe(stored, time.Now())
	}
	return err
}

package leader

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// lease is one Lease of the API server. It is not safe for concurrent use.
type lease struct {
	client coordination.LeaseInterface
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

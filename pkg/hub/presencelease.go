package hub

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/pkg/hub/internal/clusters"
)

// presenceRenewal is the time between two renewals of the Lease of the hub's presence. It expires
// after [clusters.HubAbsence].
const presenceRenewal = 10 * time.Second

// presenceLease renews the Lease [clusterv1.HubPresenceLease] while the hub is connected to the
// broker, so that readers of the API know whether somebody vouches for what it says. Nobody else
// writes it; the next leader goes on with it.
type presenceLease struct {
	leases    coordinationv1client.LeaseInterface
	name      string
	identity  string
	connected func() bool
	wake      chan struct{} // has room for one: the connection has changed
	log       *slog.Logger
	lease     *coordinationv1.Lease // as last read or written, used by run only
}

// changed has the Lease renewed if the hub is connected.
func (p *presenceLease) changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run renews the Lease until ctx ends. It costs one request per presenceRenewal.
func (p *presenceLease) run(ctx context.Context) error {
	ticker := time.NewTicker(presenceRenewal)
	defer ticker.Stop()
	for {
		if p.connected() {
			if err := p.renew(ctx, time.Now()); err != nil && ctx.Err() == nil {
				p.log.Warn("renewing the Lease of the hub's presence failed, retrying", "lease", p.name, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-p.wake:
		}
	}
}

// renew writes the Lease. After an error it is read again the next time.
func (p *presenceLease) renew(ctx context.Context, now time.Time) (err error) {
	if p.lease == nil {
		p.lease, err = p.leases.Get(ctx, p.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			p.lease, err = nil, nil
		}
		if err != nil {
			p.lease = nil
			return fmt.Errorf("get Lease: %w", err)
		}
	}
	next := renewedPresence(p.lease, p.name, p.identity, now)
	if p.lease == nil {
		p.lease, err = p.leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		p.lease, err = p.leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		p.lease = nil
		return fmt.Errorf("write Lease: %w", err)
	}
	return nil
}

// renewedPresence returns the Lease to write; lease is nil if there is none.
func renewedPresence(lease *coordinationv1.Lease, name, identity string, now time.Time) *coordinationv1.Lease {
	stamp := metav1.NewMicroTime(now)
	next := lease.DeepCopy()
	if next == nil {
		next = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if ptr.Deref(next.Spec.HolderIdentity, "") != identity {
		next.Spec.HolderIdentity, next.Spec.AcquireTime = &identity, &stamp
	}
	next.Spec.LeaseDurationSeconds = ptr.To(int32(clusters.HubAbsence / time.Second))
	next.Spec.RenewTime = &stamp
	return next
}

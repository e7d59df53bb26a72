package leadership

import (
	"context"
	"log/slog"
	"time"

	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/runtime/leader"
)

// HubAbsence is how long a hub may be without a connection to the broker before nobody vouches any more
// for what it has said of its clusters.
const HubAbsence = time.Minute

// presenceRenewal is the time between two renewals of the Lease of presence, which lasts for [HubAbsence].
const presenceRenewal = 10 * time.Second

// presence renews the Lease [clusterv1.HubPresenceLease] while the hub is connected to the broker, so
// that readers of the API know whether somebody vouches for what it says. The next leader goes on with it.
type presence struct {
	heartbeat *leader.Heartbeat
	connected func() bool
	wake      chan struct{} // has room for one: the connection has changed
	log       *slog.Logger
}

func newPresence(leases coordination.LeaseInterface, shard string, cfg *Config) *presence {
	return &presence{
		heartbeat: leader.NewHeartbeat(leases, clusterv1.HubPresenceLease(shard), cfg.Election.Identity, HubAbsence),
		connected: cfg.Connected, wake: make(chan struct{}, 1), log: cfg.Logger,
	}
}

// ConnectionChanged has the Lease of presence renewed if the hub is connected now. It does not block.
func (l *Leadership) ConnectionChanged() {
	if l.presence == nil {
		return
	}
	select {
	case l.presence.wake <- struct{}{}:
	default:
	}
}

// run renews the Lease until ctx ends. It costs one request per presenceRenewal.
func (p *presence) run(ctx context.Context) {
	ticker := time.NewTicker(presenceRenewal)
	defer ticker.Stop()
	for {
		if p.connected() {
			if err := p.heartbeat.Renew(ctx); err != nil && ctx.Err() == nil {
				p.log.Warn("renewing the Lease of the hub's presence failed, retrying", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-p.wake:
		}
	}
}

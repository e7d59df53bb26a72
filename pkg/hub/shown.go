package hub

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/statusreceiver"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// shown is what the delivery engine sees of the works: the visible ones.
type shown struct {
	statuses    *statusreceiver.Receiver
	cache       *works.Cache
	addressable func(wire.ClusterName) bool
}

var _ delivery.WorkStore = shown{}

// Get is part of [delivery.WorkStore].
func (s shown) Get(uid types.UID) (delivery.StoredWork, bool) {
	work, ok := s.cache.Get(uid)
	if !ok || !works.Visible(work, s.addressable(wire.ClusterName(work.Namespace))) {
		return delivery.StoredWork{}, false
	}
	return delivery.StoredWork{Work: work}, true
}

// ListCluster is part of [delivery.WorkStore].
func (s shown) ListCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	addressable := s.addressable(cluster)
	return func(yield func(*workv1.ManifestWork) bool) {
		for work := range s.cache.OfCluster(cluster) {
			if works.Visible(work, addressable) && !yield(work) {
				return
			}
		}
	}
}

// Clusters is part of [delivery.WorkStore].
func (s shown) Clusters() iter.Seq[wire.ClusterName] { return s.cache.Clusters() }

// UpdateStatus is part of [delivery.WorkStore].
func (s shown) UpdateStatus(ctx context.Context, status *wire.Status) error {
	return s.statuses.Receive(ctx, status)
}

// SetCondition is part of [delivery.WorkStore].
func (s shown) SetCondition(ctx context.Context, uid types.UID, c metav1.Condition) error {
	return s.statuses.Refused(ctx, uid, c)
}

// AgentAhead is part of [delivery.WorkStore].
func (s shown) AgentAhead(uid types.UID, held wire.Generation) { s.statuses.Outdated(uid, held) }

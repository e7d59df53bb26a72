package hub

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/statusreceiver"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/source/link"
	"github.com/workwire/workwire/pkg/wire"
)

// shown is what the link sees of the works: the visible ones.
type shown struct {
	statuses    *statusreceiver.Receiver
	cache       *works.Cache
	addressable func(wire.ClusterName) bool
}

var _ link.Works = shown{}

// Get is part of [link.Works].
func (s shown) Get(uid types.UID) (link.Held, bool) {
	work, ok := s.cache.Get(uid)
	if !ok || !works.Visible(work, s.addressable(wire.ClusterName(work.Namespace))) {
		return link.Held{}, false
	}
	return link.Held{Work: work}, true
}

// OfCluster is part of [link.Works].
func (s shown) OfCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	addressable := s.addressable(cluster)
	return func(yield func(*workv1.ManifestWork) bool) {
		for work := range s.cache.OfCluster(cluster) {
			if works.Visible(work, addressable) && !yield(work) {
				return
			}
		}
	}
}

// Clusters is part of [link.Works].
func (s shown) Clusters() iter.Seq[wire.ClusterName] { return s.cache.Clusters() }

// Intake is part of [link.Works].
func (s shown) Intake(ctx context.Context, status *wire.Status) error {
	return s.statuses.Receive(ctx, status)
}

// Refused is part of [link.Works].
func (s shown) Refused(ctx context.Context, uid types.UID, c metav1.Condition) error {
	return s.statuses.Refused(ctx, uid, c)
}

// Outdated is part of [link.Works].
func (s shown) Outdated(uid types.UID, held wire.Generation) { s.statuses.Outdated(uid, held) }

package hub

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/statusreceiver"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// workStore shows the delivery engine the visible works, and stores the statuses that it receives.
type workStore struct {
	*statusreceiver.Receiver
	cache       *works.Cache
	addressable func(wire.ClusterName) bool
}

var _ delivery.WorkStore = workStore{}

// Get implements [delivery.WorkStore].
func (s workStore) Get(uid types.UID) (delivery.StoredWork, bool) {
	work, ok := s.cache.ByUID(uid)
	if !ok || !works.Visible(work, s.addressable(wire.ClusterName(work.Namespace))) {
		return delivery.StoredWork{}, false
	}
	return delivery.StoredWork{Work: work}, true
}

// ListCluster implements [delivery.WorkStore].
func (s workStore) ListCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	addressable := s.addressable(cluster)
	return func(yield func(*workv1.ManifestWork) bool) {
		for work := range s.cache.OfCluster(cluster) {
			if works.Visible(work, addressable) && !yield(work) {
				return
			}
		}
	}
}

// Clusters implements [delivery.WorkStore].
func (s workStore) Clusters() iter.Seq[wire.ClusterName] { return s.cache.Clusters() }

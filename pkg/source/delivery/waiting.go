package delivery

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// maxWaiting is how many bytes of memory the statuses of one cluster take at most while they wait to be stored.
const maxWaiting = 16 << 20

// waits adds a status of this size that waits to be stored. It returns false if too many wait: the status is
// dropped; first reports whether it is the first one since the cluster was asked for its statuses.
func (d *core) waits(name wire.ClusterName, size int) (room, first bool) {
	c := d.cluster(name)
	if c.waiting > 0 && c.waiting+size > maxWaiting {
		first, c.owing = !c.owing, true
		return false, first
	}
	c.waiting += size
	return true, false
}

// waitsNoMore removes a status of this size; 0: there was none. It reports whether the cluster is to be asked
// for its statuses, of which some were dropped.
func (d *core) waitsNoMore(name wire.ClusterName, size int) (ask bool) {
	c, ok := d.clusters[name]
	if !ok || size == 0 {
		return false
	}
	c.waiting = max(c.waiting-size, 0)
	if c.waiting <= maxWaiting/2 {
		ask, c.owing = c.owing, false
	}
	d.release(c)
	return ask
}

// waitsInPlaceOf removes a status of this size, in whose place a newer one waits. If the cluster is to be asked then,
// [core.waitsNoMore] says so when that one is stored.
func (d *core) waitsInPlaceOf(name wire.ClusterName, size int) {
	if c, ok := d.clusters[name]; ok {
		c.waiting = max(c.waiting-size, 0)
	}
}

// memoryOf returns about how many bytes of memory a status takes.
func memoryOf(s *workv1.ManifestWorkStatus) int {
	size := 1024 + memoryOfConditions(s.Conditions)
	for i := range s.ResourceStatus.Manifests {
		m := &s.ResourceStatus.Manifests[i]
		size += 256 + len(m.ResourceMeta.Name) + len(m.ResourceMeta.Namespace) + memoryOfConditions(m.Conditions)
		for j := range m.StatusFeedbacks.Values {
			size += 96 + memoryOfValue(&m.StatusFeedbacks.Values[j])
		}
	}
	return size
}

func memoryOfConditions(conditions []metav1.Condition) (size int) {
	for i := range conditions {
		size += 128 + len(conditions[i].Type) + len(conditions[i].Reason) + len(conditions[i].Message)
	}
	return size
}

func memoryOfValue(v *workv1.FeedbackValue) int {
	size := len(v.Name)
	for _, text := range []*string{v.Value.String, v.Value.JsonRaw} {
		if text != nil {
			size += len(*text)
		}
	}
	return size
}

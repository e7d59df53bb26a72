package delivery

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// maxWaiting is how many bytes of memory the statuses of one cluster take at most while they wait to be stored.
const maxWaiting = 16 << 20

// waitingStatuses are the bytes of the statuses that wait to be stored, by cluster. Its zero value is empty. It is
// safe for concurrent use.
type waitingStatuses struct {
	mu    sync.Mutex
	bytes map[wire.ClusterName]int
	owing map[wire.ClusterName]struct{} // statuses of them were dropped
}

// room reports whether a status of this size may wait. If not, it is dropped; first reports whether it is the first one since
// the cluster was asked for its statuses.
func (w *waitingStatuses) room(cluster wire.ClusterName, size int) (room, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes[cluster] == 0 || w.bytes[cluster]+size <= maxWaiting {
		return true, false
	}
	_, owing := w.owing[cluster]
	if w.owing == nil {
		w.owing = map[wire.ClusterName]struct{}{}
	}
	w.owing[cluster] = struct{}{}
	return false, !owing
}

// add adds a status that waits.
func (w *waitingStatuses) add(cluster wire.ClusterName, size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes == nil {
		w.bytes = map[wire.ClusterName]int{}
	}
	w.bytes[cluster] += size
}

// remove removes a status of this size that does not wait any more; 0: there was none. It reports whether the cluster is to be asked
// for its statuses, of which some were dropped.
func (w *waitingStatuses) remove(cluster wire.ClusterName, size int) (ask bool) {
	if size == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.bytes[cluster] - size
	if left > 0 {
		w.bytes[cluster] = left
	} else {
		delete(w.bytes, cluster)
	}
	if _, ask = w.owing[cluster]; left > maxWaiting/2 {
		return false
	}
	delete(w.owing, cluster)
	return ask
}

// forget forgets a cluster.
func (w *waitingStatuses) forget(cluster wire.ClusterName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.bytes, cluster)
	delete(w.owing, cluster)
}

// memoryOf returns about how many bytes of memory a status takes.
func memoryOf(s *wire.Status) int {
	size := 1024 + memoryOfConditions(s.Status.Conditions)
	for i := range s.Status.ResourceStatus.Manifests {
		m := &s.Status.ResourceStatus.Manifests[i]
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

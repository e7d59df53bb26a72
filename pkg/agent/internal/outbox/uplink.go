package outbox

import (
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/equality"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// eventSize returns the size of what a publish of e sends, but for the frame of MQTT.
func eventSize(e *cloudevents.Event) int {
	size := len(e.Data())
	for name, value := range e.Extensions() {
		text, _ := value.(string)
		size += len(name) + len(text)
	}
	return size
}

// onlyFeedback reports whether s differs from the newest status of w in feedback values alone.
func (c *core) onlyFeedback(w *work, s *Status) bool {
	if w.want.Hash == "" || w.want.Generation != s.Generation || w.last.final || s.Final {
		return false
	}
	before := c.decode(&w.last, w.want.Generation)
	return sameButFeedback(&before.Status, &s.Status)
}

// sameButFeedback reports whether two statuses are equal but for their feedback values.
func sameButFeedback(a, b *workv1.ManifestWorkStatus) bool {
	m, n := a.ResourceStatus.Manifests, b.ResourceStatus.Manifests
	if len(m) != len(n) || !equality.Semantic.DeepEqual(a.Conditions, b.Conditions) {
		return false
	}
	for i := range m {
		if m[i].ResourceMeta != n[i].ResourceMeta || !equality.Semantic.DeepEqual(m[i].Conditions, n[i].Conditions) {
			return false
		}
	}
	return true
}

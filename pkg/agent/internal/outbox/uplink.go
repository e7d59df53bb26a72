package outbox

import (
	"math"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/equality"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// uplink is a budget of bytes, which grows with time up to that of a minute. What must be sent may
// exceed it; the rest waits until it has recovered.
type uplink struct {
	perMinute float64 // 0: no limit
	left      float64
	at        time.Time // when left was computed
}

func newUplink(perMinute int, now time.Time) uplink {
	return uplink{perMinute: float64(perMinute), left: float64(perMinute), at: now}
}

// recover adds what the time since the last call brings.
func (u *uplink) recover(now time.Time) {
	if passed := now.Sub(u.at); passed > 0 {
		u.left = min(u.perMinute, u.left+u.perMinute*passed.Minutes())
	}
	u.at = now
}

// spend takes n bytes, also if there are not so many.
func (u *uplink) spend(n int, now time.Time) {
	if u.perMinute > 0 {
		u.recover(now)
		u.left -= float64(n)
	}
}

// wait returns how long to wait before the next bytes, 0 if they need not wait.
func (u *uplink) wait(now time.Time) time.Duration {
	if u.perMinute == 0 {
		return 0
	}
	u.recover(now)
	if u.left > 0 {
		return 0
	}
	return time.Duration(math.Ceil((1-u.left)/u.perMinute*float64(time.Minute)/1e6)) * time.Millisecond
}

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

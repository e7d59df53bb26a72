package delivery

import (
	"time"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

// untrustedMemory is how long a cluster is reported after its last refused status. An agent that
// does not sign is asked for its statuses every slowRequests.
const untrustedMemory = slowRequests + 5*time.Minute

// Untrusted says that statuses in the name of a cluster are refused. The zero value says that they are
// not any more.
type Untrusted struct {
	// Since is when the first one was refused.
	Since time.Time
	// Reason is why the last one was that this was reported for.
	Reason signing.Reason
}

// distrust is what is known of a cluster of which a status was refused.
type distrust struct {
	Untrusted
	last, reported time.Time
}

// decideDistrust returns what is known of a cluster after one of its statuses was refused, and whether
// to report it: at first, and when the reason has changed, once in a minute.
func decideDistrust(before distrust, reason signing.Reason, now time.Time) (after distrust, report bool) {
	after = before
	after.last = now
	if before.Since.IsZero() {
		after.Since = now
	}
	if before.Since.IsZero() || reason != before.Reason && now.Sub(before.reported) >= time.Minute {
		after.Reason, after.reported = reason, now
		return after, true
	}
	return after, false
}

// distrusted: a status or a question of a cluster was refused. known reports whether there is a key for the cluster.
type distrusted struct {
	cluster wire.ClusterName
	reason  signing.Reason
	known   bool
}

func (in distrusted) apply(d *core, now time.Time) {
	if !d.serves(in.cluster) || !in.known && !d.hasWorks(in.cluster) {
		return
	}
	c := d.cluster(in.cluster)
	after, report := decideDistrust(c.distrust, in.reason, now)
	if c.distrust = after; report {
		d.act(TrustChanged{in.cluster, after.Untrusted})
	}
}

// statusSigned: an agent has signed a status at this time. If it is believed, it is the newest one of its work.
type statusSigned struct {
	key    workKey
	at     time.Time
	reason signing.Reason // set by step: why it is not believed
}

func (in *statusSigned) apply(d *core, now time.Time) {
	w, known := d.works[in.key]
	newest := int64(0)
	if known {
		newest = w.signed
	}
	if in.reason = d.window(in.key.cluster).Decide(in.at, newest, now); in.reason == "" && known {
		w.signed = in.at.UnixMicro()
	}
}

// window returns when events of a cluster may have been signed.
func (d *core) window(cluster wire.ClusterName) signing.Window {
	w := d.signatures
	if c, ok := d.clusters[cluster]; ok && c.gained.After(w.Started) {
		w.Started = c.gained // what another program has received before is not known here
	}
	return w
}

// questionOrder identifies what is in order among the questions of a cluster: those of one kind on one topic.
type questionOrder struct {
	kind      string
	broadcast bool
}

// questionSigned: an agent has signed a question at this time. If it is believed, it is the newest one of its order.
type questionSigned struct {
	cluster wire.ClusterName
	order   questionOrder
	at      time.Time
	reason  signing.Reason // set by step: why it is not believed
}

func (in *questionSigned) apply(d *core, now time.Time) {
	if !d.serves(in.cluster) {
		return // its question is not asked
	}
	c := d.cluster(in.cluster)
	if in.reason = d.window(in.cluster).Decide(in.at, c.asked[in.order]+1, now); in.reason == "" {
		if c.asked == nil {
			c.asked = make(map[questionOrder]int64)
		}
		c.asked[in.order] = in.at.UnixMicro()
	}
	d.release(c)
}

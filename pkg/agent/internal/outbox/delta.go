package outbox

import (
	"cmp"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/compress"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// minDelta is the size in bytes of the data from which a status is sent as a delta: below it, the
	// extensions are most of an event.
	minDelta = 2 << 10
	// afterMissed is how long a work is sent whole after its source could not use a delta: it may not
	// store what it receives, and each question costs more than a delta saves.
	afterMissed = 10 * time.Minute
)

// keepBase keeps the status that was acknowledged last, before a newer one takes its place.
func (w *work) keepBase() {
	if w.last.encoded != "" && w.want == w.acked {
		w.base = w.last.encoded
	}
}

// hold encodes what a has sent, which was acknowledged: it is the newest status, or the base of it.
func (w *work) hold(a *attempt) {
	switch encoded := cmp.Or(a.encoded, a.last.encoded); {
	case w.last.plain != a.last.plain:
		w.base = encoded
	case encoded != "":
		w.last.plain, w.last.encoded, w.base = nil, encoded, ""
	}
}

// deltaBase returns the status whose difference to the newest one can be sent, and its hash; "" if
// there is none, or the whole is to be sent.
func (w *work) deltaBase(now time.Time) (base compress.Data, hash string) {
	if w.form != whole || w.want.Final || w.sent != w.acked.Hash || now.Before(w.whole) {
		return "", ""
	}
	return w.base, w.sent
}

// missed notes that the source asks for the status of w. If that was sent as a delta, it could not use
// it.
func (w *work) missed(now time.Time) {
	if w.delta {
		w.whole = now.Add(afterMissed)
	}
}

// encodeEvent returns the event of a, whose message is the whole status: a delta if there is a base and
// that is much smaller.
func (o *Outbox) encodeEvent(a *attempt, message *wire.Status) (cloudevents.Event, error) {
	full, err := wire.Encode(message, o.config.Now())
	if err != nil || a.base == "" || a.form != whole || len(full.Data()) < minDelta || removing(message) {
		return full, err
	}
	var base workv1.ManifestWorkStatus
	o.core.codec.Decode(a.base, &base)
	d, err := wire.NewStatusDelta(message, &base, a.baseHash)
	if err != nil {
		return full, err
	}
	event, err := wire.Encode(d, o.config.Now())
	if err != nil || 2*len(event.Data()) > len(full.Data()) {
		return full, err
	}
	a.delta = true
	return event, nil
}

// removing reports whether the work is being deleted, or is, or its deletion is held: what depends on
// that is not left to a difference.
func removing(s *wire.Status) bool {
	conditions := s.Status.Conditions
	return s.Meta.DeletionTimestamp != nil || meta.IsStatusConditionTrue(conditions, workv1.WorkDeleting) ||
		meta.IsStatusConditionTrue(conditions, workv1.WorkDeleted) || meta.IsStatusConditionTrue(conditions, workv1.WorkDeletionHeld)
}

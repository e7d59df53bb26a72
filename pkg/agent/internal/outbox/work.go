package outbox

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/compress"
	"github.com/workwire/workwire/pkg/runtime/schedule"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
)

// version identifies a status of a work. Of two statuses with the same version, only one is
// published. The zero version stands for none.
type version struct {
	// Hash is [wire.StatusHash] of the complete status.
	Hash       string          `json:"hash"`
	Generation wire.Generation `json:"generation,omitempty"`
	Final      bool            `json:"final,omitempty"`
}

// state is the state of a work:
//
//	idle       → queued      there is something to publish
//	queued     → publishing  a publish has begun
//	publishing → idle        the broker has acknowledged it, and there is nothing newer
//	publishing → queued      there is something newer, or the connection was lost
//	publishing → backingOff  the broker refused it
//	backingOff → queued      the backoff has ended, there is a new connection, or a smaller status
type state int

const (
	idle state = iota
	queued
	publishing
	backingOff
)

// work is the state of one work.
type work struct {
	schedule.Timer // while backingOff: when it ends

	key      inbox.Key
	last     heldStatus // newest
	want     version    // of last
	inFlight version    // while publishing
	based    bool       // inFlight may be sent as a delta
	acked    version    // acknowledged last
	sent     string     // hash of the form in which acked was sent
	digest   uint64     // of digested
	digested string     // the value of sent that has this digest
	form     form       // in which want is to be sent

	base   compress.Data // what was acknowledged last, while last is newer; "": not known
	delta  bool          // acked was sent as a delta
	whole  time.Time     // until when no delta is sent
	urgent bool          // more than feedback values has changed since acked

	notHeld   bool // last answers the deletion of a work that the agent does not hold
	resync    bool // the source asked for the status
	forgotten bool // while publishing: remove it afterwards

	state    state
	failures int // since a publish was acknowledged
}

// heldStatus is a status in memory. It is encoded once the broker has acknowledged it.
type heldStatus struct {
	cluster wire.ClusterName
	meta    *metav1.ObjectMeta
	plain   *workv1.ManifestWorkStatus // nil if encoded
	encoded compress.Data
	trace   string
	final   bool
	times   wire.Times // in memory only
}

func hold(s Status) heldStatus {
	return heldStatus{cluster: s.Cluster, meta: s.Meta, plain: &s.Status, trace: s.Trace, final: s.Final}
}

// nextTimes returns the times to send with s. Before are those of the status before, which was about
// generation. What happened before the agent started is not known, and its source remembers it.
func nextTimes(before wire.Times, generation wire.Generation, s *Status, now time.Time) wire.Times {
	if s.Received.IsZero() || s.Final {
		return wire.Times{}
	}
	times := wire.Times{Received: metav1.NewMicroTime(s.Received)}
	if generation == s.Generation && before.Received.Equal(&times.Received) {
		times = before
	}
	at := metav1.NewMicroTime(now)
	conditions := s.Status.Conditions
	applied := meta.FindStatusCondition(conditions, workv1.WorkApplied)
	if times.Applied.IsZero() && applied != nil && applied.Status == metav1.ConditionTrue && applied.ObservedGeneration == int64(s.Generation) {
		times.Applied = at
	}
	ready := !times.Applied.IsZero() && workstate.ReportsReady(conditions)
	switch {
	case !ready:
		times.Ready = metav1.MicroTime{}
	case times.Ready.IsZero():
		times.Ready = at
	}
	return times
}

// sentHash returns the hash that the source knows if it has received the newest status, or "" if
// that is not sent yet.
func (w *work) sentHash() string {
	if w.want != w.acked {
		return ""
	}
	return w.sent
}

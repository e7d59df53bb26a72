package outbox

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/store"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// statusRecord is the newest status of a work as JSON in the state store.
type statusRecord struct {
	Source  wire.SourceID             `json:"source"`
	UID     types.UID                 `json:"uid"`
	Version version                   `json:"version"`
	Cluster wire.ClusterName          `json:"cluster"`
	Meta    metav1.ObjectMeta         `json:"metadata"`
	Status  workv1.ManifestWorkStatus `json:"status"`
	Trace   string                    `json:"trace,omitempty"`
	Answer  bool                      `json:"answer,omitempty"`
}

// ackRecord says, beside it, which version of a work's status the broker took
// last.
type ackRecord struct {
	version
	// Sent is the hash of the form that was sent.
	Sent     string          `json:"sent"`
	Sequence wire.SequenceID `json:"sequence"`
}

// record gives what is to be kept of a work's newest status.
func record(key inbox.Key, v version, s Status, answer bool) *statusRecord {
	return &statusRecord{
		Source: key.Source, UID: key.UID, Version: v, Cluster: s.Cluster, Meta: *s.Meta, Status: s.Status, Trace: s.Trace, Answer: answer,
	}
}

func (r *statusRecord) encode() ([]byte, error) { return encode(r) }

func (r *ackRecord) encode() ([]byte, error) { return encode(r) }

func encode(r any) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode a %T: %w", r, err)
	}
	return data, nil
}

func decodeStatus(data []byte) (*statusRecord, error) {
	var r statusRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("it is no record of a status: %w", err)
	}
	if r.Source == "" || r.UID == "" || r.Cluster == "" || r.Version.Hash == "" || r.Version.Generation < 0 {
		return nil, errors.New("source, uid, cluster, a hash and a generation from 0 are required")
	}
	return &r, nil
}

// maxSequence is far beyond any clock's ids, and far enough from the end of the
// numbers to count on from it.
const maxSequence = 3 << 61

func decodeAck(data []byte) (*ackRecord, error) {
	var r ackRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("it is no record of a sent status: %w", err)
	}
	if r.Hash == "" || r.Sent == "" || r.Sequence <= 0 || r.Sequence > maxSequence {
		return nil, errors.New("two hashes and a sequence id are required")
	}
	return &r, nil
}

// Load reads what the store holds. Statuses that the broker has not taken are
// published again. Those of works that known does not report, such as one that
// was forgotten at the very end, are dropped, final ones excepted. Call it once
// before anything else. A record that can not be read is logged and left out. It
// fails when the file can not be read.
func (o *Outbox) Load(known func(inbox.Key) bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	unreadable := func(at string, err error) {
		o.config.Logger.Error("state record of a status can not be read; the status is reported anew", "record", at, "error", err)
	}
	byRecord := map[string]*work{}
	err := o.config.Store.Each(store.Statuses, func(at string, value []byte) error {
		r, err := decodeStatus(value)
		if err != nil {
			unreadable(at, err)
			return nil
		}
		key := inbox.Key{Source: r.Source, UID: r.UID}
		if at != key.StoreKey() {
			unreadable(at, errors.New("it stands under the key of another work"))
			return nil
		}
		if !r.Version.Final && !known(key) {
			o.config.Store.Delete(store.Statuses, at)
			return nil
		}
		w := o.add(key)
		w.want, w.answer = r.Version, r.Answer
		w.last = keep(Status{Cluster: r.Cluster, Meta: &r.Meta, Status: r.Status, Trace: r.Trace, Final: r.Version.Final})
		byRecord[at] = w
		return nil
	})
	if err != nil {
		return fmt.Errorf("load the statuses held: %w", err)
	}
	var newest wire.SequenceID
	err = o.config.Store.Each(store.Acked, func(at string, value []byte) error {
		r, err := decodeAck(value)
		if err != nil {
			unreadable(at, err)
			return nil
		}
		newest = max(newest, r.Sequence)
		if w := byRecord[at]; w != nil {
			w.acked, w.sent = r.version, r.Sent
		} else {
			o.config.Store.Delete(store.Acked, at)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load the statuses held: %w", err)
	}
	o.sequence.Resume(newest)
	for _, w := range byRecord {
		if w.want == w.acked {
			o.pack(w)
		}
		o.push(w)
	}
	return nil
}

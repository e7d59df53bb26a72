package outbox

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/store"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/pkg/wire"
)

// storedStatus is the newest status of a work, as JSON in bucket store.Statuses.
type storedStatus struct {
	Source  wire.SourceID             `json:"source"`
	UID     types.UID                 `json:"uid"`
	Version version                   `json:"version"`
	Cluster wire.ClusterName          `json:"cluster"`
	Meta    metav1.ObjectMeta         `json:"metadata"`
	Status  workv1.ManifestWorkStatus `json:"status"`
	Trace   string                    `json:"trace,omitempty"`
	NotHeld bool                      `json:"answer,omitempty"`
}

// storedAck is the version of a work's status that the broker acknowledged last, as JSON in bucket
// store.Acked.
type storedAck struct {
	version
	// Sent is the hash of the form in which it was sent.
	Sent     string          `json:"sent"`
	Sequence wire.SequenceID `json:"sequence"`
}

// encoder returns the encoder of a stored value.
func encoder(value any) statestore.Encoder {
	return func() ([]byte, error) {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", value, err)
		}
		return data, nil
	}
}

func decodeStatus(data []byte) (*storedStatus, error) {
	var r storedStatus
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("not the JSON of a status: %w", err)
	}
	if r.Source == "" || r.UID == "" || r.Cluster == "" || r.Version.Hash == "" || r.Version.Generation < 0 {
		return nil, errors.New("source, uid, cluster, a hash and a generation from 0 are required")
	}
	return &r, nil
}

// maxSequence is larger than the ids of any clock, and leaves room to continue from it.
const maxSequence = 3 << 61

func decodeAck(data []byte) (*storedAck, error) {
	var r storedAck
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("not the JSON of an acknowledged status: %w", err)
	}
	if r.Hash == "" || r.Sent == "" || r.Sequence <= 0 || r.Sequence > maxSequence {
		return nil, errors.New("two hashes and a sequence id are required")
	}
	return &r, nil
}

// Load reads the store. Statuses that the broker has not acknowledged are published again. Statuses
// for which current returns false, given their work and generation, are deleted unless they are final: those of works that were
// forgotten just before the agent ended, and those of an earlier spec than the one that is held: a later status may have been
// published, and not be on disk. An entry that cannot be read is logged and
// skipped. Load returns an error if the file cannot be read. Call it once before anything else.
func (o *Outbox) Load(current func(inbox.Key, wire.Generation) bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	loaded := map[string]*work{} // by store key
	if err := o.loadStatuses(current, loaded); err != nil {
		return fmt.Errorf("load statuses: %w", err)
	}
	newest, err := o.loadAcks(loaded)
	if err != nil {
		return fmt.Errorf("load acknowledged statuses: %w", err)
	}
	o.sequence.Resume(newest)
	for _, w := range loaded {
		if w.want == w.acked {
			o.core.encode(w)
		}
		o.core.enqueue(w)
	}
	return nil
}

// Discard deletes the stored statuses, which another agent has reported since. Sequence ids go on
// from the stored ones. Call it instead of Load.
func (o *Outbox) Discard() error {
	newest, err := o.loadAcks(nil)
	if err != nil {
		return fmt.Errorf("load acknowledged statuses: %w", err)
	}
	o.sequence.Resume(newest)
	return nil
}

func (o *Outbox) loadStatuses(current func(inbox.Key, wire.Generation) bool, loaded map[string]*work) error {
	return o.config.Store.Each(store.Statuses, func(storeKey string, value []byte) error {
		stored, err := decodeStatus(value)
		if err != nil {
			o.logUnreadable(storeKey, err)
			return nil
		}
		key := inbox.Key{Source: stored.Source, UID: stored.UID}
		if storeKey != key.StoreKey() {
			o.logUnreadable(storeKey, errors.New("the entry is stored under the key of another work"))
			return nil
		}
		if !stored.Version.Final && !current(key, stored.Version.Generation) {
			o.config.Store.Delete(store.Statuses, storeKey)
			return nil
		}
		w := o.core.add(key)
		w.want, w.urgent = stored.Version, true
		o.core.setNotHeld(w, stored.NotHeld)
		w.last = hold(Status{Cluster: stored.Cluster, Meta: &stored.Meta, Status: stored.Status, Trace: stored.Trace, Final: stored.Version.Final})
		loaded[storeKey] = w
		return nil
	})
}

// loadAcks returns the highest sequence id that was acknowledged.
func (o *Outbox) loadAcks(loaded map[string]*work) (newest wire.SequenceID, err error) {
	err = o.config.Store.Each(store.Acked, func(storeKey string, value []byte) error {
		stored, err := decodeAck(value)
		if err != nil {
			o.logUnreadable(storeKey, err)
			return nil
		}
		newest = max(newest, stored.Sequence)
		if w := loaded[storeKey]; w != nil {
			w.acked, w.sent = stored.version, stored.Sent
		} else {
			o.config.Store.Delete(store.Acked, storeKey)
		}
		return nil
	})
	return newest, err
}

func (o *Outbox) logUnreadable(storeKey string, err error) {
	o.config.Logger.Error("stored status cannot be read, reporting it again", "key", storeKey, "error", err)
}

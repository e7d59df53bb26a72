package inbox

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/workwire/workwire/pkg/agent/internal/store"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/wire"
)

// storedEntry is an Entry as JSON in bucket store.Specs.
type storedEntry struct {
	*Entry
	Bundle *wire.Bundle `json:"bundle,omitempty"`
	Sealed []byte       `json:"sealedBundle,omitempty"` // in place of Bundle, encrypted
}

// encode returns e as stored. A spec that arrived sealed is encrypted.
func (e *Entry) encode(unseal *sealing.Unsealer) ([]byte, error) {
	r := storedEntry{Entry: e}
	switch {
	case e.HasSpec() && e.Sealed:
		bundle, err := json.Marshal(wire.NewBundle(&e.Spec))
		if err == nil {
			r.Sealed, err = unseal.Protect(e.StoreKey(), bundle)
		}
		if err != nil {
			return nil, fmt.Errorf("encode work %s: %w", e.Key, err)
		}
	case e.HasSpec():
		r.Bundle = wire.NewBundle(&e.Spec)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode work %s: %w", e.Key, err)
	}
	return data, nil
}

// decode reverses encode. It returns an error for entries that no event can cause.
func decode(data []byte, unseal *sealing.Unsealer) (*Entry, error) {
	e := &Entry{}
	r := storedEntry{Entry: e}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("not the JSON of a work: %w", err)
	}
	if e.Source == "" || e.UID == "" || e.Cluster == "" || e.Meta.Name == "" {
		return nil, errors.New("source, uid, cluster and name are required")
	}
	if e.Generation < 0 {
		return nil, errors.New("the generation is negative")
	}
	if r.Sealed != nil {
		bundle, err := unseal.Reveal(e.StoreKey(), r.Sealed)
		if err == nil {
			err = json.Unmarshal(bundle, &r.Bundle)
		}
		if err != nil {
			return nil, fmt.Errorf("its spec is encrypted: %w", err)
		}
		e.Sealed = true
	}
	if r.Bundle != nil {
		if err := r.Bundle.Validate(); err != nil {
			return nil, err
		}
		e.Spec = r.Bundle.WorkSpec()
	}
	if !e.HasSpec() && e.Deleting == nil && e.Refusal == nil && e.Hold == nil {
		return nil, errors.New("it has neither manifests nor a refusal nor a deletion nor a hold")
	}
	return e, nil
}

// Load reads the store and reports each work as changed. An entry that cannot be read is logged and
// skipped: the next spec resync fetches the work again. Load returns an error if the file cannot be
// read. Call it once before anything else.
func (b *Inbox) Load() error {
	var keys []Key
	b.mu.Lock()
	err := b.config.Store.Each(store.Specs, func(storeKey string, value []byte) error {
		e, err := decode(value, b.config.Unseal)
		if err == nil && e.StoreKey() != storeKey {
			err = errors.New("the entry is stored under the key of another work")
		}
		if err != nil {
			b.config.Logger.Error("stored work cannot be read, requesting it again", "key", storeKey, "error", err)
			return nil
		}
		b.set(e)
		keys = append(keys, e.Key)
		return nil
	})
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("load works: %w", err)
	}
	for _, key := range keys {
		b.config.Changed(key)
	}
	return nil
}

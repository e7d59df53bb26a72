package sealing

import (
	"crypto/hpke"
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

// NoKeyError is the error of [Sealer.Seal] for a cluster that must not get data in clear.
type NoKeyError struct {
	Cluster wire.ClusterName
	// Err is why its key cannot be used; nil if there is none.
	Err error
}

// Error says why there is no key.
func (e *NoKeyError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the key of cluster %s cannot be used: %v", e.Cluster, e.Err)
	}
	return fmt.Sprintf("cluster %s has no key", e.Cluster)
}

// Unwrap returns Err.
func (e *NoKeyError) Unwrap() error { return e.Err }

// Seal seals the data of e to the key of its cluster, and masks its content hash; e must not be
// signed yet. Events without a spec stay as they are, and so do those for a cluster without a key,
// unless that is required: then the error is a [*NoKeyError].
func (s *Sealer) Seal(e *cloudevents.Event) error {
	if s == nil || !wire.IsSealable(*e) {
		return nil
	}
	work, err := wire.WorkOf(*e)
	if err != nil {
		return err
	}
	key, err := s.keyOf(work.Cluster)
	switch {
	case err != nil:
		s.count("no_key")
		return err
	case key == nil:
		s.count("clear")
		return nil
	}
	box, err := seal(*key, *e)
	if err != nil {
		return fmt.Errorf("seal the spec of work %s: %w", work.UID, err)
	}
	hash := s.mask(work.Cluster, work.UID, work.Generation, wire.ContentHashOf(*e))
	if err := wire.SetSealed(e, wire.Sealed{KeyID: key.ID, Box: box}, hash); err != nil {
		return err
	}
	s.count("sealed")
	return nil
}

func seal(key PublicKey, e cloudevents.Event) ([]byte, error) {
	return hpke.Seal(key.key, kdf, aead, wire.SealedContext(e, key.ID), e.Data())
}

// ContentHash returns the content hash that an event has after [Sealer.Seal], whose data before has
// this hash.
func (s *Sealer) ContentHash(cluster wire.ClusterName, uid types.UID, generation wire.Generation, hash string) string {
	if s == nil {
		return hash
	}
	if key, err := s.keyOf(cluster); key == nil && err == nil {
		return hash
	}
	return s.mask(cluster, uid, generation, hash)
}

func (s *Sealer) mask(cluster wire.ClusterName, uid types.UID, generation wire.Generation, hash string) string {
	return wire.MaskContentHash(s.config.Secret(secretPurpose), cluster, uid, generation, hash)
}

// secretPurpose is what the secret of the source is used for here.
const secretPurpose = "workwire.dev/content-hash/v1"

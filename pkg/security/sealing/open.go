package sealing

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/workwire/workwire/pkg/security/keyfile"
	"github.com/workwire/workwire/pkg/wire"
)

// Reason says why sealed data cannot be opened. It is a metric label.
type Reason string

// The reasons of [OpenError].
const (
	// UnknownKey: the data is sealed to a key that the agent does not have.
	UnknownKey Reason = "unknown_key"
	// Invalid: the data was not sealed for this event, or is damaged.
	Invalid Reason = "invalid"
	// Clear: the data is not sealed, which the agent demands of its source. Of [Unsealer.Demand].
	Clear Reason = "clear"
)

// OpenError is the error of [Unsealer.Open] and [Unsealer.Demand].
type OpenError struct {
	Reason Reason
	// KeyID is the key that the data names; empty if it names none.
	KeyID string
}

// Error says what is wrong and what to do.
func (e *OpenError) Error() string {
	switch e.Reason {
	case UnknownKey:
		return fmt.Sprintf("the data is sealed to key %s, which this agent does not have: look at --unseal-key, and at the key of the cluster at the source", e.KeyID)
	case Clear:
		return "the data is in clear, and this agent takes sealed data only (--require-sealed): give the source the key of this cluster, with --seal-keys"
	default:
		return "the data was not sealed for this work, cluster and generation, or is damaged"
	}
}

// UnsealerConfig configures [NewUnsealer].
type UnsealerConfig struct {
	// Files each have one private key, see [ParseKey]; at least one. The first is the one in use, the
	// others are former ones.
	Files []string
	// Required are sources of which nothing is taken in clear, [AllSources] for all.
	Required []wire.SourceID
	// Registerer for metrics. Default: none.
	Registerer prometheus.Registerer
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// Unsealer opens what was sealed to keys from files. It is safe for concurrent use. A nil Unsealer
// has no keys.
type Unsealer struct {
	files    []*keyfile.File[*Key]
	required []wire.SourceID
	specs    *prometheus.CounterVec
}

// AllSources in [UnsealerConfig.Required] stands for all sources.
const AllSources = "*"

// NewUnsealer reads the keys.
func NewUnsealer(c UnsealerConfig) (*Unsealer, error) {
	if len(c.Files) == 0 {
		return nil, errors.New("sealing: Files must name at least one file")
	}
	u := &Unsealer{required: c.Required, specs: promauto.With(c.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "workwire_agent_sealed_specs_total", Help: "Sealed specs and dry runs received, by result: opened, unknown_key or invalid; clear: refused, because it was not sealed.",
	}, []string{"result"})}
	for _, path := range c.Files {
		file, err := keyfile.Open(path, "key to open sealed data with", ParseKey, cmp.Or(c.Logger, slog.Default()))
		if err != nil {
			return nil, err
		}
		u.files = append(u.files, file)
	}
	return u, nil
}

// Changes returns how often keys were read: it grows when a file has changed.
func (u *Unsealer) Changes() (n int) {
	if u != nil {
		for _, file := range u.files {
			_, changes := file.GetChanges(time.Now())
			n += changes
		}
	}
	return n
}

// Demand returns an [*OpenError], and counts, if nothing of source is taken in clear.
func (u *Unsealer) Demand(source wire.SourceID) error {
	if u == nil || !slices.Contains(u.required, source) && !slices.Contains(u.required, AllSources) {
		return nil
	}
	u.specs.WithLabelValues(string(Clear)).Inc()
	return &OpenError{Reason: Clear}
}

// find returns the key with an id, the first key if it is empty; nil if there is none.
func (u *Unsealer) find(id string) *Key {
	if u == nil {
		return nil
	}
	for _, file := range u.files {
		if key := file.Get(time.Now()); id == "" || key.public.ID == id {
			return key
		}
	}
	return nil
}

// Open returns e with its data opened; e must be sealed. Its error is an [*OpenError].
func (u *Unsealer) Open(e cloudevents.Event) (cloudevents.Event, error) {
	data, err := u.open(e)
	opened := e.Clone()
	if err == nil {
		err = wire.SetOpened(&opened, data)
	}
	result := "opened"
	var failure *OpenError
	if errors.As(err, &failure) {
		result = string(failure.Reason)
	}
	if u != nil {
		u.specs.WithLabelValues(result).Inc()
	}
	return opened, err
}

func (u *Unsealer) open(e cloudevents.Event) ([]byte, error) {
	sealed, err := wire.ParseSealed(e)
	if err != nil {
		return nil, &OpenError{Reason: Invalid}
	}
	key := u.find(sealed.KeyID)
	if key == nil {
		return nil, &OpenError{Reason: UnknownKey, KeyID: sealed.KeyID}
	}
	data, err := hpke.Open(key.private, kdf, aead, wire.SealedContext(e, sealed.KeyID), sealed.Box)
	if err != nil {
		return nil, &OpenError{Reason: Invalid, KeyID: sealed.KeyID}
	}
	return data, nil
}

// storePurpose derives the key of [Unsealer.Protect] from a private key.
const storePurpose = "workwire.dev/state/v1"

// errUnreadable is the error of [Unsealer.Reveal]: no key opens the data.
var errUnreadable = errors.New("no key of --unseal-key opens it")

// Protect returns data encrypted with the first key for [Unsealer.Reveal]. It is bound to name. A
// symmetric cipher does this, which costs microseconds.
func (u *Unsealer) Protect(name string, data []byte) ([]byte, error) {
	key := u.find("")
	if key == nil {
		return nil, errUnreadable
	}
	box, err := key.storage()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize(), box.NonceSize()+len(data)+box.Overhead())
	_, _ = rand.Read(nonce) // never fails
	return box.Seal(nonce, nonce, data, []byte(name)), nil
}

// Reveal reverses [Unsealer.Protect] with any of the keys.
func (u *Unsealer) Reveal(name string, data []byte) ([]byte, error) {
	if u == nil {
		return nil, errUnreadable
	}
	for _, file := range u.files {
		box, err := file.Get(time.Now()).storage()
		if err != nil {
			return nil, err
		}
		if len(data) < box.NonceSize() {
			break
		}
		if plain, err := box.Open(nil, data[:box.NonceSize()], data[box.NonceSize():], []byte(name)); err == nil {
			return plain, nil
		}
	}
	return nil, errUnreadable
}

// storage returns the cipher that protects what is stored on disk.
func (k *Key) storage() (cipher.AEAD, error) {
	private, err := k.private.Bytes()
	if err != nil {
		return nil, err
	}
	secret, err := hkdf.Key(sha256.New, private, nil, storePurpose, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

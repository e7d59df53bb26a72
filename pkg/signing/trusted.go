package signing

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/keyfile"
	"github.com/workwire/workwire/pkg/wire"
)

// maxKeys bounds the keys of a file.
const maxKeys = 256

// Reason says why an event is refused. It is a metric label.
type Reason string

// The reasons of [TrustedKeys.Verify].
const (
	// Unsigned: the event has no signature.
	Unsigned Reason = "unsigned"
	// Malformed: the signature cannot be parsed.
	Malformed Reason = "malformed"
	// UnknownKey: the key is not trusted.
	UnknownKey Reason = "unknown_key"
	// WrongSource: the key is trusted, but not for the source of the event.
	WrongSource Reason = "wrong_source"
	// Invalid: the event is not the one that was signed.
	Invalid Reason = "invalid"
)

// RefusedError is the error of [TrustedKeys.Verify].
type RefusedError struct {
	Reason Reason
	// KeyID is the key that the event names; empty if it names none.
	KeyID string
}

// Error returns the reason and the key.
func (e *RefusedError) Error() string {
	if e.KeyID == "" {
		return "signature refused: " + string(e.Reason)
	}
	return fmt.Sprintf("signature of key %s refused: %s", e.KeyID, e.Reason)
}

// TrustedKey is an entry of a file of trusted keys.
type TrustedKey struct {
	PublicKey
	// Sources are the sources that the key may sign for.
	Sources []wire.SourceID
}

// trustedFile is the YAML of a file of trusted keys.
type trustedFile struct {
	Keys []trustedEntry `json:"keys"`
}

type trustedEntry struct {
	ID        string          `json:"id"`
	Sources   []wire.SourceID `json:"sources"`
	PublicKey string          `json:"publicKey"`
}

var sourceShape = regexp.MustCompile(`^[a-z0-9-]+$`)

// ParseTrustedKeys parses a file of trusted keys, YAML. It reports every fault.
func ParseTrustedKeys(data []byte) ([]TrustedKey, error) {
	var file trustedFile
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, err
	}
	if len(file.Keys) == 0 || len(file.Keys) > maxKeys {
		return nil, fmt.Errorf("keys has %d entries: want 1 to %d; workctl keys public prints an entry", len(file.Keys), maxKeys)
	}
	var errs []error
	keys := make([]TrustedKey, 0, len(file.Keys))
	for i, entry := range file.Keys {
		key, err := entry.parse()
		if err == nil && slices.ContainsFunc(keys, func(other TrustedKey) bool { return other.ID == key.ID }) {
			err = errors.New("the key is there twice: name all its sources in one entry")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("keys[%d]: %w", i, err))
			continue
		}
		keys = append(keys, key)
	}
	return keys, errors.Join(errs...)
}

func (e *trustedEntry) parse() (TrustedKey, error) {
	der, err := base64.StdEncoding.DecodeString(e.PublicKey)
	if err != nil {
		return TrustedKey{}, errors.New("publicKey is not base64")
	}
	public, err := ParsePublicKey(der)
	switch {
	case err != nil:
		return TrustedKey{}, fmt.Errorf("publicKey: %w", err)
	case e.ID != public.ID:
		return TrustedKey{}, fmt.Errorf("id %.80q is not that of publicKey, %s", e.ID, public.ID)
	case len(e.Sources) == 0:
		return TrustedKey{}, errors.New("sources is empty: name the sources that the key may sign for")
	}
	for _, source := range e.Sources {
		if !sourceShape.MatchString(string(source)) {
			return TrustedKey{}, fmt.Errorf("source %.80q must have only a-z, 0-9 and -", source)
		}
	}
	return TrustedKey{PublicKey: public, Sources: e.Sources}, nil
}

// FormatTrustedKeys returns a file of trusted keys.
func FormatTrustedKeys(keys ...TrustedKey) ([]byte, error) {
	var file trustedFile
	for _, key := range keys {
		file.Keys = append(file.Keys, trustedEntry{ID: key.ID, Sources: key.Sources, PublicKey: base64.StdEncoding.EncodeToString(key.PKIX)})
	}
	return yaml.Marshal(file)
}

// TrustedKeysConfig configures [OpenTrustedKeys].
type TrustedKeysConfig struct {
	// File is a file of trusted keys; required.
	File string
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// TrustedKeys are the keys of a file. It is safe for concurrent use.
type TrustedKeys struct {
	keys *keyfile.File[map[string]TrustedKey]
}

// OpenTrustedKeys reads the file.
func OpenTrustedKeys(c TrustedKeysConfig) (*TrustedKeys, error) {
	keys, err := keyfile.Open(c.File, "trusted keys", func(data []byte) (map[string]TrustedKey, error) {
		list, err := ParseTrustedKeys(data)
		byID := make(map[string]TrustedKey, len(list))
		for _, key := range list {
			byID[key.ID] = key
		}
		return byID, err
	}, cmp.Or(c.Logger, slog.Default()))
	if err != nil {
		return nil, err
	}
	return &TrustedKeys{keys}, nil
}

// Verify returns when e was signed, by a key that is trusted for source, which is that of e and of
// its topic. Its error is a [*RefusedError].
func (t *TrustedKeys) Verify(e cloudevents.Event, source wire.SourceID) (time.Time, error) {
	signature, err := wire.SignatureOf(e)
	switch {
	case errors.Is(err, wire.ErrUnsigned):
		return time.Time{}, &RefusedError{Reason: Unsigned}
	case err != nil:
		return time.Time{}, &RefusedError{Reason: Malformed}
	}
	refused := func(reason Reason) (time.Time, error) {
		return time.Time{}, &RefusedError{Reason: reason, KeyID: signature.KeyID}
	}
	key, known := t.keys.Get(time.Now())[signature.KeyID]
	switch {
	case !known:
		return refused(UnknownKey)
	case string(source) != e.Source() || !slices.Contains(key.Sources, source):
		return refused(WrongSource)
	case !ed25519.Verify(key.key, wire.SignedBytes(e, signature.KeyID, signature.Time), signature.Value[:]):
		return refused(Invalid)
	}
	return signature.Time, nil
}

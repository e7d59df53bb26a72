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

	"github.com/workwire/workwire/pkg/runtime/yamlfile"
	"github.com/workwire/workwire/pkg/security/keyfile"
	"github.com/workwire/workwire/pkg/wire"
)

// maxKeys bounds the keys of a file of trusted keys, maxAgentKeys those of a file of trusted agents:
// two for each of 10,000 clusters, and some.
const (
	maxKeys      = 256
	maxAgentKeys = 32_768
)

// Reason says why an event is refused. It is a metric label.
type Reason string

// The reasons of [TrustedKeys.Verify] and [TrustedAgents.Verify].
const (
	// Unsigned: the event has no signature.
	Unsigned Reason = "unsigned"
	// Malformed: the signature cannot be parsed.
	Malformed Reason = "malformed"
	// UnknownKey: the key is not trusted.
	UnknownKey Reason = "unknown_key"
	// WrongSource: the key is trusted, but not for the source of the event.
	WrongSource Reason = "wrong_source"
	// WrongCluster: the key is trusted, but not for the cluster of the status.
	WrongCluster Reason = "wrong_cluster"
	// Invalid: the event is not the one that was signed.
	Invalid Reason = "invalid"
)

// The reasons of those who decide whether an event with a valid signature is new.
const (
	// Expired: the event was signed longer ago than events are valid.
	Expired Reason = "expired"
	// Future: the event was signed later than the clock of its receiver allows.
	Future Reason = "future"
	// Replayed: a later event about the same subject was received, or this one.
	Replayed Reason = "replayed"
	// BeforeStart: the event of an agent was signed before this source ran: an earlier process may have
	// received a later one. Agents are asked for what the source lacks at each connect.
	BeforeStart Reason = "before_start"
)

// RefusedError is the error of [TrustedKeys.Verify] and [TrustedAgents.Verify].
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

// TrustedKey is an entry of a file of trusted keys, which has Sources, or of trusted agents, which has
// Clusters.
type TrustedKey struct {
	PublicKey
	// Sources are the sources that the key may sign for.
	Sources []wire.SourceID
	// Clusters are the clusters whose statuses the key may sign.
	Clusters []wire.ClusterName
}

// trustedFile is the YAML of a file of trusted keys or agents.
type trustedFile struct {
	Keys []trustedEntry `json:"keys"`
}

type trustedEntry struct {
	ID        string             `json:"id"`
	Sources   []wire.SourceID    `json:"sources,omitempty"`
	Clusters  []wire.ClusterName `json:"clusters,omitempty"`
	PublicKey string             `json:"publicKey"`
}

var sourceShape = regexp.MustCompile(`^[a-z0-9-]+$`)

// ParseTrustedKeys parses a file of trusted keys, YAML. It reports every fault.
func ParseTrustedKeys(data []byte) ([]TrustedKey, error) {
	return parseTrusted(data, maxKeys, func(e *trustedEntry) error {
		switch {
		case len(e.Clusters) > 0:
			return errors.New("clusters is for --trusted-agents of work-hub: name the sources that the key may sign for in sources")
		case len(e.Sources) == 0:
			return errors.New("sources is empty: name the sources that the key may sign for")
		}
		for _, source := range e.Sources {
			if !sourceShape.MatchString(string(source)) {
				return fmt.Errorf("source %.80q must have only a-z, 0-9 and -", source)
			}
		}
		return nil
	})
}

// ParseTrustedAgents parses a file of trusted agents, YAML. It reports every fault.
func ParseTrustedAgents(data []byte) ([]TrustedKey, error) {
	return parseTrusted(data, maxAgentKeys, func(e *trustedEntry) error {
		switch {
		case len(e.Sources) > 0:
			return errors.New("sources is for --trusted-keys of work-agent: name the clusters whose statuses the key may sign in clusters")
		case len(e.Clusters) == 0:
			return errors.New("clusters is empty: name the clusters whose statuses the key may sign")
		}
		for _, cluster := range e.Clusters {
			if !sourceShape.MatchString(string(cluster)) {
				return fmt.Errorf("cluster %.80q must have only a-z, 0-9 and -", cluster)
			}
		}
		return nil
	})
}

// parseTrusted parses a file whose entries satisfy check.
func parseTrusted(data []byte, limit int, check func(*trustedEntry) error) ([]TrustedKey, error) {
	var file trustedFile
	if err := yamlfile.Decode(data, &file); err != nil {
		return nil, err
	}
	if len(file.Keys) == 0 || len(file.Keys) > limit {
		return nil, fmt.Errorf("keys has %d entries: want 1 to %d; workctl keys public prints an entry", len(file.Keys), limit)
	}
	var errs []error
	keys := make([]TrustedKey, 0, len(file.Keys))
	known := make(map[string]bool, len(file.Keys))
	for i := range file.Keys {
		entry := &file.Keys[i]
		public, err := entry.key()
		if err == nil {
			err = check(entry)
		}
		if err == nil && known[public.ID] {
			err = errors.New("the key is there twice: name all its sources or clusters in one entry")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("keys[%d]: %w", i, err))
			continue
		}
		known[public.ID] = true
		keys = append(keys, TrustedKey{PublicKey: public, Sources: entry.Sources, Clusters: entry.Clusters})
	}
	return keys, errors.Join(errs...)
}

func (e *trustedEntry) key() (PublicKey, error) {
	der, err := base64.StdEncoding.DecodeString(e.PublicKey)
	if err != nil {
		return PublicKey{}, errors.New("publicKey is not base64")
	}
	public, err := ParsePublicKey(der)
	switch {
	case err != nil:
		return PublicKey{}, fmt.Errorf("publicKey: %w", err)
	case e.ID != public.ID:
		return PublicKey{}, fmt.Errorf("id %.80q is not that of publicKey, %s", e.ID, public.ID)
	default:
		return public, nil
	}
}

// FormatTrustedKeys returns a file of trusted keys, or of trusted agents.
func FormatTrustedKeys(keys ...TrustedKey) ([]byte, error) {
	var file trustedFile
	for _, key := range keys {
		file.Keys = append(file.Keys, trustedEntry{
			ID: key.ID, Sources: key.Sources, Clusters: key.Clusters, PublicKey: base64.StdEncoding.EncodeToString(key.PKIX),
		})
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
	keys, err := keyfile.Open(c.File, "trusted keys", byID(ParseTrustedKeys), cmp.Or(c.Logger, slog.Default()))
	if err != nil {
		return nil, err
	}
	return &TrustedKeys{keys}, nil
}

// byID returns the function that parses a file as parse does, into a map.
func byID(parse func([]byte) ([]TrustedKey, error)) func([]byte) (map[string]TrustedKey, error) {
	return func(data []byte) (map[string]TrustedKey, error) {
		list, err := parse(data)
		keys := make(map[string]TrustedKey, len(list))
		for _, key := range list {
			keys[key.ID] = key
		}
		return keys, err
	}
}

// Verify returns when e was signed, by a key that is trusted for source, which is that of e and of
// its topic. Its error is a [*RefusedError].
func (t *TrustedKeys) Verify(e cloudevents.Event, source wire.SourceID) (time.Time, error) {
	return verify(e, func(id string) (PublicKey, Reason) {
		key, known := t.keys.Get(time.Now())[id]
		switch {
		case !known:
			return PublicKey{}, UnknownKey
		case string(source) != e.Source() || !slices.Contains(key.Sources, source):
			return PublicKey{}, WrongSource
		default:
			return key.PublicKey, ""
		}
	})
}

// verify returns when e was signed. find returns the key with an id, or why it must not have signed e.
func verify(e cloudevents.Event, find func(id string) (PublicKey, Reason)) (time.Time, error) {
	signature, err := wire.SignatureOf(e)
	switch {
	case errors.Is(err, wire.ErrUnsigned):
		return time.Time{}, &RefusedError{Reason: Unsigned}
	case err != nil:
		return time.Time{}, &RefusedError{Reason: Malformed}
	}
	key, reason := find(signature.KeyID)
	if reason == "" && !ed25519.Verify(key.key, wire.SignedBytes(e, signature.KeyID, signature.Time), signature.Value[:]) {
		reason = Invalid
	}
	if reason != "" {
		return time.Time{}, &RefusedError{Reason: reason, KeyID: signature.KeyID}
	}
	return signature.Time, nil
}

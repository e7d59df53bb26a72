package wire

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

const (
	extSignature = "signature"
	// signaturePurpose is the first field of the signed bytes, so that a signature is never valid for
	// anything else.
	signaturePurpose = "workwire.dev/signature/v1"
	// statusSignaturePurpose is that of what agents sign, so that the key of a cluster signs nothing of a source.
	statusSignaturePurpose = "workwire.dev/status-signature/v1"
	signatureVersion       = "v1"
	// SignatureSize is the size of a signature's value in bytes, that of Ed25519.
	SignatureSize = 64
)

// Signature is the extension `signature` of an event of a source, or of an agent (docs/protocol.md,
// Signatures).
type Signature struct {
	// KeyID is the id of the key: 16 lower-case hexadecimal digits.
	KeyID string
	// Time is when the event was signed, after 1970, in whole microseconds.
	Time time.Time
	// Value is the Ed25519 signature of [SignedBytes].
	Value [SignatureSize]byte
}

// signedExtensions are the extensions that a signature covers, in this order. They must contain
// every extension that Decode reads of a spec or a status resync request.
var signedExtensions = []string{
	extClusterName, extOriginalSource, extResourceID, extResourceVersion, extSourceIdentity, extAuthoritative,
	extDeletionTimestamp, extContentHash, extMetadata, extLogTracing,
}

// signedStatusExtensions are those that the signature of an agent covers. They must contain every
// extension that Decode reads of what IsSignableByAgent, but for expirytime and accepts.
var signedStatusExtensions = []string{
	extClusterName, extOriginalSource, extResourceID, extResourceVersion, extSequenceID, extSession, extStatusHash,
	extReceivedTime, extAppliedTime, extReadyTime, extMetadata, extLogTracing,
}

// SignedBytes returns the bytes that the signature of e signs (docs/protocol.md, Signatures): e
// itself without its signature, the id of the key, and the time of the signature.
func SignedBytes(e cloudevents.Event, keyID string, at time.Time) []byte {
	x := extensions(e.Extensions())
	digest := sha256.Sum256(e.Data())
	purpose, names := signaturePurpose, signedExtensions
	if IsSignableByAgent(e) {
		purpose, names = statusSignaturePurpose, signedStatusExtensions
	}
	fields := make([]string, 0, len(names)+6)
	fields = append(fields, purpose, keyID, strconv.FormatInt(at.UnixMicro(), 10), e.Type(), e.Source())
	for _, name := range names {
		fields = append(fields, x.text(name))
	}
	fields = append(fields, hex.EncodeToString(digest[:]))
	return netstrings(fields...)
}

// IsSignable reports whether e is an event of a source that has a signature where events are
// signed: a spec, a spec delta, a deletion, a status resync request, or a dry run.
func IsSignable(e cloudevents.Event) bool { return kindOf(e).signer == theSource }

// IsSignableByAgent reports whether e is an event that has a signature where agents sign: a status, also
// the answer to a status resync request, the last one of a work that is deleted, and a status delta; a
// spec resync request; a digest; or the answer to a dry run. Presence has none.
func IsSignableByAgent(e cloudevents.Event) bool { return kindOf(e).signer == theAgent }

// IsAbout reports whether e names cluster as the one that it is from, or for.
func IsAbout(e cloudevents.Event, cluster ClusterName) bool {
	return extensions(e.Extensions()).text(extClusterName) == string(cluster)
}

// SetSignature sets the signature of e.
func SetSignature(e *cloudevents.Event, s Signature) { e.SetExtension(extSignature, s.String()) }

// ErrUnsigned is returned by [SignatureOf] for an event without a signature.
var ErrUnsigned = errors.New("the event has no signature")

// SignatureOf returns the signature of e, which is not verified; [ErrUnsigned] if there is none.
func SignatureOf(e cloudevents.Event) (Signature, error) {
	text := extensions(e.Extensions()).text(extSignature)
	if text == "" {
		return Signature{}, ErrUnsigned
	}
	return ParseSignature(text)
}

// String returns the value of the extension.
func (s Signature) String() string {
	return fmt.Sprintf("%s:%s:%d:%s", signatureVersion, s.KeyID, s.Time.UnixMicro(), base64.RawURLEncoding.EncodeToString(s.Value[:]))
}

var keyIDShape = regexp.MustCompile(`^[0-9a-f]{16}$`)

// ParseSignature parses the value of the extension. Every signature has only one text.
func ParseSignature(text string) (s Signature, err error) {
	invalid := fmt.Errorf("extension signature %.160q: want v1:<key id>:<microseconds>:<64 bytes in base64url>", text)
	parts := strings.Split(text, ":")
	if len(parts) != 4 || parts[0] != signatureVersion || !keyIDShape.MatchString(parts[1]) {
		return Signature{}, invalid
	}
	micros, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || micros <= 0 || strconv.FormatInt(micros, 10) != parts[2] {
		return Signature{}, invalid
	}
	if len(parts[3]) != base64.RawURLEncoding.EncodedLen(SignatureSize) {
		return Signature{}, invalid
	}
	value, err := base64.RawURLEncoding.Strict().DecodeString(parts[3])
	if err != nil || len(value) != SignatureSize {
		return Signature{}, invalid
	}
	s = Signature{KeyID: parts[1], Time: time.UnixMicro(micros)}
	copy(s.Value[:], value)
	return s, nil
}

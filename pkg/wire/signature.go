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
	signatureVersion = "v1"
	// SignatureSize is the size of a signature's value in bytes, that of Ed25519.
	SignatureSize = 64
)

// Signature is the extension `signature` of an event of a source (docs/protocol.md, Signatures).
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

// SignedBytes returns the bytes that the signature of e signs (docs/protocol.md, Signatures): e
// itself without its signature, the id of the key, and the time of the signature.
func SignedBytes(e cloudevents.Event, keyID string, at time.Time) []byte {
	x := extensions(e.Extensions())
	digest := sha256.Sum256(e.Data())
	fields := []string{signaturePurpose, keyID, strconv.FormatInt(at.UnixMicro(), 10), e.Type(), e.Source()}
	for _, name := range signedExtensions {
		fields = append(fields, x.text(name))
	}
	fields = append(fields, hex.EncodeToString(digest[:]))
	return netstrings(fields...)
}

// IsSignable reports whether e is an event of a source that has a signature where events are
// signed: a spec, a deletion, or a status resync request.
func IsSignable(e cloudevents.Event) bool {
	t, err := ParseEventType(e.Type())
	return err == nil && t.Data == ManifestBundles && (t.Subresource == SubresourceSpec) == (t.Action != ResyncRequest)
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

package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// SealedContentType is the content type of sealed data. Peers that cannot open it know no decoder
	// for it.
	SealedContentType = "application/vnd.workwire.sealed"
	// sealedPrefix begins sealed data, and no JSON. Agents go by it rather than by the content type,
	// because a signature covers the data and not the content type.
	sealedPrefix = "sealed/v1:"
	// sealedPurpose is the first field of the bytes that sealed data is bound to.
	sealedPurpose = "workwire.dev/sealed/v1"
	// contentHashPurpose is the first field of masked content hashes.
	contentHashPurpose = "workwire.dev/content-hash/v1"
	keyIDLength        = 16
)

// ErrSealed is wrapped by the errors of [Decode] for specs and dry runs with sealed data (docs/protocol.md,
// Sealed data): open it and decode the result.
var ErrSealed = errors.New("the data is sealed")

// Sealed is sealed data (docs/protocol.md, Sealed data).
type Sealed struct {
	// KeyID is the id of the key that opens it: 16 lower-case hexadecimal digits.
	KeyID string
	// Box is the encapsulated key and the ciphertext.
	Box []byte
}

// IsSealed reports whether data is sealed.
func IsSealed(data []byte) bool { return bytes.HasPrefix(data, []byte(sealedPrefix)) }

// IsSealable reports whether e is an event with the spec of a work, or with a dry run of one, the only
// data that is sealed.
func IsSealable(e cloudevents.Event) bool { return kindOf(e).sealable && len(e.Data()) > 0 }

// ParseSealed returns the sealed data of e. It does not copy it.
func ParseSealed(e cloudevents.Event) (Sealed, error) {
	data := e.Data()
	if !IsSealed(data) || !IsSealable(e) {
		return Sealed{}, errors.New("the event has no sealed spec")
	}
	id := data[len(sealedPrefix):]
	if len(id) <= keyIDLength || id[keyIDLength] != ':' || !keyIDShape.Match(id[:keyIDLength]) {
		return Sealed{}, fmt.Errorf("the sealed data does not begin with %s and a key id", sealedPrefix)
	}
	return Sealed{KeyID: string(id[:keyIDLength]), Box: id[keyIDLength+1:]}, nil
}

// SetSealed replaces the data of e, and its content hash if it has one.
func SetSealed(e *cloudevents.Event, s Sealed, contentHash string) error {
	data := make([]byte, 0, len(sealedPrefix)+keyIDLength+1+len(s.Box))
	data = append(append(append(append(data, sealedPrefix...), s.KeyID...), ':'), s.Box...)
	if ContentHashOf(*e) != "" {
		e.SetExtension(extContentHash, contentHash)
	}
	return e.SetData(SealedContentType, data)
}

// SetOpened replaces the sealed data of e by what it was made of.
func SetOpened(e *cloudevents.Event, data []byte) error { return e.SetData(contentType, data) }

// SealedContext returns what sealed data is bound to (docs/protocol.md, Sealed data): the id of the
// key, and of e the type, source, cluster, UID and generation.
func SealedContext(e cloudevents.Event, keyID string) []byte {
	x := extensions(e.Extensions())
	return netstrings(sealedPurpose, keyID, e.Type(), e.Source(), x.text(extClusterName), x.text(extResourceID), x.text(extResourceVersion))
}

// MaskContentHash returns the content hash of a sealed spec: that of its data before it was sealed,
// masked with a secret of its source, so that nobody else can try what the data may be
// (docs/protocol.md, Sealed data).
func MaskContentHash(secret []byte, cluster ClusterName, uid types.UID, generation Generation, hash string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(netstrings(contentHashPurpose, string(cluster), string(uid), strconv.FormatInt(int64(generation), 10), hash))
	return hex.EncodeToString(mac.Sum(nil))
}

// WorkOf returns the work that an event with a spec is about.
func WorkOf(e cloudevents.Event) (Work, error) {
	x := extensions(e.Extensions())
	generation, err := x.generation()
	return Work{Cluster: ClusterName(x.text(extClusterName)), UID: types.UID(x.text(extResourceID)), Generation: generation}, err
}

// Work identifies a spec.
type Work struct {
	Cluster    ClusterName
	UID        types.UID
	Generation Generation
}

// netstrings returns the fields, each as its length in decimal, a colon, its bytes, and a comma.
func netstrings(fields ...string) []byte {
	size := 0
	for _, field := range fields {
		size += len(field) + len("65535:,")
	}
	all := make([]byte, 0, size)
	for _, field := range fields {
		all = strconv.AppendInt(all, int64(len(field)), 10)
		all = append(all, ':')
		all = append(all, field...)
		all = append(all, ',')
	}
	return all
}

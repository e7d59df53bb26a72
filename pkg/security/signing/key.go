package signing

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

const privateKeyType = "PRIVATE KEY"

// Key is a private key.
type Key struct {
	public  PublicKey
	private ed25519.PrivateKey
}

// PublicKey is the public half of a [Key].
type PublicKey struct {
	// ID is the first 8 bytes of the SHA-256 of the key in PKIX form, as 16 hexadecimal digits.
	ID string
	// PKIX is the key in PKIX form (DER).
	PKIX []byte

	key ed25519.PublicKey
}

// NewKey returns a new random key.
func NewKey() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	return newKey(private)
}

func newKey(private ed25519.PrivateKey) (*Key, error) {
	public, ok := private.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("the key is not an Ed25519 key")
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	return &Key{public: PublicKey{ID: keyID(der), PKIX: der, key: public}, private: private}, nil
}

func keyID(pkix []byte) string {
	sum := sha256.Sum256(pkix)
	return hex.EncodeToString(sum[:8])
}

// ParseKey parses a private key: one PEM block of type PRIVATE KEY (PKCS #8) with an Ed25519 key.
// Its errors do not contain the key.
func ParseKey(data []byte) (*Key, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != privateKeyType {
		return nil, errors.New("want a PEM block of type " + privateKeyType + ": make a key with workctl keys new")
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, errors.New("want one PEM block, found more")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the PEM block does not hold a PKCS #8 key: make a key with workctl keys new")
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("want an Ed25519 key, found %T: make a key with workctl keys new", parsed)
	}
	return newKey(private)
}

// PEM returns the key as [ParseKey] reads it.
func (k *Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateKeyType, Bytes: der}), nil
}

// Public returns the public key.
func (k *Key) Public() PublicKey { return k.public }

// ParsePublicKey parses an Ed25519 key in PKIX form (DER).
func ParsePublicKey(pkix []byte) (PublicKey, error) {
	parsed, err := x509.ParsePKIXPublicKey(pkix)
	if err != nil {
		return PublicKey{}, errors.New("not a public key in PKIX form")
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return PublicKey{}, fmt.Errorf("want an Ed25519 key, found %T", parsed)
	}
	return PublicKey{ID: keyID(pkix), PKIX: pkix, key: key}, nil
}

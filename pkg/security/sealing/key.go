package sealing

import (
	"crypto/hpke"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	privateType = "WORKWIRE UNSEALING KEY"
	publicType  = "WORKWIRE SEALING KEY"
)

// The suite of docs/protocol.md, Sealed data, v1.
var (
	kem  = hpke.MLKEM768X25519()
	kdf  = hpke.HKDFSHA256()
	aead = hpke.AES256GCM()
)

// Key opens what was sealed to its public half.
type Key struct {
	public  PublicKey
	private hpke.PrivateKey
}

// PublicKey is the public half of a [Key]: it seals.
type PublicKey struct {
	// ID is the first 8 bytes of the SHA-256 of the key, as 16 hexadecimal digits.
	ID string

	key hpke.PublicKey
}

// NewKey returns a new random key.
func NewKey() (*Key, error) {
	private, err := kem.GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("make a sealing key: %w", err)
	}
	return newKey(private), nil
}

func newKey(private hpke.PrivateKey) *Key {
	return &Key{public: newPublicKey(private.PublicKey()), private: private}
}

func newPublicKey(key hpke.PublicKey) PublicKey {
	sum := sha256.Sum256(key.Bytes())
	return PublicKey{ID: hex.EncodeToString(sum[:8]), key: key}
}

// ParseKey parses a private key as [Key.PEM] returns it. Its errors do not contain the key.
func ParseKey(data []byte) (*Key, error) {
	secret, err := onlyBlock(data, privateType)
	if err != nil {
		return nil, err
	}
	private, err := kem.NewPrivateKey(secret)
	if err != nil {
		return nil, errors.New("the PEM block holds no key: make one with workctl keys new --type=seal")
	}
	return newKey(private), nil
}

// PEM returns the private key as one PEM block.
func (k *Key) PEM() ([]byte, error) {
	secret, err := k.private.Bytes()
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateType, Bytes: secret}), nil
}

// Public returns the public key.
func (k *Key) Public() PublicKey { return k.public }

// ParsePublicKey parses a public key as [PublicKey.PEM] returns it.
func ParsePublicKey(data []byte) (PublicKey, error) {
	public, err := onlyBlock(data, publicType)
	if err != nil {
		return PublicKey{}, err
	}
	key, err := kem.NewPublicKey(public)
	if err != nil {
		return PublicKey{}, errors.New("the PEM block holds no public key: workctl keys public prints one")
	}
	return newPublicKey(key), nil
}

// PEM returns the public key as one PEM block.
func (p PublicKey) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: publicType, Bytes: p.key.Bytes()})
}

// onlyBlock returns the content of the only PEM block in data, which must be of a type.
func onlyBlock(data []byte, want string) ([]byte, error) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, fmt.Errorf("want a PEM block of type %s", want)
	case block.Type == privateType && want == publicType:
		return nil, errors.New("this is the private key, which only the cluster may have: workctl keys public prints the public one")
	case block.Type != want:
		return nil, fmt.Errorf("want a PEM block of type %s, found %.40q", want, block.Type)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, errors.New("want one PEM block, found more")
	}
	return block.Bytes, nil
}

package signing

import (
	"cmp"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/security/keyfile"
	"github.com/workwire/workwire/pkg/wire"
)

// SignerConfig configures [NewSigner].
type SignerConfig struct {
	// KeyFile is a file with the private key, see [ParseKey]; required.
	KeyFile string
	// Now is the clock of signatures; default time.Now.
	Now func() time.Time
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// Signer signs the events of one source, or those of the agent of one cluster. It is safe for concurrent use.
type Signer struct {
	key *keyfile.File[*Key]
	now func() time.Time

	mu   sync.Mutex
	last int64 // time of the last signature in microseconds
}

// NewSigner reads the key.
func NewSigner(c SignerConfig) (*Signer, error) {
	key, err := keyfile.Open(c.KeyFile, "signing key", ParseKey, cmp.Or(c.Logger, slog.Default()))
	if err != nil {
		return nil, err
	}
	s := &Signer{key: key, now: c.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return s, nil
}

// Sign sets the signature of e, an event of a source, which must not change any more. The time of each signature is later
// than that of the one before, even if the clock goes back. It reads no file but to see, once a
// second, whether the key has changed.
func (s *Signer) Sign(e *cloudevents.Event) error {
	if !wire.IsSignable(*e) {
		return fmt.Errorf("sign event of type %q: not an event of a source", e.Type())
	}
	s.sign(e)
	return nil
}

// SignStatus sets the signature of e, the status of a work or another event of an agent that has one
// ([wire.IsSignableByAgent]), as [Signer.Sign] does.
func (s *Signer) SignStatus(e *cloudevents.Event) error {
	if !wire.IsSignableByAgent(*e) {
		return fmt.Errorf("sign event of type %q: not an event that agents sign", e.Type())
	}
	s.sign(e)
	return nil
}

func (s *Signer) sign(e *cloudevents.Event) {
	now := s.now()
	key := s.key.Get(now)
	s.mu.Lock()
	s.last = max(now.UnixMicro(), s.last+1)
	at := time.UnixMicro(s.last)
	s.mu.Unlock()
	signature := wire.Signature{KeyID: key.public.ID, Time: at}
	copy(signature.Value[:], ed25519.Sign(key.private, wire.SignedBytes(*e, key.public.ID, at)))
	wire.SetSignature(e, signature)
}

// Secret returns 32 bytes for a purpose that only who has the key can compute. They are the same
// after a restart, and others once the key is replaced.
func (s *Signer) Secret(purpose string) []byte {
	mac := hmac.New(sha256.New, s.key.Get(s.now()).private.Seed())
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

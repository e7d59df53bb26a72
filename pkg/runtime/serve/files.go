package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/workwire/workwire/pkg/runtime/filestamp"
)

// token is the bearer token in a file. The file is read for each request, so that a new token is
// accepted at once; requests are rare.
type token struct{ file string }

func (t *token) read() (string, error) {
	data, err := os.ReadFile(t.file)
	if err != nil {
		return "", fmt.Errorf("read the listener's token (--listen-token-file): %w", err)
	}
	value := strings.TrimSpace(string(data))
	if value == "" {
		return "", fmt.Errorf("the listener's token file %s (--listen-token-file) is empty", t.file)
	}
	return value, nil
}

// presentedBy reports whether r carries the token. It compares digests, so that the time does not
// reveal the token or its length.
func (t *token) presentedBy(r *http.Request) (bool, error) {
	scheme, presented, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false, nil
	}
	value, err := t.read()
	if err != nil {
		return false, err
	}
	want, got := sha256.Sum256([]byte(value)), sha256.Sum256([]byte(strings.TrimSpace(presented)))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1, nil
}

// certificate is a certificate and its key in two files, which are reloaded when they change.
type certificate struct {
	certFile, keyFile string

	mu     sync.Mutex // guards the fields below
	loaded *tls.Certificate
	stamps [2]filestamp.Stamp // of the files that were loaded
}

// get implements [tls.Config].GetCertificate. If the files cannot be loaded, for instance while
// they are being replaced, the previous certificate stays in use.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	certStamp, certErr := filestamp.Of(c.certFile)
	keyStamp, keyErr := filestamp.Of(c.keyFile)
	stamps, err := [2]filestamp.Stamp{certStamp, keyStamp}, errors.Join(certErr, keyErr)
	if err == nil && (c.loaded == nil || stamps != c.stamps) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile); err == nil {
			c.loaded, c.stamps = &pair, stamps
		}
	}
	if c.loaded == nil {
		return nil, fmt.Errorf("load the listener's certificate (--listen-cert-file, --listen-key-file): %w", err)
	}
	return c.loaded, nil
}

package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/workwire/workwire/pkg/runtime/filestamp"
)

// secured returns a listener that serves TLS with the certificate and the key of the files, which are
// reloaded when they change. It returns an error if they cannot be used.
func secured(listener net.Listener, certFile, keyFile string) (net.Listener, error) {
	files := &certificate{certFile: certFile, keyFile: keyFile}
	if _, err := files.get(nil); err != nil {
		return nil, err
	}
	return tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: files.get, NextProtos: []string{"http/1.1"},
	}), nil
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

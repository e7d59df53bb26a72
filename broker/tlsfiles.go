package broker

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"os"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/runtime/filestamp"
)

// tlsFiles loads the TLS configuration of a listener, and reloads it when its files change. It is
// safe for concurrent use.
type tlsFiles struct {
	files       ListenerTLS
	revocations *revocations // that sources have sent
	logger      *slog.Logger

	mu        sync.Mutex
	stamps    tlsStamps
	state     *tlsState // loaded last
	lastError string    // of the last reload; a repeated error is logged once
}

// tlsStamps are the stamps of certificate, key, client CA and revocation lists, and the version of [revocations].
type tlsStamps struct {
	files       [4]filestamp.Stamp
	revocations uint64
}

// newTLSFiles loads the files, so that a broker does not start with unusable ones.
func newTLSFiles(files ListenerTLS, sent *revocations, logger *slog.Logger) (*tlsFiles, error) {
	t := &tlsFiles{files: files, revocations: sent, logger: logger}
	lists, version := sent.current()
	stamps, err := t.stat(version)
	if err != nil {
		return nil, err
	}
	if t.state, err = loadTLS(files, lists); err != nil {
		return nil, err
	}
	t.stamps = stamps
	return t, nil
}

// serverConfig returns a configuration that uses the current state for each connection.
func (t *tlsFiles) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current().config, nil },
	}
}

// current returns the current state. It reloads changed files first; if they cannot be used, the
// previous ones stay in use, with the revocations that sources have sent since.
func (t *tlsFiles) current() *tlsState {
	t.mu.Lock()
	defer t.mu.Unlock()
	lists, version := t.revocations.current()
	stamps, err := t.stat(version)
	if err == nil && stamps == t.stamps {
		t.lastError = ""
		return t.state
	}
	if err == nil {
		var state *tlsState
		if state, err = loadTLS(t.files, lists); err == nil {
			t.logger.Info("TLS files reloaded", "certFile", t.files.CertFile)
			t.stamps, t.state, t.lastError = stamps, state, ""
			return state
		}
	}
	if t.lastError != err.Error() {
		t.logger.Error("reloading TLS files failed, previous files stay in use", "error", err)
		t.lastError = err.Error()
	}
	if version != t.stamps.revocations {
		t.state, t.stamps.revocations = t.state.with(lists), version
	}
	return t.state
}

// firstToExpire returns which of the listeners' certificates expires first; nil if there is none.
func firstToExpire(listeners []*tlsFiles) (first *x509.Certificate) {
	for _, files := range listeners {
		cert := files.current().config.Certificates[0].Leaf
		if first == nil || cert.NotAfter.Before(first.NotAfter) {
			first = cert
		}
	}
	return first
}

func (t *tlsFiles) stat(version uint64) (stamps tlsStamps, err error) {
	stamps.revocations = version
	for i, path := range []string{t.files.CertFile, t.files.KeyFile, t.files.ClientCAFile, t.files.CRLFile} {
		if path == "" {
			continue
		}
		if stamps.files[i], err = filestamp.Of(path); err != nil {
			return stamps, fmt.Errorf("read a TLS file: %w", err)
		}
	}
	return stamps, nil
}

// tlsState is the content of the files. It is immutable.
type tlsState struct {
	config  *tls.Config
	filed   map[string]struct{} // revoked by the files, by revocationKey
	revoked map[string]struct{} // the same, and those that sources have sent
	ended   map[string]struct{} // revoked ones by certificateKey

	clientAuthorities []*x509.Certificate
	authorities       map[string]struct{} // the same by authorityKey
}

// loadTLS reads the files, and takes the lists in sent.
func loadTLS(files ListenerTLS, sent []sentList) (*tlsState, error) {
	cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate %s with key %s: %w", files.CertFile, files.KeyFile, err)
	}
	s := &tlsState{config: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}}
	if files.ClientCAFile == "" {
		return s, nil
	}
	authorities, err := readCertificates(files.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("CA of client certificates: %w", err)
	}
	s.config.ClientCAs, s.authorities, s.clientAuthorities = x509.NewCertPool(), map[string]struct{}{}, authorities
	for _, a := range authorities {
		s.config.ClientCAs.AddCert(a)
		s.authorities[authorityKey(a)] = struct{}{}
	}
	s.config.ClientAuth = tls.VerifyClientCertIfGiven
	if files.RequireClientCert {
		s.config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	// A client presents its certificate for every connection, since it may be revoked by then.
	s.config.SessionTicketsDisabled = true
	if files.CRLFile != "" {
		if s.filed, err = readRevocations(files.CRLFile, authorities); err != nil {
			return nil, fmt.Errorf("revocation lists: %w", err)
		}
	}
	return s.with(sent), nil
}

// with returns the state of the same files in which certificates are also revoked by the lists of its authorities in sent.
func (s *tlsState) with(sent []sentList) *tlsState {
	if s.config.ClientCAs == nil {
		return s
	}
	next := *s
	next.config, next.revoked, next.ended = s.config.Clone(), map[string]struct{}{}, map[string]struct{}{}
	maps.Copy(next.revoked, s.filed)
	for _, serial := range serials(sent, s.clientAuthorities) {
		// Also those of other authorities: while one is replaced, the hub has the key of the next one only. Each of them could issue a
		// certificate with which to take over the same sessions.
		for _, a := range s.clientAuthorities {
			next.revoked[revocationKey(a.RawSubject, serial)] = struct{}{}
		}
	}
	for key := range next.revoked {
		next.ended[certificateKey(key)] = struct{}{}
	}
	next.config.VerifyConnection = func(c tls.ConnectionState) error {
		if len(c.VerifiedChains) == 0 {
			return nil // the client has no certificate
		}
		_, err := next.checkRevocation(c.VerifiedChains)
		return err
	}
	return &next
}

// verify verifies a client certificate, which is followed by its intermediate certificates, at the
// time now. It returns the time at which the certificate expires.
func (s *tlsState) verify(certs []*x509.Certificate, now time.Time) (expires time.Time, err error) {
	if s.config.ClientCAs == nil {
		return time.Time{}, errors.New("client certificates are no longer accepted")
	}
	options := x509.VerifyOptions{
		Roots: s.config.ClientCAs, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range certs[1:] {
		options.Intermediates.AddCert(c)
	}
	chains, err := certs[0].Verify(options)
	if err != nil {
		return time.Time{}, err
	}
	return s.checkRevocation(chains)
}

// checkRevocation returns the expiry of the longest-lasting chain without a revoked certificate, or
// an error if there is no such chain.
func (s *tlsState) checkRevocation(chains [][]*x509.Certificate) (expires time.Time, err error) {
	for _, chain := range chains {
		if cert := s.findRevoked(chain); cert != nil {
			err = &revokedError{cert}
			continue
		}
		end := chain[0].NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(expires) {
			expires = end
		}
	}
	if expires.IsZero() {
		return expires, err
	}
	return expires, nil
}

func (s *tlsState) findRevoked(chain []*x509.Certificate) *x509.Certificate {
	for _, c := range chain {
		if _, revoked := s.revoked[revocationKey(c.RawIssuer, c.SerialNumber)]; revoked {
			return c
		}
	}
	return nil
}

// revokedError means that a client presented a revoked certificate.
type revokedError struct{ cert *x509.Certificate }

// Error returns the subject and the serial number of the certificate.
func (e *revokedError) Error() string {
	return fmt.Sprintf("client certificate %q, serial number %x, is revoked", e.cert.Subject, e.cert.SerialNumber)
}

// revocationKey identifies a certificate by its issuer and its serial number.
func revocationKey(issuer []byte, serial *big.Int) string {
	return string(issuer) + "/" + serial.String()
}

func readCertificates(path string) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	return certs, readPEM(path, "CERTIFICATE", func(block *pem.Block) error {
		cert, err := x509.ParseCertificate(block.Bytes)
		certs = append(certs, cert)
		return err
	})
}

// readRevocations reads the revocation lists of authorities. It ignores lists of other authorities:
// the list of a replaced authority may be removed after the authority itself.
func readRevocations(path string, authorities []*x509.Certificate) (map[string]struct{}, error) {
	revoked := map[string]struct{}{}
	return revoked, readPEM(path, "X509 CRL", func(block *pem.Block) error {
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return err
		}
		for _, a := range authorities {
			if !isIssuer(a, list) {
				continue
			}
			if err := list.CheckSignatureFrom(a); err != nil {
				return fmt.Errorf("list of %s: %w", a.Subject, err)
			}
			for _, entry := range list.RevokedCertificateEntries {
				revoked[revocationKey(list.RawIssuer, entry.SerialNumber)] = struct{}{}
			}
		}
		return nil
	})
}

// isIssuer reports whether list names a as its issuer.
func isIssuer(a *x509.Certificate, list *x509.RevocationList) bool {
	return bytes.Equal(a.RawSubject, list.RawIssuer) &&
		(len(a.SubjectKeyId) == 0 || len(list.AuthorityKeyId) == 0 || bytes.Equal(a.SubjectKeyId, list.AuthorityKeyId))
}

// readPEM calls f for each PEM block of a type. A file without such a block is an error.
func readPEM(path, blockType string, f func(*pem.Block) error) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	found := false
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != blockType {
			continue
		}
		found = true
		if err := f(block); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if !found {
		return fmt.Errorf("%s has no PEM block of type %s", path, blockType)
	}
	return nil
}

package broker

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"sync"
	"time"
)

// tlsFiles serves a listener's TLS configuration from files that may change. It is safe
// for concurrent use.
type tlsFiles struct {
	files ListenerTLS
	log   *slog.Logger

	mu     sync.Mutex
	stamps tlsStamps
	state  *tlsState // the last one that could be loaded
	bad    string    // what was said about files that could not be, so that it is said once
}

type tlsStamps [4]fileStamp

// newTLSFiles loads the files once, so that a broker does not start with bad ones.
func newTLSFiles(files ListenerTLS, log *slog.Logger) (*tlsFiles, error) {
	t := &tlsFiles{files: files, log: log}
	stamps, err := t.stat()
	if err != nil {
		return nil, err
	}
	if t.state, err = loadTLS(files); err != nil {
		return nil, err
	}
	t.stamps = stamps
	return t, nil
}

// serverConfig returns the configuration to listen with.
func (t *tlsFiles) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current().config, nil },
	}
}

// current returns what the files say now, loading changed ones first.
func (t *tlsFiles) current() *tlsState {
	t.mu.Lock()
	defer t.mu.Unlock()
	stamps, err := t.stat()
	if err == nil && stamps == t.stamps {
		t.bad = ""
		return t.state
	}
	if err == nil {
		var state *tlsState
		if state, err = loadTLS(t.files); err == nil {
			t.log.Info("TLS files changed and were read again", "certFile", t.files.CertFile)
			t.stamps, t.state, t.bad = stamps, state, ""
			return state
		}
	}
	if t.bad != err.Error() {
		t.log.Error("TLS files changed but cannot be used; the former ones stay in use", "error", err)
		t.bad = err.Error()
	}
	return t.state
}

func (t *tlsFiles) stat() (stamps tlsStamps, err error) {
	for i, path := range []string{t.files.CertFile, t.files.KeyFile, t.files.ClientCAFile, t.files.CRLFile} {
		if path == "" {
			continue
		}
		if stamps[i], err = stampOf(path); err != nil {
			return stamps, fmt.Errorf("read a TLS file: %w", err)
		}
	}
	return stamps, nil
}

// tlsState is what one content of the files says. It does not change.
type tlsState struct {
	config  *tls.Config
	revoked map[string]struct{} // by revocation
}

func loadTLS(files ListenerTLS) (*tlsState, error) {
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
	s.config.ClientCAs = x509.NewCertPool()
	for _, a := range authorities {
		s.config.ClientCAs.AddCert(a)
	}
	s.config.ClientAuth = tls.VerifyClientCertIfGiven
	if files.RequireClientCert {
		s.config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	// A client shows its certificate every time: what it was once let in with may be
	// revoked since.
	s.config.SessionTicketsDisabled = true
	if files.CRLFile == "" {
		return s, nil
	}
	if s.revoked, err = readRevocations(files.CRLFile, authorities); err != nil {
		return nil, fmt.Errorf("revocation lists: %w", err)
	}
	s.config.VerifyConnection = func(c tls.ConnectionState) error {
		if len(c.VerifiedChains) == 0 {
			return nil // no certificate was given
		}
		_, err := s.until(c.VerifiedChains)
		return err
	}
	return s, nil
}

// admits checks at the time now a client certificate that was good once, with those that
// came along with it, and returns until when it is.
func (s *tlsState) admits(certs []*x509.Certificate, now time.Time) (until time.Time, err error) {
	if s.config.ClientCAs == nil {
		return time.Time{}, fmt.Errorf("client certificates are not accepted any more")
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
	return s.until(chains)
}

// until returns how long the best chain lasts of which nothing is revoked.
func (s *tlsState) until(chains [][]*x509.Certificate) (until time.Time, err error) {
	for _, chain := range chains {
		if cert := s.revokedOf(chain); cert != nil {
			err = &revokedError{cert}
			continue
		}
		end := chain[0].NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(until) {
			until = end
		}
	}
	if until.IsZero() {
		return until, err
	}
	return until, nil
}

func (s *tlsState) revokedOf(chain []*x509.Certificate) *x509.Certificate {
	for _, c := range chain {
		if _, is := s.revoked[revocation(c.RawIssuer, c.SerialNumber)]; is {
			return c
		}
	}
	return nil
}

// revokedError says that a client showed a certificate that is revoked.
type revokedError struct{ cert *x509.Certificate }

// Error names the certificate.
func (e *revokedError) Error() string {
	return fmt.Sprintf("client certificate %q, serial number %x, is revoked", e.cert.Subject, e.cert.SerialNumber)
}

// revocation names a certificate by who issued it and its serial number.
func revocation(issuer []byte, serial *big.Int) string { return string(issuer) + "/" + serial.String() }

func readCertificates(path string) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	return certs, readPEM(path, "CERTIFICATE", func(der []byte) error {
		cert, err := x509.ParseCertificate(der)
		certs = append(certs, cert)
		return err
	})
}

// readRevocations reads revocation lists of authorities. Lists of others are left aside:
// while an authority is being replaced, its list may be there for longer than itself.
func readRevocations(path string, authorities []*x509.Certificate) (map[string]struct{}, error) {
	revoked := map[string]struct{}{}
	return revoked, readPEM(path, "X509 CRL", func(der []byte) error {
		list, err := x509.ParseRevocationList(der)
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
				revoked[revocation(list.RawIssuer, entry.SerialNumber)] = struct{}{}
			}
		}
		return nil
	})
}

// isIssuer reports whether list says that it is of a.
func isIssuer(a *x509.Certificate, list *x509.RevocationList) bool {
	return bytes.Equal(a.RawSubject, list.RawIssuer) &&
		(len(a.SubjectKeyId) == 0 || len(list.AuthorityKeyId) == 0 || bytes.Equal(a.SubjectKeyId, list.AuthorityKeyId))
}

// readPEM gives each block of the kind, and complains when there is none.
func readPEM(path, kind string, each func(der []byte) error) error {
	rest, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	found := false
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != kind {
			continue
		}
		found = true
		if err := each(block.Bytes); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if !found {
		return fmt.Errorf("%s holds no PEM block %s", path, kind)
	}
	return nil
}

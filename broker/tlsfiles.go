package broker

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// tlsFiles serves a listener's TLS configuration from files that may change. It is safe
// for concurrent use.
type tlsFiles struct {
	files ListenerTLS
	log   *slog.Logger

	mu     sync.Mutex
	stamps [3]fileStamp
	config *tls.Config // the last one that could be loaded
}

// newTLSFiles loads the files once, so that a broker does not start with bad ones.
func newTLSFiles(files ListenerTLS, log *slog.Logger) (*tlsFiles, error) {
	t := &tlsFiles{files: files, log: log}
	stamps, err := t.stat()
	if err != nil {
		return nil, err
	}
	if t.config, err = loadTLS(files); err != nil {
		return nil, err
	}
	t.stamps = stamps
	return t, nil
}

// serverConfig returns the configuration to listen with.
func (t *tlsFiles) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current(), nil },
	}
}

// current returns the configuration for one connection, loading changed files first.
func (t *tlsFiles) current() *tls.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	stamps, err := t.stat()
	if err == nil && stamps == t.stamps {
		return t.config
	}
	if err == nil {
		var config *tls.Config
		if config, err = loadTLS(t.files); err == nil {
			t.log.Info("TLS files changed and were read again", "certFile", t.files.CertFile)
			t.stamps, t.config = stamps, config
			return config
		}
	}
	t.log.Error("TLS files changed but cannot be used; the former ones stay in use", "error", err)
	return t.config
}

func (t *tlsFiles) stat() (stamps [3]fileStamp, err error) {
	for i, path := range []string{t.files.CertFile, t.files.KeyFile, t.files.ClientCAFile} {
		if path == "" {
			continue
		}
		if stamps[i], err = stampOf(path); err != nil {
			return stamps, fmt.Errorf("read a TLS file: %w", err)
		}
	}
	return stamps, nil
}

func loadTLS(files ListenerTLS) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate %s with key %s: %w", files.CertFile, files.KeyFile, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if files.ClientCAFile == "" {
		return config, nil
	}
	pem, err := os.ReadFile(files.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA of client certificates: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA of client certificates: %s holds no PEM certificate", files.ClientCAFile)
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	if files.RequireClientCert {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

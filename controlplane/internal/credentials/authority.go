// Package credentials creates the certificates, keys and kubeconfig files of one control plane.
//
// An Authority is the certificate authority of the control plane. It is created in a directory on
// first use and kept there, so that its certificates stay valid across restarts:
//
//	ca, err := credentials.OpenAuthority(dir)
//	cert, err := ca.IssueClient("jane", []string{"developers"}, credentials.Lifetime)
//	file, err := credentials.Kubeconfig(credentials.Access{Context: "hub", Server: url, CA: ca.CertPEM(), Client: cert})
//
// All keys are ECDSA P-256. Files that hold a private key have mode 0600.
package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// Lifetime is the default validity of certificates. A control plane issues its own certificates
	// again at every start.
	Lifetime = 365 * 24 * time.Hour

	authorityLifetime = 10 * 365 * 24 * time.Hour
	// clockSkew is how long before now certificates become valid, for clients with a slow clock.
	clockSkew = 5 * time.Minute

	caCertFile = "ca.crt"
	caKeyFile  = "ca.key"
)

// Pair is a certificate and its private key, both PEM encoded.
type Pair struct {
	Cert, Key []byte
}

// Authority issues certificates. It is safe for concurrent use.
type Authority struct {
	cert    *x509.Certificate
	certPEM []byte
	key     *ecdsa.PrivateKey
}

// OpenAuthority reads the authority in dir, or creates one (ca.crt, ca.key) if dir has none. One
// missing file is an error: a new authority would invalidate all issued certificates.
func OpenAuthority(dir string) (*Authority, error) {
	a, err := ReadAuthority(dir)
	if !errors.Is(err, os.ErrNotExist) {
		return a, err
	}
	for _, name := range []string{caCertFile, caKeyFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return nil, fmt.Errorf("reading the certificate authority in %s: only %s exists; restore the other file, or remove it to create a new authority", dir, name)
		}
	}
	a, keyPEM, err := newAuthority(time.Now())
	if err != nil {
		return nil, fmt.Errorf("creating a certificate authority: %w", err)
	}
	if err := WriteFile(filepath.Join(dir, caKeyFile), keyPEM, 0o600); err != nil {
		return nil, err
	}
	if err := WriteFile(filepath.Join(dir, caCertFile), a.certPEM, 0o644); err != nil {
		return nil, err
	}
	return a, nil
}

// ReadAuthority reads the authority in dir. The error wraps os.ErrNotExist if a file is missing.
func ReadAuthority(dir string) (*Authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, caCertFile))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority: %w", err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority's key: %w", err)
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, fmt.Errorf("reading the certificate authority: %s has no PEM block", filepath.Join(dir, caCertFile))
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority in %s: %w", filepath.Join(dir, caCertFile), err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority's key in %s: %w", filepath.Join(dir, caKeyFile), err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("reading the certificate authority in %s: %s and %s do not match", dir, caCertFile, caKeyFile)
	}
	return &Authority{cert: cert, certPEM: certPEM, key: key}, nil
}

func newAuthority(now time.Time) (*Authority, []byte, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "workwire-control-plane"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return &Authority{cert: cert, certPEM: certBlock(der), key: key}, keyPEM, nil
}

// CertPEM returns the authority's own certificate, PEM encoded.
func (a *Authority) CertPEM() []byte { return a.certPEM }

// IssueClient issues a client certificate for a Kubernetes user and its groups. It is valid for
// lifetime, but not longer than the authority.
func (a *Authority) IssueClient(user string, groups []string, lifetime time.Duration) (Pair, error) {
	if user == "" {
		return Pair{}, errors.New("issuing a client certificate: the user name is empty")
	}
	if lifetime <= 0 {
		return Pair{}, fmt.Errorf("issuing a client certificate for %q: lifetime %s must be positive", user, lifetime)
	}
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, lifetime)
}

// IssueServer issues a server certificate for DNS names and IP addresses, valid for Lifetime.
func (a *Authority) IssueServer(name string, hosts []string) (Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template, Lifetime)
}

func (a *Authority) issue(template *x509.Certificate, lifetime time.Duration) (Pair, error) {
	name := template.Subject.CommonName
	key, keyPEM, err := newKey()
	if err != nil {
		return Pair{}, fmt.Errorf("issuing a certificate for %q: %w", name, err)
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return Pair{}, fmt.Errorf("issuing a certificate for %q: %w", name, err)
	}
	now := time.Now()
	template.NotBefore = now.Add(-clockSkew)
	template.NotAfter = now.Add(lifetime)
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issuing a certificate for %q: %w", name, err)
	}
	return Pair{Cert: certBlock(der), Key: keyPEM}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func parseKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

func certBlock(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

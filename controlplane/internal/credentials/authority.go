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
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// Lifetime is the default validity of certificates. A control plane issues its own certificates
	// again at every start.
	Lifetime = 365 * 24 * time.Hour

	// clockSkew is how long before now certificates become valid, for clients with a slow clock.
	clockSkew = 5 * time.Minute

	authorityName = "ca"
	caCertFile    = authorityName + ".crt"
	caKeyFile     = authorityName + ".key"
)

// Pair is a certificate and its private key, both PEM encoded.
type Pair struct {
	Cert, Key []byte
}

// Authority issues certificates. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  crypto.PrivateKey
}

// OpenAuthority reads the authority in dir, or creates one (ca.crt, ca.key) if dir has none. A missing key is an error: a new
// authority would invalidate all issued certificates. A missing certificate is made again, with which they stay valid: who was
// killed while creating the authority has left a key alone.
func OpenAuthority(dir string) (*Authority, error) {
	if _, err := os.Stat(filepath.Join(dir, caCertFile)); !errors.Is(err, os.ErrNotExist) {
		return ReadAuthority(dir)
	}
	key, err := authorityKey(filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, fmt.Errorf("creating a certificate authority: %w", err)
	}
	if key == nil {
		return ReadAuthority(dir) // says what is wrong
	}
	a, err := newAuthority(key, time.Now())
	if err == nil {
		err = WriteFile(filepath.Join(dir, caCertFile), a.CertPEM(), 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("creating a certificate authority: %w", err)
	}
	return a, nil
}

// ReadAuthority reads the authority in dir.
func ReadAuthority(dir string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, caCertFile), filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority in %s: %s and %s are missing, damaged, or do not match: restore them, or remove both to create a new authority: %w",
			dir, caCertFile, caKeyFile, err)
	}
	return &Authority{cert: pair.Leaf, key: pair.PrivateKey}, nil
}

// authorityKey reads the key in file, or creates one if there is no file. It returns nil for a file that is no key.
func authorityKey(file string) (crypto.Signer, error) {
	kept, err := keyutil.PrivateKeyFromFile(file)
	if !errors.Is(err, os.ErrNotExist) {
		signer, _ := kept.(crypto.Signer)
		return signer, nil
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	return key, WriteFile(file, keyPEM, 0o600)
}

func newAuthority(key crypto.Signer, now time.Time) (*Authority, error) {
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "workwire-control-plane", NotBefore: now.Add(-clockSkew)}, key)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: ca, key: key}, nil
}

// CertPEM returns the authority's own certificate, PEM encoded.
func (a *Authority) CertPEM() []byte { return certBlock(a.cert.Raw) }

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

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	return key, keyPEM, err
}

func certBlock(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

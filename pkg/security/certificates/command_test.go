package certificates

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// authorityFiles writes the certificate and the key of an authority.
func authorityFiles(t *testing.T, key any, public any, isCA bool) (certFile, keyFile string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kms"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	kit.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	kit.NoError(t, err)
	certFile, keyFile = filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "ca.key")
	kit.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	kit.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return certFile, keyFile
}

// script writes a program.
func script(t *testing.T, text string, args ...any) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sign")
	kit.NoError(t, os.WriteFile(file, fmt.Appendf([]byte("#!/bin/sh\n"), text+"\n", args...), 0o700))
	return file
}

// opensslSigns is what docs/join.md shows.
const opensslSigns = `exec openssl pkeyutl -sign -inkey %s -pkeyopt "digest:$(echo "$1" | tr -d -)"`

// TestCommandAuthority: a program with the key issues certificates and revocation lists that its authority verifies.
func TestCommandAuthority(t *testing.T) {
	kit.OpenSSL.Require(t)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	kit.NoError(t, err)
	rsa2048, err := rsa.GenerateKey(rand.Reader, 2048)
	kit.NoError(t, err)
	agent, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(t, err)
	for name, c := range map[string]struct{ key, public any }{
		"P-256": {p256, p256.Public()}, "P-384": {p384, p384.Public()}, "RSA": {rsa2048, rsa2048.Public()},
	} {
		t.Run(name, func(t *testing.T) {
			certFile, keyFile := authorityFiles(t, c.key, c.public, true)
			authority, err := CommandAuthority(certFile, script(t, opensslSigns, keyFile))
			kit.NoError(t, err)
			chain, err := IssueAgent(authority, "berlin", &agent.PublicKey, time.Minute, time.Now())
			kit.NoError(t, err)
			block, _ := pem.Decode(chain)
			issued, err := x509.ParseCertificate(block.Bytes)
			kit.NoError(t, err)
			kit.NoError(t, issued.CheckSignatureFrom(authority.Leaf))
			der, err := RevocationList(authority, []*big.Int{big.NewInt(7)}, big.NewInt(1), time.Now())
			kit.NoError(t, err)
			list, err := x509.ParseRevocationList(der)
			kit.NoError(t, err)
			kit.NoError(t, list.CheckSignatureFrom(authority.Leaf))
		})
	}
}

// TestCommandFails: what a program does not sign is not issued, and the error says what it did.
func TestCommandFails(t *testing.T) {
	kit.OpenSSL.Require(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(t, err)
	certFile, _ := authorityFiles(t, key, key.Public(), true)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(t, err)
	_, otherKey := authorityFiles(t, other, other.Public(), true)
	for name, c := range map[string]struct{ program, want string }{
		"refused":     {script(t, "echo 'no permission to use the key' >&2; exit 3"), "for the key of the authority kms: exit status 3: no permission to use the key"},
		"nothing":     {script(t, "cat >/dev/null"), "it printed no signature"},
		"rubbish":     {script(t, "echo rubbish"), "signature"},
		"hangs":       {script(t, "exec sleep 60"), "no signature within 100ms"},
		"another key": {script(t, opensslSigns, otherKey), "signature"},
	} {
		authority, err := CommandAuthority(certFile, c.program)
		kit.NoError(t, err)
		if key := authority.PrivateKey.(commandKey); name == "hangs" {
			key.timeout = 100 * time.Millisecond
			authority.PrivateKey = key
		}
		if _, err := IssueAgent(authority, "berlin", &key.PublicKey, time.Minute, time.Now()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: a certificate: %v, want %q", name, err, c.want)
		}
		if _, err := RevocationList(authority, nil, big.NewInt(1), time.Now()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: a revocation list: %v, want %q", name, err, c.want)
		}
	}
}

// TestCommandAuthorityRefuses: what cannot be an authority is refused at the start.
func TestCommandAuthorityRefuses(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(t, err)
	certFile, keyFile := authorityFiles(t, key, key.Public(), true)
	leaf, _ := authorityFiles(t, key, key.Public(), false)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	kit.NoError(t, err)
	edwards, _ := authorityFiles(t, private, public, true)
	program := script(t, "exit 0")
	for name, c := range map[string]struct{ certFile, program, want string }{
		"no file":       {certFile + "x", program, "no such file"},
		"a key":         {keyFile, program, "does not contain any valid"},
		"no authority":  {leaf, program, "is not that of an authority"},
		"Ed25519":       {edwards, program, "Ed25519: a program signs with ECDSA or RSA only"},
		"no program":    {certFile, program + "x", "no such file"},
		"no executable": {certFile, certFile, "permission denied"},
	} {
		if _, err := CommandAuthority(c.certFile, c.program); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

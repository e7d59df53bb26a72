package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func TestAuthorityIsKept(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenAuthority(dir)
	noError(t, err)
	second, err := OpenAuthority(dir)
	noError(t, err)
	pair, err := second.IssueClient("jane", nil, time.Hour)
	noError(t, err)
	verify(t, first, pair, x509.ExtKeyUsageClientAuth)
	info, err := os.Stat(filepath.Join(dir, caKeyFile))
	noError(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the authority's key has mode %o", info.Mode().Perm())
	}
}

func TestHalfAnAuthorityIsAnError(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenAuthority(dir); err != nil {
		t.Fatal(err)
	}
	noError(t, os.Remove(filepath.Join(dir, caKeyFile)))
	if _, err := OpenAuthority(dir); err == nil || !strings.Contains(err.Error(), "restore them") {
		t.Errorf("without %s: error %v", caKeyFile, err)
	}
}

// TestAuthorityOfItsKey: a process that was killed when it had written the key of an authority leaves the authority usable, and the
// certificates that it has issued are good, if there are any.
func TestAuthorityOfItsKey(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenAuthority(dir)
	noError(t, err)
	issued, err := first.IssueClient("jane", nil, time.Hour)
	noError(t, err)
	noError(t, os.Remove(filepath.Join(dir, caCertFile)))
	second, err := OpenAuthority(dir)
	noError(t, err)
	verify(t, second, issued, x509.ExtKeyUsageClientAuth)
	kept, err := ReadAuthority(dir)
	noError(t, err)
	issued, err = kept.IssueClient("jane", nil, time.Hour)
	noError(t, err)
	verify(t, first, issued, x509.ExtKeyUsageClientAuth)
	for _, damaged := range []string{"", "no key"} {
		noError(t, os.Remove(filepath.Join(dir, caCertFile)))
		noError(t, os.WriteFile(filepath.Join(dir, caKeyFile), []byte(damaged), 0o600))
		if _, err := OpenAuthority(dir); err == nil || !strings.Contains(err.Error(), "restore them") {
			t.Errorf("with the key %q: error %v", damaged, err)
		}
		noError(t, os.WriteFile(filepath.Join(dir, caCertFile), nil, 0o600))
	}
}

func TestForeignKeyIsAnError(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, other} {
		if _, err := OpenAuthority(dir); err != nil {
			t.Fatal(err)
		}
	}
	noError(t, os.Rename(filepath.Join(other, caKeyFile), filepath.Join(one, caKeyFile)))
	if _, err := OpenAuthority(one); err == nil || !strings.Contains(err.Error(), "do not match") {
		t.Errorf("error %v", err)
	}
}

func TestIssuedCertificates(t *testing.T) {
	ca, err := OpenAuthority(t.TempDir())
	noError(t, err)
	client, err := ca.IssueClient("jane", []string{"developers", "admins"}, time.Hour)
	noError(t, err)
	cert := verify(t, ca, client, x509.ExtKeyUsageClientAuth)
	if cert.Subject.CommonName != "jane" || !slices.Equal(cert.Subject.Organization, []string{"admins", "developers"}) {
		t.Errorf("subject %v", cert.Subject)
	}
	if left := time.Until(cert.NotAfter); left > time.Hour || left < 59*time.Minute {
		t.Errorf("valid for %s, want an hour", left)
	}
	server, err := ca.IssueServer("apiserver", []string{"127.0.0.1", "localhost"})
	noError(t, err)
	cert = verify(t, ca, server, x509.ExtKeyUsageServerAuth)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if err := cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if err := cert.VerifyHostname("example.com"); err == nil {
		t.Error("the serving certificate is good for any host")
	}
	long, err := ca.IssueClient("jane", nil, 100*365*24*time.Hour)
	noError(t, err)
	if cert := verify(t, ca, long, x509.ExtKeyUsageClientAuth); cert.NotAfter.After(ca.cert.NotAfter) {
		t.Error("a certificate outlives its authority")
	}
	if _, err := ca.IssueClient("", nil, time.Hour); err == nil {
		t.Error("a certificate for nobody")
	}
	if _, err := ca.IssueClient("jane", nil, 0); err == nil {
		t.Error("a certificate for no time")
	}
}

func TestKubeconfig(t *testing.T) {
	ca, err := OpenAuthority(t.TempDir())
	noError(t, err)
	pair, err := ca.IssueClient("jane", nil, time.Hour)
	noError(t, err)
	data, err := Kubeconfig(Access{Context: "hub", User: "jane", Server: "https://127.0.0.1:6443", CA: ca.CertPEM(), Client: pair})
	noError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	noError(t, err)
	if config.Host != "https://127.0.0.1:6443" || !slices.Equal(config.CAData, ca.CertPEM()) || !slices.Equal(config.CertData, pair.Cert) {
		t.Errorf("client configuration %+v", config)
	}
}

func TestSigningKeyIsKept(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	var before []byte
	for range 2 {
		noError(t, EnsureSigningKey(key))
		data, err := os.ReadFile(key)
		noError(t, err)
		if before != nil && !slices.Equal(before, data) {
			t.Error("the key changed")
		}
		before = data
	}
	noError(t, os.WriteFile(key, []byte("no key"), 0o600))
	if err := EnsureSigningKey(key); err == nil {
		t.Error("a file that is no key is accepted")
	}
}

func TestWriteFileReplacesAndNarrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	noError(t, os.WriteFile(path, []byte("old"), 0o666))
	noError(t, WriteFile(path, []byte("new"), 0o600))
	data, err := os.ReadFile(path)
	if err != nil || string(data) != "new" {
		t.Errorf("content %q, error %v", data, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, error %v", entries, err)
	}
}

// verify checks the pair as a TLS peer would and returns its certificate.
func verify(t *testing.T, ca *Authority, pair Pair, usage x509.ExtKeyUsage) *x509.Certificate {
	t.Helper()
	if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	noError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		t.Error(err)
	}
	return cert
}

func FuzzReadAuthority(f *testing.F) {
	signer, keyPEM, err := newKey()
	noError(f, err)
	ca, err := newAuthority(signer, time.Now())
	noError(f, err)
	f.Add(ca.CertPEM(), keyPEM)
	f.Add(keyPEM, ca.CertPEM())
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		for name, data := range map[string][]byte{caCertFile: cert, caKeyFile: key} {
			noError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
		a, err := ReadAuthority(dir)
		if err != nil {
			return
		}
		if _, err := a.IssueClient("jane", nil, time.Hour); err != nil {
			t.Errorf("an accepted authority cannot issue: %v", err)
		}
	})
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

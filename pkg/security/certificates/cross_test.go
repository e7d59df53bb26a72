package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// chainOf returns how many certificates the file of one has, and whether a client that trusts the authorities in a file verifies the broker by them.
func (p *installation) chainOf(name string, trusted []byte) (n int, err error) {
	p.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(p.dir, name, "tls.crt"), filepath.Join(p.dir, name, "tls.key"))
	kit.NoError(p, err)
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	for _, der := range pair.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		kit.NoError(p, err)
		chain.AddCert(cert)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, CurrentTime: p.now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return len(pair.Certificate), err
}

func (p *installation) replaceAuthority() (warnings []string) {
	p.Helper()
	for _, step := range []Step{Trust, Issue, Drop} {
		warnings = append(warnings, p.rotate(step).Warnings...)
	}
	return warnings
}

// TestCrossCertificates: whoever trusts an authority verifies what its successors issue, until it expires; what they issue says so no longer then.
func TestCrossCertificates(t *testing.T) {
	p := newInstallation(t)
	p.ensure()
	first := p.read("ca/ca.crt")
	for replacements := 1; replacements <= 2; replacements++ {
		p.now = p.now.Add(time.Hour)
		if warnings := p.replaceAuthority(); len(warnings) > 0 {
			t.Errorf("warnings: %q", warnings)
		}
		for _, name := range []string{"broker", "hub1"} {
			if n, err := p.chainOf(name, first); err != nil || n != 1+replacements {
				t.Errorf("%s after %d replacements: %d certificates, %v", name, replacements, n, err)
			}
		}
	}
	authority, err := tls.LoadX509KeyPair(filepath.Join(p.dir, "ca/ca.crt"), filepath.Join(p.dir, "ca/ca.key"))
	kit.NoError(t, err)
	key, err := newKey()
	kit.NoError(t, err)
	cert, err := IssueAgent(authority, "c1", &key.PublicKey, time.Minute, p.now)
	if n := strings.Count(string(cert), "BEGIN"); err != nil || n != 3 {
		t.Errorf("a cluster that joins gets %d certificates, %v", n, err)
	}
	p.now = p.now.Add(8760*time.Hour - 90*time.Minute) // the first has expired, its successors have not
	p.ensure(All)
	if n, err := p.chainOf("broker", first); err == nil || n != 2 {
		t.Errorf("after the first authority has expired: %d certificates, %v", n, err)
	}
}

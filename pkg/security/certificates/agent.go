package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// IssueAgent returns the certificate of the agent of a cluster for a public key, in PEM, issued by an authority for a time, or for
// as long as the authority itself is valid. It is for keys that the authority never sees; those of a list are issued by a [Manager].
func IssueAgent(authority tls.Certificate, cluster string, public *ecdsa.PublicKey, validity time.Duration, now time.Time) ([]byte, error) {
	signer, ok := authority.PrivateKey.(crypto.Signer)
	if !ok || authority.Leaf == nil || !authority.Leaf.IsCA {
		return nil, errors.New("the certificate is not that of an authority, or has no key")
	}
	if !now.Before(authority.Leaf.NotAfter) {
		return nil, fmt.Errorf("the authority %s has expired", authority.Leaf.Subject.CommonName)
	}
	point, err := public.Bytes()
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(point)
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, SubjectKeyId: id[:20], BasicConstraintsValid: true,
		NotBefore: now.Add(-skew(validity)), NotAfter: now.Add(validity),
		Subject: subjectOf(Certificate{CommonName: cluster, Role: Agent}), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usageOf(Agent)},
	}
	if template.NotAfter.After(authority.Leaf.NotAfter) {
		template.NotAfter = authority.Leaf.NotAfter
	}
	cert, err := sign(template, authority.Leaf, public, signer)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for %s: %w", cluster, err)
	}
	return pemOf("CERTIFICATE", cert.Raw), nil
}

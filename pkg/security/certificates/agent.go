package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IssueAgent returns the certificate of the agent of a cluster for a public key, in PEM with its chain, issued by an authority for a time, or for
// as long as the authority itself is valid. It is for keys that the authority never sees; those of a list are issued by a [Manager].
func IssueAgent(authority tls.Certificate, cluster string, public *ecdsa.PublicKey, validity time.Duration, now time.Time) ([]byte, error) {
	i, err := issuerOf(authority, now)
	if err != nil {
		return nil, err
	}
	want := Certificate{Name: cluster, CommonName: cluster, Role: Agent, Validity: metav1.Duration{Duration: validity}}
	cert, err := i.certify(want, public, now)
	if err != nil {
		return nil, err
	}
	return i.chain(cert, now), nil
}

// RevocationList returns the revocation list of an authority with serial numbers, in DER. Of two lists, the one with the greater number counts.
func RevocationList(authority tls.Certificate, serials []*big.Int, number *big.Int, now time.Time) ([]byte, error) {
	i, err := issuerOf(authority, now)
	if err != nil {
		return nil, err
	}
	entries := make([]x509.RevocationListEntry, len(serials))
	for n, serial := range serials {
		entries[n] = x509.RevocationListEntry{SerialNumber: serial, RevocationTime: now}
	}
	return i.signRevocations(entries, number, now)
}

// issuerOf returns the issuer with the certificate of an authority, which other certificates of the same authority, issued by its
// predecessors, may follow.
func issuerOf(authority tls.Certificate, now time.Time) (*issuer, error) {
	signer, ok := authority.PrivateKey.(crypto.Signer)
	if !ok || authority.Leaf == nil || !authority.Leaf.IsCA {
		return nil, errors.New("the certificate is not that of an authority, or has no key")
	}
	if !now.Before(authority.Leaf.NotAfter) {
		return nil, fmt.Errorf("the authority %s has expired", authority.Leaf.Subject.CommonName)
	}
	cross, err := crossOf(authority)
	if err != nil {
		return nil, fmt.Errorf("the certificates after that of the authority: %w", err)
	}
	return &issuer{cert: authority.Leaf, key: signer, cross: cross}, nil
}

// crossOf returns the cross certificates that follow the certificate of an authority.
func crossOf(authority tls.Certificate) (cross []*x509.Certificate, err error) {
	for _, der := range authority.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		cross = append(cross, cert)
	}
	return cross, nil
}

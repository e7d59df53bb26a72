package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	want := Certificate{Name: cluster, CommonName: cluster, Role: Agent, Validity: metav1.Duration{Duration: validity}}
	cert, err := (&issuer{cert: authority.Leaf, key: signer}).certify(want, public, now)
	if err != nil {
		return nil, err
	}
	return pemOf("CERTIFICATE", cert.Raw), nil
}

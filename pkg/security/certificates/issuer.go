package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// maxSkew is the maximum of skew.
const maxSkew = 5 * time.Minute

// skew returns how long before now a certificate becomes valid, for clients and servers with a slow
// clock.
func skew(validity time.Duration) time.Duration { return min(maxSkew, validity/10) }

// issuer is an authority: its certificate, its key and its revocation list.
type issuer struct {
	cert *x509.Certificate
	// cross are certificates for the same key that the authority before has issued, then those of that one, and so on. Whoever trusts one of
	// those authorities only, verifies by them what this one issues.
	cross []*x509.Certificate
	key   crypto.Signer
	crl   *x509.RevocationList
}

// newIssuer creates an authority with an empty revocation list.
func newIssuer(config Authority, now time.Time) (*issuer, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(&key.PublicKey, config.Validity.Duration, now)
	if err != nil {
		return nil, err
	}
	// Successive authorities need different names: programs look up the issuer and its revocation
	// list by name.
	template.Subject.CommonName = fmt.Sprintf("%s %x", config.Name, template.SubjectKeyId[:4])
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	template.IsCA = true // without a maximum of the path length: the next authority is below it
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create an authority: %w", err)
	}
	i := &issuer{cert: cert, key: key}
	return i, i.revoke(nil, now)
}

// crossSign adds the certificate of the next authority that i issues, and those of i, to next.
func (i *issuer) crossSign(next *issuer, now time.Time) error {
	serial, err := newSerial()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: next.cert.Subject, SubjectKeyId: next.cert.SubjectKeyId, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: next.cert.KeyUsage, NotBefore: now.Add(-maxSkew), NotAfter: next.cert.NotAfter,
	}
	cross, err := sign(template, i.cert, next.key.Public(), i.key)
	if err != nil {
		return fmt.Errorf("certify the next authority: %w", err)
	}
	next.cross = append([]*x509.Certificate{cross}, i.cross...)
	return nil
}

// chain returns a certificate of i in PEM, followed by those by which others verify it that trust a former authority only.
func (i *issuer) chain(cert *x509.Certificate, now time.Time) []byte {
	chain := pemOf("CERTIFICATE", cert.Raw)
	for _, cross := range i.cross {
		if !now.Before(cross.NotAfter) {
			break // those after it are verified by it
		}
		chain = append(chain, pemOf("CERTIFICATE", cross.Raw)...)
	}
	return chain
}

// newTemplate returns the template of a certificate for a key that is valid from now on.
func newTemplate(public *ecdsa.PublicKey, validity time.Duration, now time.Time) (*x509.Certificate, error) {
	point, err := public.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	id := sha256.Sum256(point)
	serial, err := newSerial()
	return &x509.Certificate{
		SerialNumber: serial, SubjectKeyId: id[:20], BasicConstraintsValid: true,
		NotBefore: now.Add(-skew(validity)), NotAfter: now.Add(validity),
	}, err
}

// sign returns the certificate for a template, signed with the key of its issuer, and valid for no longer than that.
func sign(template, issuer *x509.Certificate, public, key any) (*x509.Certificate, error) {
	if template.NotAfter.After(issuer.NotAfter) {
		template.NotAfter = issuer.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// issue issues a certificate with a new key and returns it, parsed and in PEM, with its key in PEM.
func (i *issuer) issue(want Certificate, now time.Time) (cert *x509.Certificate, certPEM, keyPEM []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("issue a certificate for %s: %w", want.Name, err)
	}
	if cert, err = i.certify(want, &key.PublicKey, now); err != nil {
		return nil, nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("issue a certificate for %s: %w", want.Name, err)
	}
	return cert, i.chain(cert, now), pemOf("PRIVATE KEY", keyDER), nil
}

// certify issues a certificate for a key.
func (i *issuer) certify(want Certificate, public *ecdsa.PublicKey, now time.Time) (cert *x509.Certificate, err error) {
	template, err := newTemplate(public, want.Validity.Duration, now)
	if err == nil {
		template.Subject, template.KeyUsage = subjectOf(want), x509.KeyUsageDigitalSignature
		template.ExtKeyUsage = []x509.ExtKeyUsage{usageOf(want.Role)}
		for _, host := range want.Hosts {
			if ip := net.ParseIP(host); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, host)
			}
		}
		cert, err = sign(template, i.cert, public, i.key)
	}
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for %s: %w", want.Name, err)
	}
	return cert, nil
}

// subjectOf returns the subject by which the broker identifies the client.
func subjectOf(c Certificate) pkix.Name {
	name := pkix.Name{CommonName: c.CommonName}
	if unit := units[c.Role]; unit != "" {
		name.OrganizationalUnit = []string{unit}
	}
	return name
}

// usageOf returns the extended key usage: the certificate of a client cannot serve as that of a
// broker, nor vice versa.
func usageOf(r Role) x509.ExtKeyUsage {
	if r.isServer() {
		return x509.ExtKeyUsageServerAuth
	}
	return x509.ExtKeyUsageClientAuth
}

// revoke adds serial numbers to the revocation list, and creates the list if there is none.
func (i *issuer) revoke(serials []*big.Int, now time.Time) error {
	number, entries := big.NewInt(1), []x509.RevocationListEntry(nil)
	if i.crl != nil {
		number, entries = new(big.Int).Add(i.crl.Number, big.NewInt(1)), i.crl.RevokedCertificateEntries
	}
	for _, serial := range serials {
		if !i.hasRevoked(serial) {
			entries = append(entries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: now})
		}
	}
	der, err := i.signRevocations(entries, number, now)
	if err != nil {
		return err
	}
	i.crl, err = x509.ParseRevocationList(der)
	return err
}

// signRevocations returns a revocation list in DER. It is valid as long as the authority: a list that is not renewed must not make
// brokers refuse all clients.
func (i *issuer) signRevocations(entries []x509.RevocationListEntry, number *big.Int, now time.Time) ([]byte, error) {
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: number, ThisUpdate: now.Add(-maxSkew), NextUpdate: i.cert.NotAfter, RevokedCertificateEntries: entries,
	}, i.cert, i.key)
	if err != nil {
		return nil, fmt.Errorf("create the revocation list of %s: %w", i.cert.Subject.CommonName, err)
	}
	return der, nil
}

func (i *issuer) hasRevoked(serial *big.Int) bool {
	return i.crl != nil && slices.ContainsFunc(i.crl.RevokedCertificateEntries, func(entry x509.RevocationListEntry) bool {
		return entry.SerialNumber.Cmp(serial) == 0
	})
}

// newKey creates a key.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	return key, nil
}

// newSerial returns a random serial number of 127 bits that is not 0.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 127), big.NewInt(1)))
	if err != nil {
		return nil, fmt.Errorf("create a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

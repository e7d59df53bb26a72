package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
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

// maxSkew bounds skew.
const maxSkew = 5 * time.Minute

// skew is how long before now a certificate of that validity begins to be valid, for
// those whose clocks are behind.
func skew(validity time.Duration) time.Duration { return min(maxSkew, validity/10) }

// issuer is an authority: its certificate, its key and what it has revoked.
type issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
	crl  *x509.RevocationList
}

// authorities are those of one directory. The files of each are named by its
// place, with the extensions below.
type authorities struct {
	dir     string
	current *issuer
	next    *issuer // nil unless it is trusted and does not issue yet
	former  *issuer // nil unless it is trusted and does not issue any more
	made    bool    // the current one has just been made
}

const (
	currentFiles = "ca"
	nextFiles    = "next"
	formerFiles  = "former"
)

// extensions of an authority's files. The certificate is written last and removed
// first: the others do not count without it.
var extensions = []string{".key", ".crl", ".crt"}

func (a *authorities) path(name string) string { return filepath.Join(a.dir, name) }

// openAuthorities reads the authorities in dir.
func openAuthorities(dir string) (*authorities, error) {
	a := &authorities{dir: dir}
	var err error
	if a.current, err = a.read(currentFiles); err != nil {
		return nil, err
	}
	for name, place := range map[string]**issuer{nextFiles: &a.next, formerFiles: &a.former} {
		if *place, err = a.read(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return a, nil
}

// finish does the rest of promote, where a process was killed in the middle of it.
func finish(dir string) error {
	a := &authorities{dir: dir}
	if exists(a.path(nextFiles+".crt")) && exists(a.path(formerFiles+".crt")) {
		return a.moveNext()
	}
	return nil
}

// read gives an error that wraps os.ErrNotExist when there is no certificate.
func (a *authorities) read(name string) (*issuer, error) {
	certFile, keyFile := a.path(name+".crt"), a.path(name+".key")
	if !exists(certFile) {
		if name == currentFiles && exists(keyFile) {
			return nil, fmt.Errorf("authority: %s is there without its certificate %s: restore that, or remove the key to begin anew", keyFile, certFile)
		}
		return nil, fmt.Errorf("authority: %s: %w", certFile, os.ErrNotExist)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if errors.Is(err, os.ErrNotExist) {
		// It must not look as if there was no authority: a new one would void all.
		return nil, fmt.Errorf("authority: %s is there without its key %s: restore that, or remove the certificate to begin anew", certFile, keyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("authority: %s and %s can not be used: %w", certFile, keyFile, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA || len(pair.Leaf.SubjectKeyId) == 0 {
		return nil, fmt.Errorf("authority: %s is no certificate of an authority, or lacks a subject key id", certFile)
	}
	i := &issuer{cert: pair.Leaf, key: key}
	data, err := os.ReadFile(a.path(name + ".crl"))
	if errors.Is(err, os.ErrNotExist) {
		return i, nil
	}
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("authority: %s holds no PEM", a.path(name+".crl"))
	}
	if i.crl, err = x509.ParseRevocationList(block.Bytes); err == nil {
		err = i.crl.CheckSignatureFrom(i.cert)
	}
	if err != nil {
		return nil, fmt.Errorf("authority: %s is not its revocation list: %w", a.path(name+".crl"), err)
	}
	return i, nil
}

// write writes the files of i.
func (a *authorities) write(name string, i *issuer) error {
	key, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	contents := map[string][]byte{".key": pemOf("PRIVATE KEY", key), ".crl": pemOf("X509 CRL", i.crl.Raw), ".crt": pemOf("CERTIFICATE", i.cert.Raw)}
	files := make([]file, 0, len(extensions))
	for _, extension := range extensions {
		mode := os.FileMode(0o644)
		if extension == ".key" {
			mode = 0o600
		}
		files = append(files, file{name: name + extension, data: contents[extension], mode: mode})
	}
	return replace(a.dir, files...)
}

// promote makes the next authority the current one, and that the former one.
func (a *authorities) promote() error {
	if err := a.write(formerFiles, a.current); err != nil {
		return err
	}
	if err := a.moveNext(); err != nil {
		return err
	}
	a.former, a.current, a.next = a.current, a.next, nil
	return nil
}

// moveNext is the second half of promote. It can be repeated.
func (a *authorities) moveNext() error {
	for _, extension := range extensions {
		err := os.Rename(a.path(nextFiles+extension), a.path(currentFiles+extension))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("authority: %w", err)
		}
	}
	return syncDirectory(a.dir)
}

// forget removes the files of the former authority.
func (a *authorities) forget() error {
	for _, extension := range []string{".crt", ".crl", ".key"} {
		if err := os.Remove(a.path(formerFiles + extension)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("authority: %w", err)
		}
	}
	a.former = nil
	return syncDirectory(a.dir)
}

// all are the authorities to trust, with their file names, the one that issues first.
func (a *authorities) all() []placed {
	var list []placed
	for _, p := range []placed{{currentFiles, a.current}, {nextFiles, a.next}, {formerFiles, a.former}} {
		if p.issuer != nil {
			list = append(list, p)
		}
	}
	return list
}

type placed struct {
	name   string
	issuer *issuer
}

// trust is the PEM of the authorities to trust.
func (a *authorities) trust() []byte {
	var bundle bytes.Buffer
	for _, p := range a.all() {
		bundle.Write(pemOf("CERTIFICATE", p.issuer.cert.Raw))
	}
	return bundle.Bytes()
}

// revocations is the PEM of their revocation lists.
func (a *authorities) revocations() []byte {
	var bundle bytes.Buffer
	for _, p := range a.all() {
		bundle.Write(pemOf("X509 CRL", p.issuer.crl.Raw))
	}
	return bundle.Bytes()
}

// newIssuer makes an authority that has revoked nothing.
func newIssuer(config Authority, now time.Time) (*issuer, error) {
	key, id, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// Successive authorities need different names: programs look for the
		// issuer, and for its revocation list, by name.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s %x", config.Name, id[:4])},
		NotBefore:             now.Add(-skew(config.Validity.Duration)),
		NotAfter:              now.Add(config.Validity.Duration),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		SubjectKeyId:          id,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	i := &issuer{cert: cert, key: key}
	return i, i.revoke(nil, now)
}

// issue makes a certificate and its key, in PEM.
func (i *issuer) issue(want Certificate, now time.Time) (cert *x509.Certificate, certPEM, keyPEM []byte, err error) {
	fail := func(err error) (*x509.Certificate, []byte, []byte, error) {
		return nil, nil, nil, fmt.Errorf("issue a certificate for %s: %w", want.Name, err)
	}
	key, id, err := newKey()
	if err != nil {
		return fail(err)
	}
	serial, err := newSerial()
	if err != nil {
		return fail(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      subjectOf(want),
		NotBefore:    now.Add(-skew(want.Validity.Duration)),
		NotAfter:     now.Add(want.Validity.Duration),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usageOf(want.Role)},
		// Not an authority, and says so.
		BasicConstraintsValid: true,
		SubjectKeyId:          id,
	}
	if template.NotAfter.After(i.cert.NotAfter) {
		template.NotAfter = i.cert.NotAfter
	}
	for _, host := range want.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, key.Public(), i.key)
	if err != nil {
		return fail(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		return fail(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fail(err)
	}
	return cert, pemOf("CERTIFICATE", der), pemOf("PRIVATE KEY", keyDER), nil
}

// subjectOf gives the subject that the broker knows the client by.
func subjectOf(c Certificate) pkix.Name {
	name := pkix.Name{CommonName: c.CommonName}
	if unit := units[c.Role]; unit != "" {
		name.OrganizationalUnit = []string{unit}
	}
	return name
}

// usageOf keeps the certificate of a client from passing for a broker, and the other
// way round.
func usageOf(r Role) x509.ExtKeyUsage {
	if r.serves() {
		return x509.ExtKeyUsageServerAuth
	}
	return x509.ExtKeyUsageClientAuth
}

// revoke adds serial numbers to the revocation list, which is made if there is none.
// It stays valid as long as the authority: a list that nobody renews must not shut
// everybody out.
func (i *issuer) revoke(serials []*big.Int, now time.Time) error {
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now.Add(-maxSkew), NextUpdate: i.cert.NotAfter}
	if i.crl != nil {
		template.Number = new(big.Int).Add(i.crl.Number, big.NewInt(1))
		template.RevokedCertificateEntries = i.crl.RevokedCertificateEntries
	}
	for _, serial := range serials {
		if !i.revoked(serial) {
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: now})
		}
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, i.cert, i.key)
	if err != nil {
		return fmt.Errorf("make the revocation list of %s: %w", i.cert.Subject.CommonName, err)
	}
	i.crl, err = x509.ParseRevocationList(der)
	return err
}

func (i *issuer) revoked(serial *big.Int) bool {
	if i.crl == nil {
		return false
	}
	for _, entry := range i.crl.RevokedCertificateEntries {
		if entry.SerialNumber.Cmp(serial) == 0 {
			return true
		}
	}
	return false
}

// newKey makes a key and the id that certificates name it by.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	digest := sha256.Sum256(public)
	return key, digest[:20], nil
}

// newSerial gives 127 random bits, which are never 0.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 127), big.NewInt(1)))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

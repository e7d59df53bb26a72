package certificates

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/workwire/workwire/pkg/runtime/files"
)

// authorities are the authorities in one directory. Their files are named by their place, with the
// extensions below.
type authorities struct {
	dir     string
	current *issuer
	next    *issuer // nil unless it is trusted and does not issue yet
	former  *issuer // nil unless it is trusted and no longer issues
	created bool    // the current one was created just now
}

const (
	currentFiles = "ca"
	nextFiles    = "next"
	formerFiles  = "former"
)

// extensions are the extensions of an authority's files. In that of the certificate, cross certificates follow it. The certificate is written last and
// deleted first: the other files are ignored without it.
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

// finishPromotion finishes a promotion during which a process was killed.
func finishPromotion(dir string) error {
	a := &authorities{dir: dir}
	if exists(a.path(nextFiles+".crt")) && exists(a.path(formerFiles+".crt")) {
		return a.moveNext()
	}
	return nil
}

// read reads the authority with the given place. Without a certificate it returns an error that
// wraps os.ErrNotExist.
func (a *authorities) read(name string) (*issuer, error) {
	certFile, keyFile := a.path(name+".crt"), a.path(name+".key")
	if !exists(certFile) {
		if name == currentFiles && exists(keyFile) {
			return nil, fmt.Errorf("authority: %s exists without its certificate %s; restore the certificate, or delete the key to create a new authority", keyFile, certFile)
		}
		return nil, fmt.Errorf("authority: %s: %w", certFile, os.ErrNotExist)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if errors.Is(err, os.ErrNotExist) {
		// Not os.ErrNotExist: a new authority would invalidate all certificates.
		return nil, fmt.Errorf("authority: %s exists without its key %s; restore the key, or delete the certificate to create a new authority", certFile, keyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("authority: %s and %s cannot be used: %w", certFile, keyFile, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA || len(pair.Leaf.SubjectKeyId) == 0 {
		return nil, fmt.Errorf("authority: %s is not the certificate of an authority, or has no subject key id", certFile)
	}
	cross, err := crossOf(pair)
	if err != nil {
		return nil, fmt.Errorf("authority: %s: %w", certFile, err)
	}
	i := &issuer{cert: pair.Leaf, key: key, cross: cross}
	data, err := os.ReadFile(a.path(name + ".crl"))
	if errors.Is(err, os.ErrNotExist) {
		return i, nil
	}
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("authority: %s has no PEM block", a.path(name+".crl"))
	}
	if i.crl, err = x509.ParseRevocationList(block.Bytes); err == nil {
		err = i.crl.CheckSignatureFrom(i.cert)
	}
	if err != nil {
		return nil, fmt.Errorf("authority: %s is not its revocation list: %w", a.path(name+".crl"), err)
	}
	return i, nil
}

// write writes the files of i under the given place.
func (a *authorities) write(name string, i *issuer) error {
	key, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	contents := map[string][]byte{".key": pemOf("PRIVATE KEY", key), ".crl": pemOf("X509 CRL", i.crl.Raw), ".crt": i.chain(i.cert, i.cert.NotBefore)}
	list := make([]files.File, 0, len(extensions))
	for _, extension := range extensions {
		list = append(list, files.File{Name: name + extension, Data: contents[extension], Mode: 0o644})
	}
	list[0].Mode = 0o600 // the key
	return files.Replace(a.dir, list...)
}

// promote makes the current authority the former one, and the next authority the current one.
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

// moveNext renames the files of the next authority to those of the current one. It may be repeated.
func (a *authorities) moveNext() error {
	for _, extension := range extensions {
		err := os.Rename(a.path(nextFiles+extension), a.path(currentFiles+extension))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("authority: %w", err)
		}
	}
	return files.Sync(a.dir)
}

// deleteFormer deletes the files of the former authority.
func (a *authorities) deleteFormer() error {
	for _, extension := range slices.Backward(extensions) {
		if err := os.Remove(a.path(formerFiles + extension)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("authority: %w", err)
		}
	}
	a.former = nil
	return files.Sync(a.dir)
}

// all returns the trusted authorities with their places, the current one first.
func (a *authorities) all() []placedIssuer {
	var list []placedIssuer
	for _, p := range []placedIssuer{{currentFiles, a.current}, {nextFiles, a.next}, {formerFiles, a.former}} {
		if p.issuer != nil {
			list = append(list, p)
		}
	}
	return list
}

// placedIssuer is an authority with its place, the name of its files.
type placedIssuer struct {
	name   string
	issuer *issuer
}

// trust returns the certificates of the trusted authorities in PEM.
func (a *authorities) trust() []byte {
	var bundle bytes.Buffer
	for _, p := range a.all() {
		bundle.Write(pemOf("CERTIFICATE", p.issuer.cert.Raw))
	}
	return bundle.Bytes()
}

// revocations returns the revocation lists of the trusted authorities in PEM.
func (a *authorities) revocations() []byte {
	var bundle bytes.Buffer
	for _, p := range a.all() {
		bundle.Write(pemOf("X509 CRL", p.issuer.crl.Raw))
	}
	return bundle.Bytes()
}

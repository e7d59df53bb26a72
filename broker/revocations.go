package broker

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/workwire/workwire/broker/packet"
	"github.com/workwire/workwire/pkg/runtime/files"
)

// revocationsFile is the name of the file in [Config.DataDir] with the revocation lists that sources have sent.
const revocationsFile = "revocations.crl"

// revocations are the revocation lists that sources have sent: the newest of each authority from each source. A list proves itself by its
// signature; several hubs may have one authority, and each revokes its clusters. It is safe for concurrent use.
type revocations struct {
	path   string // "": they are kept in memory
	logger *slog.Logger

	mu      sync.Mutex
	lists   []sentList // never changed in place
	version uint64     // changes with lists
}

// sentList is a revocation list, and the id of the source that has sent it.
type sentList struct {
	*x509.RevocationList
	source string
}

// sourceHeader is the PEM header with the source of a list.
const sourceHeader = "Source"

// openRevocations reads the lists in a directory. A file that cannot be read is an error: what it revokes would be accepted.
func openRevocations(dir string, logger *slog.Logger) (*revocations, error) {
	r := &revocations{logger: logger}
	if dir == "" {
		return r, nil
	}
	r.path = filepath.Join(dir, revocationsFile)
	err := readPEM(r.path, "X509 CRL", func(block *pem.Block) error {
		list, err := x509.ParseRevocationList(block.Bytes)
		r.lists = append(r.lists, sentList{list, block.Headers[sourceHeader]})
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("revocation lists that sources have sent: %w; delete the file: the hubs send their lists again when they connect", err)
	}
	return r, nil
}

// current returns the lists, and a number that changes with them.
func (r *revocations) current() ([]sentList, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lists, r.version
}

// accept puts a list of one of the authorities in force, in place of the one before from the same source. It returns an error if it is none, or
// older than that. Lists of authorities that are no longer there are forgotten.
func (r *revocations) accept(source string, der []byte, authorities []*x509.Certificate) error {
	list, err := x509.ParseRevocationList(bytes.Clone(der)) // it refers to the buffer, and is kept
	if err != nil {
		return fmt.Errorf("read the list: %w", err)
	}
	if list.Number == nil || !isSigned(list, authorities) {
		return errors.New("the list has no number, or is not signed by an authority in clientCAFile")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := []sentList{{list, source}}
	for _, have := range r.lists {
		if have.source != source || !bytes.Equal(have.RawIssuer, list.RawIssuer) || !bytes.Equal(have.AuthorityKeyId, list.AuthorityKeyId) {
			if isSigned(have.RevocationList, authorities) {
				next = append(next, have)
			}
			continue
		}
		switch {
		case bytes.Equal(have.Raw, list.Raw):
			return nil
		case have.Number.Cmp(list.Number) >= 0:
			return fmt.Errorf("outdated: the list has the number %s, and the one in force %s", list.Number, have.Number)
		}
	}
	if err := r.write(next); err != nil {
		return err
	}
	r.lists, r.version = next, r.version+1
	r.logger.Info("revocation list taken", "source", source, "authority", list.Issuer.CommonName, "number", list.Number.String(), "revoked", len(list.RevokedCertificateEntries))
	return nil
}

// write replaces the file, which is on disk when it returns.
func (r *revocations) write(lists []sentList) error {
	if r.path == "" {
		return nil
	}
	var text bytes.Buffer
	for _, list := range lists {
		if err := pem.Encode(&text, &pem.Block{Type: "X509 CRL", Headers: map[string]string{sourceHeader: list.source}, Bytes: list.Raw}); err != nil {
			return err
		}
	}
	return files.Replace(filepath.Dir(r.path), files.File{Name: revocationsFile, Data: text.Bytes(), Mode: 0o600})
}

// isSigned reports whether one of the authorities has signed a list.
func isSigned(list *x509.RevocationList, authorities []*x509.Certificate) bool {
	return slices.ContainsFunc(authorities, func(a *x509.Certificate) bool {
		return isIssuer(a, list) && list.CheckSignatureFrom(a) == nil
	})
}

// serials returns the serial numbers in the lists that one of the authorities has signed.
func serials(lists []sentList, authorities []*x509.Certificate) (revoked []*big.Int) {
	for _, list := range lists {
		if isSigned(list.RevocationList, authorities) {
			for _, entry := range list.RevokedCertificateEntries {
				revoked = append(revoked, entry.SerialNumber)
			}
		}
	}
	return revoked
}

// revoke takes a revocation list that a source has published, and returns the reason code for it. It is in force within a second.
func (c *client) revoke(der []byte) byte {
	err := c.server.revocations.accept(c.id.ID, der, clientAuthorities(c.server.tlsFiles))
	if err == nil {
		return packet.Success
	}
	c.audit("revoke", accessDenied, "revocation list refused", "reason", err)
	if errors.As(err, new(*os.PathError)) || errors.As(err, new(*os.LinkError)) {
		return packet.ImplementationError // the disk; the source tries again
	}
	reason := err.Error()
	c.listRefused.Store(&reason)
	return packet.BadPayloadFormat
}

// clientAuthorities returns the authorities of client certificates of all listeners.
func clientAuthorities(listeners []*tlsFiles) (all []*x509.Certificate) {
	for _, files := range listeners {
		all = append(all, files.current().clientAuthorities...)
	}
	return all
}

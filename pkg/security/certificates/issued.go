package certificates

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"
)

const issuedFile = "issued"

// issued is an entry in the list of certificates that can be revoked.
type issued struct {
	serial   *big.Int
	issuer   string // key id of the authority, in hex
	notAfter time.Time
	name     string
}

// parseIssued parses a list. It has a line for each certificate, with its serial number, the key id
// of its authority, its expiry and its name.
func parseIssued(data []byte) ([]issued, error) {
	var list []issued
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var serial, issuer, end, name string
		if _, err := fmt.Sscan(lines.Text(), &serial, &issuer, &end, &name); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(list)+1, err)
		}
		n, ok := new(big.Int).SetString(serial, 16)
		notAfter, err := time.Parse(time.RFC3339, end)
		if !ok || err != nil {
			return nil, fmt.Errorf("line %d: invalid serial number or time", len(list)+1)
		}
		list = append(list, issued{n, issuer, notAfter, name})
	}
	return list, nil
}

// formatIssued encodes the list without expired certificates, which need not be revoked.
func formatIssued(list []issued, now time.Time) []byte {
	var out bytes.Buffer
	for _, i := range list {
		if i.notAfter.After(now) {
			fmt.Fprintf(&out, "%x %s %s %s\n", i.serial, i.issuer, i.notAfter.UTC().Format(time.RFC3339), i.name)
		}
	}
	return out.Bytes()
}

// issued returns the list of issued certificates.
func (a *authorities) issued() ([]issued, error) {
	data, err := os.ReadFile(a.path(issuedFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	list, err := parseIssued(data)
	if err != nil {
		return nil, fmt.Errorf("list of issued certificates %s: %w", a.path(issuedFile), err)
	}
	return list, nil
}

// addIssued adds cert to the list of issued certificates.
func (a *authorities) addIssued(name string, cert *x509.Certificate, now time.Time) error {
	list, err := a.issued()
	if err != nil {
		return err
	}
	list = append(list, issued{cert.SerialNumber, hex.EncodeToString(cert.AuthorityKeyId), cert.NotAfter, name})
	return replace(a.dir, file{name: issuedFile, data: formatIssued(list, now), mode: 0o600})
}

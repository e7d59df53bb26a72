package certificates

import (
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"time"

	"github.com/workwire/workwire/pkg/runtime/files"
)

const issuedFile = "issued"

// issued is an entry in the list of certificates that can be revoked.
type issued struct {
	Serial   *big.Int  `json:"serial"`
	Issuer   string    `json:"issuer"` // key id of the authority, in hex
	NotAfter time.Time `json:"notAfter"`
	Name     string    `json:"name"`
}

// issued returns the list of issued certificates.
func (a *authorities) issued() (list []issued, err error) {
	data, err := os.ReadFile(a.path(issuedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err == nil && slices.ContainsFunc(list, func(i issued) bool { return i.Serial == nil }) {
		err = errors.New("a certificate has no serial number")
	}
	if err != nil {
		return nil, fmt.Errorf("list of issued certificates %s: %w", a.path(issuedFile), err)
	}
	return list, nil
}

// addIssued adds cert to the list of issued certificates, without those that have expired, which need not be revoked.
func (a *authorities) addIssued(name string, cert *x509.Certificate, now time.Time) error {
	list, err := a.issued()
	if err != nil {
		return err
	}
	list = append(list, issued{cert.SerialNumber, hex.EncodeToString(cert.AuthorityKeyId), cert.NotAfter, name})
	data, err := json.Marshal(slices.DeleteFunc(list, func(i issued) bool { return !i.NotAfter.After(now) }))
	if err != nil {
		return fmt.Errorf("list of issued certificates: %w", err)
	}
	return files.Replace(a.dir, files.File{Name: issuedFile, Data: data, Mode: 0o600})
}

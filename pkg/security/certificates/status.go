package certificates

import (
	"cmp"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// CertificateStatus is the status of one certificate.
type CertificateStatus struct {
	Certificate
	// Issuer is the common name of the issuing authority; empty without a certificate.
	Issuer   string
	NotAfter time.Time
	// RenewalReason is why Ensure will issue it again; empty if Ensure will keep it.
	RenewalReason string
}

// Status is the status of an installation.
type Status struct {
	// Authorities are the trusted authorities, the current one first.
	Authorities []AuthorityStatus
	// Certificates are in the order of the configuration.
	Certificates []CertificateStatus
}

// AuthorityStatus is the status of one authority.
type AuthorityStatus struct {
	Name string
	// KeyID is the key id that its certificates name, in hexadecimal.
	KeyID    string
	NotAfter time.Time
	// Place is its place in a replacement: "current", "next" or "former".
	Place string
	// Revoked is the number of its revoked certificates.
	Revoked int
}

// Status reads the status of all certificates and changes nothing.
func (m *Manager) Status() (Status, error) {
	var status Status
	a, err := openAuthorities(m.path(m.config.Authority.Directory))
	if errors.Is(err, os.ErrNotExist) {
		return status, fmt.Errorf("there is no authority yet; create it with `workctl certs ensure`: %w", err)
	}
	if err != nil {
		return status, err
	}
	places := map[string]string{currentFiles: "current", nextFiles: "next", formerFiles: "former"}
	for _, p := range a.all() {
		s := AuthorityStatus{Name: p.issuer.cert.Subject.CommonName, KeyID: hex.EncodeToString(p.issuer.cert.SubjectKeyId), NotAfter: p.issuer.cert.NotAfter, Place: places[p.name]}
		if p.issuer.crl != nil {
			s.Revoked = len(p.issuer.crl.RevokedCertificateEntries)
		}
		status.Authorities = append(status.Authorities, s)
	}
	for _, want := range m.config.Certificates {
		have := readInstalled(m.path(want.Directory))
		s := CertificateStatus{Certificate: want, RenewalReason: renewalReason(want, have, a.current, m.now())}
		if have.cert != nil {
			s.Issuer, s.NotAfter = have.cert.Issuer.CommonName, have.cert.NotAfter
		}
		status.Certificates = append(status.Certificates, s)
	}
	return status, nil
}

// Secret returns the YAML of a Secret of type kubernetes.io/tls with the files of the certificate
// called name. secretName defaults to name. A missing or invalid file is an error.
func (m *Manager) Secret(name, namespace, secretName string) ([]byte, error) {
	want, err := m.certificate(name)
	if err != nil {
		return nil, err
	}
	s := corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(secretName, name), Namespace: namespace},
		Type:       corev1.SecretTypeTLS, Data: map[string][]byte{},
	}
	for _, f := range filesOf(want.Role) {
		path := filepath.Join(m.path(want.Directory), f)
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", name, err)
		}
		if block, _ := pem.Decode(data); block == nil {
			return nil, fmt.Errorf("certificate %s: %s has no PEM block", name, path)
		}
		s.Data[f] = data
	}
	if err := readInstalled(m.path(want.Directory)).err; err != nil {
		return nil, fmt.Errorf("certificate %s: %s", name, strings.TrimSpace(err.Error()))
	}
	return yaml.Marshal(s)
}

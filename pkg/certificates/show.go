package certificates

import (
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// CertificateStatus is how one certificate is.
type CertificateStatus struct {
	Certificate
	// Issuer is the common name of the authority that issued it; empty when there
	// is no certificate.
	Issuer   string
	NotAfter time.Time
	// Due says why Ensure will issue it anew, and is empty when it is good.
	Due string
}

// Status is how an installation is.
type Status struct {
	// Authorities are those that are trusted, by name: the current one first.
	Authorities []AuthorityStatus
	// Certificates are in the order of the configuration.
	Certificates []CertificateStatus
}

// AuthorityStatus is how one authority is.
type AuthorityStatus struct {
	Name     string
	NotAfter time.Time
	// Place says what it is: "issues", "is the next one" or "is the former one".
	Place string
	// Revoked is how many of its certificates are revoked.
	Revoked int
}

// Status tells how everything is, and changes nothing.
func (m *Manager) Status() (Status, error) {
	var status Status
	a, err := openAuthorities(m.path(m.config.Authority.Directory))
	if errors.Is(err, os.ErrNotExist) {
		return status, fmt.Errorf("there is no authority yet: `workctl certs ensure` makes it: %w", err)
	}
	if err != nil {
		return status, err
	}
	places := map[string]string{currentFiles: "issues", nextFiles: "is the next one", formerFiles: "is the former one"}
	for _, p := range a.all() {
		s := AuthorityStatus{Name: p.issuer.cert.Subject.CommonName, NotAfter: p.issuer.cert.NotAfter, Place: places[p.name]}
		if p.issuer.crl != nil {
			s.Revoked = len(p.issuer.crl.RevokedCertificateEntries)
		}
		status.Authorities = append(status.Authorities, s)
	}
	for _, want := range m.config.Certificates {
		have := readHeld(m.path(want.Directory))
		s := CertificateStatus{Certificate: want, Due: decide(want, have, a.current, m.now())}
		if have.cert != nil {
			s.Issuer, s.NotAfter = have.cert.Issuer.CommonName, have.cert.NotAfter
		}
		status.Certificates = append(status.Certificates, s)
	}
	return status, nil
}

// secret is as much of a Kubernetes Secret as there is to say.
type secret struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   secretMeta        `json:"metadata"`
	Type       string            `json:"type"`
	Data       map[string][]byte `json:"data"`
}

type secretMeta struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Secret gives the files of the certificate name as a Secret of type
// kubernetes.io/tls, in YAML. Its name is that of the certificate unless
// secretName says otherwise. It refuses files of which one is missing, or is not PEM.
func (m *Manager) Secret(name, namespace, secretName string) ([]byte, error) {
	want, err := m.certificate(name)
	if err != nil {
		return nil, err
	}
	setDefault(&secretName, name)
	s := secret{APIVersion: "v1", Kind: "Secret", Metadata: secretMeta{secretName, namespace}, Type: "kubernetes.io/tls", Data: map[string][]byte{}}
	files := []string{certFile, keyFile, trustFile}
	if want.Role == Broker {
		files = append(files, crlFile)
	}
	for _, f := range files {
		path := filepath.Join(m.path(want.Directory), f)
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", name, err)
		}
		if block, _ := pem.Decode(data); block == nil {
			return nil, fmt.Errorf("certificate %s: %s holds no PEM", name, path)
		}
		s.Data[f] = data
	}
	if fault := readHeld(m.path(want.Directory)).fault; fault != nil {
		return nil, fmt.Errorf("certificate %s: %s", name, strings.TrimSpace(fault.Error()))
	}
	return yaml.Marshal(s)
}

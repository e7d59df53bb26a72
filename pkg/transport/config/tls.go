package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"
)

// Certificates are the contents of the certificate files, in PEM.
type Certificates struct {
	CA, ClientCert, ClientKey []byte
}

// Equal reports whether both have the same contents.
func (c Certificates) Equal(other Certificates) bool {
	return bytes.Equal(c.CA, other.CA) && bytes.Equal(c.ClientCert, other.ClientCert) &&
		bytes.Equal(c.ClientKey, other.ClientKey)
}

// Validity returns from when to when the client certificate is valid; false without a readable one.
func (c Certificates) Validity() (start, end time.Time, ok bool) {
	block, _ := pem.Decode(c.ClientCert)
	if block == nil {
		return start, end, false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return start, end, false
	}
	return cert.NotBefore, cert.NotAfter, true
}

// Certificates reads the certificates that c names. Errors contain the key and the path.
func (c Config) Certificates() (Certificates, error) {
	var certs Certificates
	var errs []error
	for _, p := range []struct {
		key  string
		from PEM
		to   *[]byte
	}{{"caFile", c.CA, &certs.CA}, {"clientCertFile", c.ClientCert, &certs.ClientCert}, {"clientKeyFile", c.ClientKey, &certs.ClientKey}} {
		data, err := p.from.read()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.key, err))
		}
		*p.to = data
	}
	return certs, errors.Join(errs...)
}

// TLSConfig returns the TLS configuration for a connection to address, one of c.Addresses, with certs.
// Errors contain the key of the invalid field.
func (c Config) TLSConfig(address string, certs Certificates) (*tls.Config, error) {
	var errs []error
	a, err := ParseAddress(address)
	errs = append(errs, err)
	host, _, _ := net.SplitHostPort(a.Host) // ParseAddress has split it
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if len(certs.CA) > 0 {
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(certs.CA) {
			errs = append(errs, fmt.Errorf("%s holds no PEM certificate", c.CA.keyName("caFile", "caData")))
		}
	}
	if len(certs.ClientCert) > 0 || len(certs.ClientKey) > 0 {
		pair, err := tls.X509KeyPair(certs.ClientCert, certs.ClientKey)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s and %s are no pair of certificate and key: %w",
				c.ClientCert.keyName("clientCertFile", "clientCertData"), c.ClientKey.keyName("clientKeyFile", "clientKeyData"), err))
		}
		settings.Certificates = []tls.Certificate{pair}
		// By default, the client does not send a certificate of an authority that the broker does
		// not trust, and the error at both ends is that there is none.
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return settings, errors.Join(errs...)
}

// keyName returns the key of p, with the path if it has one.
func (p PEM) keyName(fileKey, dataKey string) string {
	if p.File == "" {
		return dataKey
	}
	return fmt.Sprintf("%s %q", fileKey, p.File)
}

func (c Config) validateTLS() error {
	var errs []error
	for _, p := range []struct {
		value PEM
		key   string
	}{{c.CA, "ca"}, {c.ClientCert, "clientCert"}, {c.ClientKey, "clientKey"}} {
		if p.value.File != "" && len(p.value.Data) > 0 {
			errs = append(errs, fmt.Errorf("%[1]sFile: %[1]sData is given as well: keep one of them", p.key))
		}
	}
	switch {
	case !c.ClientCert.IsEmpty() && c.ClientKey.IsEmpty():
		errs = append(errs, errors.New("clientKeyFile: required with a client certificate: give clientKeyFile or clientKeyData"))
	case c.ClientCert.IsEmpty() && !c.ClientKey.IsEmpty():
		errs = append(errs, errors.New("clientCertFile: required with a client key: give clientCertFile or clientCertData"))
	}
	if !c.UsesTLS() || len(errs) > 0 {
		return errors.Join(errs...)
	}
	certs, err := c.Certificates()
	if err != nil {
		return err
	}
	if c.validateAddresses() != nil {
		return nil // reported separately
	}
	_, err = c.TLSConfig(c.Addresses()[0], certs)
	return err
}

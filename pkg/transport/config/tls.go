package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// Certificates are the contents of the certificate files at one time, in PEM.
type Certificates struct {
	CA, ClientCert, ClientKey []byte
}

// Equal reports whether both are the same bytes.
func (c Certificates) Equal(other Certificates) bool {
	return bytes.Equal(c.CA, other.CA) && bytes.Equal(c.ClientCert, other.ClientCert) &&
		bytes.Equal(c.ClientKey, other.ClientKey)
}

// Certificates reads the certificates that c names as they are now. Errors
// name the key and the path.
func (c Config) Certificates() (Certificates, error) {
	var certs Certificates
	var faults []error
	for _, p := range []struct {
		key  string
		from PEM
		to   *[]byte
	}{{"caFile", c.CA, &certs.CA}, {"clientCertFile", c.ClientCert, &certs.ClientCert}, {"clientKeyFile", c.ClientKey, &certs.ClientKey}} {
		data, err := p.from.read()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", p.key, err))
		}
		*p.to = data
	}
	return certs, errors.Join(faults...)
}

// TLSConfig returns the settings for a TLS connection to the broker at c.BrokerHost
// with certs. Errors name the key at fault.
func (c Config) TLSConfig(certs Certificates) (*tls.Config, error) {
	var faults []error
	host, _, err := net.SplitHostPort(c.BrokerHost)
	if err != nil {
		faults = append(faults, fmt.Errorf("brokerHost: %w", err))
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if len(certs.CA) > 0 {
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(certs.CA) {
			faults = append(faults, fmt.Errorf("%s holds no PEM certificate", c.CA.keyName("caFile", "caData")))
		}
	}
	if len(certs.ClientCert) > 0 || len(certs.ClientKey) > 0 {
		pair, err := tls.X509KeyPair(certs.ClientCert, certs.ClientKey)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s and %s are no pair of certificate and key: %w",
				c.ClientCert.keyName("clientCertFile", "clientCertData"), c.ClientKey.keyName("clientKeyFile", "clientKeyData"), err))
		}
		settings.Certificates = []tls.Certificate{pair}
		// Without this, a certificate of an authority that the broker does not trust is
		// not even shown, and both ends say that there is none.
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return settings, errors.Join(faults...)
}

// name tells p by its key, and the path if it has one.
func (p PEM) keyName(fileKey, dataKey string) string {
	if p.File == "" {
		return dataKey
	}
	return fmt.Sprintf("%s %q", fileKey, p.File)
}

func (c Config) validateTLS() error {
	var faults []error
	for _, p := range []struct {
		value PEM
		key   string
	}{{c.CA, "ca"}, {c.ClientCert, "clientCert"}, {c.ClientKey, "clientKey"}} {
		if p.value.File != "" && len(p.value.Data) > 0 {
			faults = append(faults, fmt.Errorf("%[1]sFile: %[1]sData is given as well: keep one of them", p.key))
		}
	}
	switch {
	case !c.ClientCert.IsEmpty() && c.ClientKey.IsEmpty():
		faults = append(faults, errors.New("clientKeyFile: required with a client certificate: give clientKeyFile or clientKeyData"))
	case c.ClientCert.IsEmpty() && !c.ClientKey.IsEmpty():
		faults = append(faults, errors.New("clientCertFile: required with a client key: give clientCertFile or clientCertData"))
	}
	if !c.UsesTLS() || len(faults) > 0 {
		return errors.Join(faults...)
	}
	certs, err := c.Certificates()
	if err != nil {
		return err
	}
	if validateBrokerHost(c.BrokerHost) != nil {
		return nil // reported by itself
	}
	_, err = c.TLSConfig(certs)
	return err
}

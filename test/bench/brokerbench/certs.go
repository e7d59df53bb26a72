package brokerbench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority issues certificates. All clients share a key, which makes thousands quick to issue.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool

	serial     int64
	clientKey  *ecdsa.PrivateKey
	ca         string // files of the broker
	serverCert string
	serverKey  string
}

func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &authority{pool: x509.NewCertPool(), ca: filepath.Join(dir, "ca.crt"), serverCert: filepath.Join(dir, "server.crt"), serverKey: filepath.Join(dir, "server.key")}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if a.clientKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	template := a.template(pkix.Name{CommonName: "bench"})
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.pool.AddCert(a.cert)
	server := a.template(pkix.Name{CommonName: "broker"})
	server.IPAddresses, server.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, a.cert, a.clientKey.Public(), a.key)
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(a.clientKey)
	if err != nil {
		return nil, err
	}
	for file, block := range map[string]pem.Block{
		a.ca: {Type: "CERTIFICATE", Bytes: der}, a.serverCert: {Type: "CERTIFICATE", Bytes: serverDER}, a.serverKey: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(&block), 0o600); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *authority) template(subject pkix.Name) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// client returns the configuration of a client with a certificate of its own. One goroutine at a time
// may call it.
func (a *authority) client(commonName, unit string) (*tls.Config, error) {
	template := a.template(pkix.Name{CommonName: commonName, OrganizationalUnit: []string{unit}})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.clientKey.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: a.pool, ServerName: "127.0.0.1",
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: a.clientKey}},
	}, nil
}

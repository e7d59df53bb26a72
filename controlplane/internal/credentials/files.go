package credentials

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	clientcmd "k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Access is what a client needs to reach a control plane.
type Access struct {
	// Context names the context, its cluster and (with User) its user.
	Context string
	// User names the user entry; it has no meaning to the server.
	User string
	// Server is the API server's URL.
	Server string
	// CA is the PEM certificate that the server's certificate is checked against.
	CA []byte
	// Client is the certificate the client shows.
	Client Pair
}

// Kubeconfig returns a kubeconfig file with one context, which is current.
func Kubeconfig(a Access) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[a.Context] = &clientcmdapi.Cluster{Server: a.Server, CertificateAuthorityData: a.CA}
	config.AuthInfos[a.User] = &clientcmdapi.AuthInfo{ClientCertificateData: a.Client.Cert, ClientKeyData: a.Client.Key}
	config.Contexts[a.Context] = &clientcmdapi.Context{Cluster: a.Context, AuthInfo: a.User}
	config.CurrentContext = a.Context
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig of context %q: %w", a.Context, err)
	}
	return data, nil
}

// EnsureSigningKey makes the key pair that signs service-account tokens
// (private keyFile, public pubFile) unless keyFile is there already.
func EnsureSigningKey(keyFile, pubFile string) error {
	keyPEM, err := os.ReadFile(keyFile)
	if errors.Is(err, os.ErrNotExist) {
		if _, keyPEM, err = newKey(); err == nil {
			err = WriteFile(keyFile, keyPEM, 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("preparing the service-account key: %w", err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return fmt.Errorf("reading the service-account key in %s: %w", keyFile, err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding the public service-account key: %w", err)
	}
	return WriteFile(pubFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644)
}

// WritePair writes a certificate and its key to dir as name.crt and name.key.
func WritePair(dir, name string, p Pair) error {
	if err := WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644)
}

// WriteFile replaces path with data in one step: a reader sees the old content
// or the new one, never a part, and never with a wider mode than given.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

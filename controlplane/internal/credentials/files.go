package credentials

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	clientcmd "k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/workwire/workwire/pkg/runtime/files"
)

// Access holds the content of a kubeconfig file.
type Access struct {
	// Context is the name of the context and of its cluster.
	Context string
	// User is the name of the user entry; the server does not see it.
	User string
	// Server is the API server's URL.
	Server string
	// CA is the certificate in PEM that verifies the server's certificate.
	CA []byte
	// Client is the client certificate.
	Client Pair
}

// Kubeconfig returns a kubeconfig file with one context, the current one.
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

// EnsureSigningKey creates the private key that signs service-account tokens if file does not exist.
func EnsureSigningKey(file string) error {
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		key, err := keyutil.MakeEllipticPrivateKeyPEM()
		if err == nil {
			err = WriteFile(file, key, 0o600)
		}
		if err != nil {
			return fmt.Errorf("preparing the service-account key: %w", err)
		}
	}
	if _, err := keyutil.PrivateKeyFromFile(file); err != nil {
		return fmt.Errorf("reading the service-account key: %w", err)
	}
	return nil
}

// WritePair writes a certificate and its key to dir as name.crt and name.key.
func WritePair(dir, name string, p Pair) error {
	if err := WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644)
}

// WriteFile atomically replaces the content of path, also if the machine loses its power. A reader never sees a part of data, nor a file
// with more permissions than mode.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	return files.Replace(filepath.Dir(path), files.File{Name: filepath.Base(path), Data: data, Mode: mode})
}

package certificates

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
)

// commandTimeout is how long a program may take for a signature.
const commandTimeout = 10 * time.Second

// CommandAuthority returns the authority whose certificate a PEM file has first, and whose key a program has, such as that of a KMS. For each
// signature, the program is run with the name of the hash (SHA-256, SHA-384 or SHA-512) as its argument and the digest on its standard input. It
// prints the signature as X.509 has it: for ECDSA in DER, for RSA of PKCS #1 v1.5. It may take 10 seconds. It runs in the caller's environment,
// without a shell, and any number of times at once. Signatures of another key are not used. CommandAuthority returns an error if the file
// cannot be used, the program is not there, or the key is neither ECDSA nor RSA.
func CommandAuthority(certFile, program string) (tls.Certificate, error) {
	text, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	chain, err := cert.ParseCertsPEM(text)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", certFile, err)
	}
	if !chain[0].IsCA {
		return tls.Certificate{}, fmt.Errorf("%s: the first certificate is not that of an authority", certFile)
	}
	switch chain[0].PublicKey.(type) {
	case *ecdsa.PublicKey, *rsa.PublicKey:
	default:
		return tls.Certificate{}, fmt.Errorf("%s: the key of the authority is %s: a program signs with ECDSA or RSA only", certFile, chain[0].PublicKeyAlgorithm)
	}
	if program, err = exec.LookPath(program); err != nil {
		return tls.Certificate{}, err
	}
	authority := tls.Certificate{Leaf: chain[0], PrivateKey: commandKey{program, chain[0], commandTimeout}}
	for _, c := range chain {
		authority.Certificate = append(authority.Certificate, c.Raw)
	}
	return authority, nil
}

// commandKey is a key that a program has.
type commandKey struct {
	program string
	cert    *x509.Certificate
	timeout time.Duration
}

// Public returns the key's public half.
func (k commandKey) Public() crypto.PublicKey { return k.cert.PublicKey }

// Sign has the program sign a digest.
func (k commandKey) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), k.timeout)
	defer cancel()
	var signature, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, k.program, opts.HashFunc().String())
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(digest), &signature, &errs, time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("no signature within %s", k.timeout)
	case err == nil && signature.Len() == 0:
		err = errors.New("it printed no signature")
	}
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
		return nil, fmt.Errorf("the program %s for the key of the authority %s: %w: %s", k.program, k.cert.Subject.CommonName, err, cmp.Or(line, "it said nothing"))
	}
	return signature.Bytes(), nil
}

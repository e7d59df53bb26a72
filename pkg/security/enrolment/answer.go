package enrolment

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/wire"
)

// Reason is why a request has no certificate yet, or never gets one.
type Reason string

// The reasons. With the first three the cluster asks again; with the others somebody has to do something.
const (
	Challenged      Reason = "Challenged"      // ask again with the challenge
	WaitForApproval Reason = "WaitForApproval" // nobody has approved the CertificateSigningRequest
	Busy            Reason = "Busy"            // the hub could not decide; ask again

	// Renew is no answer to a request: the hub tells a cluster that another authority issues certificates now. The cluster's name is
	// in the place of the id of the request.
	Renew Reason = "Renew"

	UnknownToken   Reason = "UnknownToken"   // no such token, or not proven
	TokenExpired   Reason = "TokenExpired"   // it has expired
	TokenUsed      Reason = "TokenUsed"      // others have used it up
	NameNotAllowed Reason = "NameNotAllowed" // the token is for other names
	NameTaken      Reason = "NameTaken"      // another cluster has the name
	UnknownDevice  Reason = "UnknownDevice"  // without a token, and its device has not joined
	Revoked        Reason = "Revoked"        // the cluster is not to come back
	AwayTooLong    Reason = "AwayTooLong"    // its certificate expired longer ago than the hub's policy allows
	Denied         Reason = "Denied"         // somebody has denied the CertificateSigningRequest
)

// Again reports whether a cluster that got the reason asks again by itself.
func (r Reason) Again() bool { return slices.Contains([]Reason{Challenged, WaitForApproval, Busy}, r) }

// Answer is what a hub says to a request.
type Answer struct {
	// Request is the id of the request.
	Request string `json:"request"`
	// Reason and Message say why there is no certificate; empty if there is one.
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Challenge is what the next request must have.
	Challenge []byte `json:"challenge,omitempty"`
	// Authority is the key id of the authority that issues certificates now, with the reason [Renew].
	Authority string `json:"authority,omitempty"`
	// Certificate is the chain of the cluster's certificate, Trust the authorities to trust from now on; both in PEM.
	Certificate []byte `json:"certificate,omitempty"`
	Trust       []byte `json:"trust,omitempty"`
}

// Sign returns the event of the answer, signed with the certificate of the hub at the broker.
func (a Answer) Sign(source wire.SourceID, hub tls.Certificate) (cloudevents.Event, error) {
	key, ok := hub.PrivateKey.(crypto.Signer)
	if !ok || len(hub.Certificate) == 0 {
		return cloudevents.Event{}, errors.New("the hub has no certificate to sign answers with")
	}
	var s signed
	var err error
	if s.Content, err = json.Marshal(a); err != nil {
		return cloudevents.Event{}, err
	}
	message, hash := append([]byte(hubContext), s.Content...), crypto.Hash(0)
	if _, is := key.(ed25519.PrivateKey); !is {
		sum := sha256.Sum256(message)
		message, hash = sum[:], crypto.SHA256
	}
	if s.Hub, err = key.Sign(rand.Reader, message, hash); err != nil {
		return cloudevents.Event{}, fmt.Errorf("sign the answer: %w", err)
	}
	s.Chain = hub.Certificate
	return eventOf(a.Request, answerType, string(source), s)
}

// ReadAnswer returns the answer of an event to a request. It returns an error if it is none, answers another request, or was not
// signed by the hub: by a certificate of one of the authorities whose subject is that of the source.
func ReadAnswer(e cloudevents.Event, request string, source wire.SourceID, authorities *x509.CertPool, now time.Time) (Answer, error) {
	s, err := read(e, answerType)
	if err != nil {
		return Answer{}, err
	}
	chain := x509.NewCertPool()
	var hub *x509.Certificate
	for i, der := range s.Chain[:min(len(s.Chain), 5)] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return Answer{}, fmt.Errorf("the certificate of the hub: %w", err)
		}
		if i == 0 {
			hub = cert
		} else {
			chain.AddCert(cert)
		}
	}
	if hub == nil {
		return Answer{}, errors.New("the answer is not signed")
	}
	_, err = hub.Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: chain, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Answer{}, fmt.Errorf("the certificate of the hub: %w", err)
	}
	name := strings.TrimPrefix(hub.Subject.CommonName, "source.")
	if !slices.Contains(hub.Subject.OrganizationalUnit, "sources") || name != string(source) {
		return Answer{}, fmt.Errorf("the answer is signed by %s, who is not the hub %s", hub.Subject, source)
	}
	if err := hub.CheckSignature(algorithmOf(hub.PublicKey), append([]byte(hubContext), s.Content...), s.Hub); err != nil {
		return Answer{}, fmt.Errorf("the signature of the hub: %w", err)
	}
	var a Answer
	if err := json.Unmarshal(s.Content, &a); err != nil {
		return Answer{}, fmt.Errorf("the answer cannot be read: %w", err)
	}
	if a.Request != request {
		return Answer{}, errors.New("the answer is to another request")
	}
	return a, nil
}

func algorithmOf(public crypto.PublicKey) x509.SignatureAlgorithm {
	switch public.(type) {
	case *ecdsa.PublicKey:
		return x509.ECDSAWithSHA256
	case *rsa.PublicKey:
		return x509.SHA256WithRSA
	case ed25519.PublicKey:
		return x509.PureEd25519
	}
	return x509.UnknownSignatureAlgorithm
}

// Check returns an error unless the certificate of the answer is one of the cluster's agent for its key, issued by one of the
// authorities of the answer.
func (a Answer) Check(cluster wire.ClusterName, key *ecdsa.PrivateKey, now time.Time) error {
	trust, chain := x509.NewCertPool(), x509.NewCertPool()
	if !trust.AppendCertsFromPEM(a.Trust) {
		return errors.New("the answer names no authority")
	}
	block, rest := pem.Decode(a.Certificate)
	if block == nil {
		return errors.New("the answer has no certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("the certificate cannot be read: %w", err)
	}
	chain.AppendCertsFromPEM(bytes.TrimSpace(rest))
	_, err = cert.Verify(x509.VerifyOptions{Roots: trust, Intermediates: chain, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("the certificate: %w", err)
	}
	if public, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(key.Public()) {
		return errors.New("the certificate is for another key")
	}
	if cert.Subject.CommonName != string(cluster) || !slices.Equal(cert.Subject.OrganizationalUnit, []string{unit}) {
		return fmt.Errorf("the certificate is for %s", cert.Subject)
	}
	return nil
}

package enrolment

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/wire"
)

// Request is how a cluster asks for a certificate.
type Request struct {
	// ID names the request, and the topic of its answers: 32 hexadecimal digits that nobody can guess.
	ID string `json:"id"`
	// Source is the hub that is asked, so that no other one can be asked with the same text.
	Source wire.SourceID `json:"source"`
	// Cluster is the name to join as.
	Cluster wire.ClusterName `json:"cluster"`
	// Device is the public key of the device, in DER (SubjectPublicKeyInfo).
	Device []byte `json:"device"`
	// CSR is the request of a certificate, in DER; see [NewCSR].
	CSR []byte `json:"csr"`
	// Challenge is that of the hub's last answer; empty at first.
	Challenge []byte `json:"challenge,omitempty"`
	// Token is the id of the token that lets the cluster in; empty if its device has joined before.
	Token string `json:"token,omitempty"`
}

// Bounds of requests, in bytes.
const (
	maxRequest   = 16 << 10
	maxCSR       = 4 << 10
	maxDevice    = 256
	maxChallenge = 128
)

// signed is a request or an answer with its signatures, which are over the bytes of Content.
type signed struct {
	Content []byte   `json:"content"`
	Device  []byte   `json:"device,omitempty"` // of a request
	Token   []byte   `json:"token,omitempty"`  // of a request with one
	Hub     []byte   `json:"hub,omitempty"`    // of an answer
	Chain   [][]byte `json:"chain,omitempty"`  // of an answer: the certificate of the hub, and those up to an authority
}

// The contexts of signatures keep one from counting as another.
const (
	deviceContext = "workwire join request, device\n"
	tokenContext  = "workwire join request, token\n"
	hubContext    = "workwire join answer\n"
)

// Types of the events.
var (
	joins       = wire.DataType{Group: "dev.workwire", Version: "v1alpha1", Resource: "joins"}
	requestType = wire.EventType{Data: joins, Subresource: wire.SubresourceSpec, Action: wire.Create}.String()
	answerType  = wire.EventType{Data: joins, Subresource: wire.SubresourceStatus, Action: wire.Update}.String()
)

// NewID returns an id for a request.
func NewID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// NewKey returns a key, of a device or of a certificate.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// DeviceOf returns the public half of a device key as requests have it.
func DeviceOf(device *ecdsa.PrivateKey) ([]byte, error) {
	return x509.MarshalPKIXPublicKey(device.Public())
}

// HashOf returns the hash by which the hub remembers a device.
func HashOf(device []byte) string {
	sum := sha256.Sum256(device)
	return hex.EncodeToString(sum[:])
}

// unit is the organizational unit of agents, by which brokers know their role.
const unit = "agents"

// NewCSR returns the request of the certificate of a cluster's agent for a key, in DER.
func NewCSR(cluster wire.ClusterName, key *ecdsa.PrivateKey) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: string(cluster), OrganizationalUnit: []string{unit}},
	}, key)
}

// RequestName returns the name of the CertificateSigningRequest of a CSR: the same for the same key.
func RequestName(cluster wire.ClusterName, csr []byte) string {
	sum := sha256.Sum256(csr)
	return fmt.Sprintf("workwire-%s-%s", cluster, hex.EncodeToString(sum[:6]))
}

// CheckCSR returns the parsed request of a certificate of a cluster's agent, and an error if it asks for anything else: another
// subject, other names, extensions, another kind of key.
func CheckCSR(der []byte, cluster wire.ClusterName) (*x509.CertificateRequest, error) {
	if len(der) > maxCSR {
		return nil, fmt.Errorf("the CSR has %d bytes, more than %d", len(der), maxCSR)
	}
	if !validName(cluster) {
		return nil, fmt.Errorf("%.100q is no name of a cluster", cluster)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("the CSR cannot be read: %w", err)
	}
	public, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, errors.New("the key of the CSR is not one of ECDSA P-256")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the CSR is not signed with its key: %w", err)
	}
	names := len(csr.DNSNames) + len(csr.IPAddresses) + len(csr.EmailAddresses) + len(csr.URIs) + len(csr.Extensions)
	if len(csr.Subject.Names) != 2 || csr.Subject.CommonName != string(cluster) || !slices.Equal(csr.Subject.OrganizationalUnit, []string{unit}) || names > 0 {
		return nil, fmt.Errorf("the CSR must ask for the subject CN=%s,OU=%s and nothing else", cluster, unit)
	}
	return csr, nil
}

// Sign returns the event of the request, signed with the device key and, if it is not nil, the token's.
func (r Request) Sign(device *ecdsa.PrivateKey, token ed25519.PrivateKey) (cloudevents.Event, error) {
	var s signed
	var err error
	if s.Content, err = json.Marshal(r); err != nil {
		return cloudevents.Event{}, err
	}
	sum := sha256.Sum256(append([]byte(deviceContext), s.Content...))
	if s.Device, err = ecdsa.SignASN1(rand.Reader, device, sum[:]); err != nil {
		return cloudevents.Event{}, err
	}
	if token != nil {
		s.Token = ed25519.Sign(token, append([]byte(tokenContext), s.Content...))
	}
	return eventOf(r.ID, requestType, string(r.Cluster), s)
}

func eventOf(id, kind, source string, s signed) (cloudevents.Event, error) {
	e := cloudevents.New()
	e.SetID(id)
	e.SetType(kind)
	e.SetSource(source)
	return e, e.SetData(cloudevents.ApplicationJSON, s)
}

// Proven is a request whose sender has the device key that it names.
type Proven struct {
	Request
	// DeviceHash is [HashOf] its device.
	DeviceHash string

	content, token []byte
}

// ReadRequest returns the request of an event to a hub. It returns an error if it is none, exceeds a bound, is not signed by
// its device, or asks for a certificate that no agent has. The token is proven by [Proven.Proves].
func ReadRequest(e cloudevents.Event, source wire.SourceID) (Proven, error) {
	s, err := read(e, requestType)
	if err != nil {
		return Proven{}, err
	}
	p := Proven{content: s.Content, token: s.Token}
	if err := json.Unmarshal(s.Content, &p.Request); err != nil {
		return Proven{}, fmt.Errorf("the request cannot be read: %w", err)
	}
	switch id, err := hex.DecodeString(p.ID); {
	case err != nil || len(id) != 16 || p.ID != hex.EncodeToString(id):
		return Proven{}, errors.New("the id of the request does not have 32 hexadecimal digits")
	case !validName(p.Cluster):
		return Proven{}, fmt.Errorf("%.100q is no name of a cluster", p.Cluster)
	case p.Source != source:
		return Proven{}, fmt.Errorf("the request is to another hub, %.100q", p.Source)
	case len(p.Device) > maxDevice || len(p.Challenge) > maxChallenge || len(p.Token) > 64:
		return Proven{}, errors.New("the request is too long")
	}
	public, err := x509.ParsePKIXPublicKey(p.Device)
	if err != nil {
		return Proven{}, fmt.Errorf("the device key cannot be read: %w", err)
	}
	device, ok := public.(*ecdsa.PublicKey)
	if !ok || device.Curve != elliptic.P256() {
		return Proven{}, errors.New("the device key is not one of ECDSA P-256")
	}
	sum := sha256.Sum256(append([]byte(deviceContext), s.Content...))
	if !ecdsa.VerifyASN1(device, sum[:], s.Device) {
		return Proven{}, errors.New("the request is not signed with the key of its device")
	}
	if _, err := CheckCSR(p.CSR, p.Cluster); err != nil {
		return Proven{}, err
	}
	p.DeviceHash = HashOf(p.Device)
	return p, nil
}

// Proves reports whether the request was signed with the token of a grant.
func (p Proven) Proves(g Grant) bool {
	return len(g.PublicKey) == ed25519.PublicKeySize && ed25519.Verify(g.PublicKey, append([]byte(tokenContext), p.content...), p.token)
}

func read(e cloudevents.Event, kind string) (signed, error) {
	var s signed
	if e.Type() != kind {
		return s, fmt.Errorf("the event has the type %.100q, not %s", e.Type(), kind)
	}
	if len(e.Data()) > maxRequest {
		return s, fmt.Errorf("the event has %d bytes, more than %d", len(e.Data()), maxRequest)
	}
	if err := json.Unmarshal(e.Data(), &s); err != nil {
		return s, fmt.Errorf("the event cannot be read: %w", err)
	}
	return s, nil
}

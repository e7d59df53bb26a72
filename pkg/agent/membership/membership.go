// Package membership keeps a cluster a member of its hub: with a token, it gets the agent's certificate over the broker, and renews it
// ever after (docs/join.md). Everything is in one Secret of the cluster, which has the token at first:
//
//	m, err := membership.Open(ctx, membership.Config{Secrets: clients.CoreV1().Secrets(namespace), Name: "work-agent-join", ...})
//	...
//	if err := m.Join(ctx); err != nil { ... }
//	broker := m.Broker() // the transport configuration, whose certificates are replaced when they are renewed
//	...
//	err = m.Run(ctx)     // renews
package membership

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
)

// Keys of the Secret.
const (
	TokenKey = v1alpha1.MembershipTokenKey // what workctl token create has printed; without its secret half once the cluster has joined

	deviceKey   = "device.key"
	nextKey     = "next.key" // of the certificate that is asked for
	nextRequest = "next.csr"
)

// Secrets reads and writes the Secrets of a namespace. Clients of Kubernetes implement it.
type Secrets interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Secret, error)
	Update(ctx context.Context, secret *corev1.Secret, options metav1.UpdateOptions) (*corev1.Secret, error)
}

// Config configures a [Membership].
type Config struct {
	// Secrets reads and writes the Secret with the name; required.
	Secrets Secrets
	Name    string
	// Cluster is the name to join as; required.
	Cluster wire.ClusterName
	// Connect returns a connection to the broker that nobody else uses, with a client id; required.
	Connect func(broker config.Config, clientID string) (transport.Transport, error)
	// Patience is how long an answer is waited for, at first; default 20 s. It grows up to thirty times of that between attempts.
	Patience time.Duration
	// Logger gets a line for each attempt; default slog.Default().
	Logger *slog.Logger
}

// Membership is that of one cluster. Its methods are safe for concurrent use, but for Join and Run, of which one runs at a time. Run, Refused
// and Transport of a nil Membership, that of an agent whose certificate somebody else renews, do nothing.
type Membership struct {
	cfg Config

	mu     sync.Mutex
	secret *corev1.Secret  // guarded by mu, and never changed
	token  enrolment.Token // guarded by mu: that of secret
	status error           // guarded by mu: why there is no usable certificate

	refused atomic.Int32 // how often the broker has refused the certificate since it last accepted one
	renew   chan renewal // holds one if the certificate is to be renewed before its time
}

// Open returns the membership that a Secret has. It returns an error that says what to do if there is no token that can be used.
func Open(ctx context.Context, cfg Config) (*Membership, error) {
	if err := required.Fields(cfg, "Secrets", "Name", "Cluster", "Connect"); err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.Patience = cmp.Or(cfg.Patience, 20*time.Second)
	m := &Membership{cfg: cfg, status: errors.New("the cluster has not joined yet"), renew: make(chan renewal, 1)}
	return m, m.read(ctx)
}

// read reads the Secret, which somebody may have given another token.
func (m *Membership) read(ctx context.Context) error {
	secret, err := m.cfg.Secrets.Get(ctx, m.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no Secret %s: workctl join %s --token=TOKEN makes it", m.cfg.Name, m.cfg.Cluster)
	}
	if err != nil {
		return fmt.Errorf("read the Secret %s: %w", m.cfg.Name, err)
	}
	token, err := enrolment.ParseToken(string(secret.Data[TokenKey]))
	if err != nil {
		return fmt.Errorf("secret %s, key %s: %w", m.cfg.Name, TokenKey, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.secret, m.token = secret, token
	return nil
}

// held returns the Secret, which must not be changed, and its token.
func (m *Membership) held() (*corev1.Secret, enrolment.Token) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.secret, m.token
}

// Broker returns the transport configuration of the agent. Its certificates are those of the Secret at any time.
func (m *Membership) Broker() config.Config {
	_, token := m.held()
	from := func(key string) config.PEM {
		return config.PEM{Read: func() ([]byte, error) {
			secret, token := m.held()
			if key == corev1.ServiceAccountRootCAKey {
				return trusted(secret, token), nil
			}
			return secret.Data[key], nil
		}}
	}
	return config.Config{
		BrokerHost: token.Broker, HubName: token.HubName, Topics: token.Topics, TLSRequired: true,
		CA: from(corev1.ServiceAccountRootCAKey), ClientCert: from(corev1.TLSCertKey), ClientKey: from(corev1.TLSPrivateKeyKey),
	}
}

// Source is the id of the hub.
func (m *Membership) Source() wire.SourceID {
	_, token := m.held()
	return token.Source
}

// trusted returns the authorities to trust, in PEM: those that the hub named last, and before the cluster has joined those of the token. Later
// they may be ones that the hub trusts no longer.
func trusted(secret *corev1.Secret, token enrolment.Token) []byte {
	bundle := append([]byte(nil), secret.Data[corev1.ServiceAccountRootCAKey]...)
	if len(bundle) > 0 && token.Key() == nil {
		return bundle
	}
	for _, der := range token.Authorities {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return bundle
}

// certificate returns the certificate of a Secret; nil without one that belongs to the cluster and has its key.
func certificate(secret *corev1.Secret, cluster wire.ClusterName) *x509.Certificate {
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil || pair.Leaf == nil || pair.Leaf.Subject.CommonName != string(cluster) {
		return nil
	}
	return pair.Leaf
}

// certificate returns the certificate of the cluster; nil without one.
func (m *Membership) certificate() *x509.Certificate {
	secret, _ := m.held()
	return certificate(secret, m.cfg.Cluster)
}

// valid reports whether the Secret has a certificate that can be used now.
func (m *Membership) valid() bool {
	cert := m.certificate()
	return cert != nil && time.Now().Before(cert.NotAfter)
}

// Ready returns why there is no certificate to connect with; nil if there is one.
func (m *Membership) Ready() error {
	if m.valid() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// Join returns once the cluster has a certificate, with nil, or when ctx ends. Whatever is in its way is logged and tried again: the token may
// be replaced in the Secret.
func (m *Membership) Join(ctx context.Context) error {
	if m.valid() {
		return nil
	}
	m.attempts(ctx)
	return ctx.Err()
}

// Run renews the certificate when two thirds of its life have passed, when another authority issues certificates, and when the broker
// refuses it, until ctx ends; it returns nil then. Of the latter two it hears by [Membership.Transport] and [Membership.Refused].
func (m *Membership) Run(ctx context.Context) error {
	for m != nil && ctx.Err() == nil {
		due := time.Time{}
		if cert := m.certificate(); cert != nil {
			due = renewAt(cert, rand.Float64()) //nolint:gosec // spreads load
		}
		if !m.awaitRenewal(ctx, due) {
			return nil
		}
		m.attempts(ctx)
	}
	return nil
}

// awaitRenewal returns when the certificate is to be renewed, at a time or before; false if ctx has ended.
func (m *Membership) awaitRenewal(ctx context.Context, due time.Time) bool {
	for {
		wait := time.Until(due)
		if wait <= 0 {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(min(wait, time.Hour)) // the clock may be set
		select {
		case <-timer.C:
		case early := <-m.renew:
			timer.Stop()
			if cert := m.certificate(); cert == nil || cert.SerialNumber.Cmp(early.serial) != 0 {
				continue // it was renewed meanwhile
			}
			m.cfg.Logger.Info("the certificate is renewed before its time", "reason", early.reason, "in", early.pause.Round(time.Second))
			return sleep(ctx, early.pause)
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// renewAt returns when a certificate is renewed: at two thirds of its life, and up to a tenth of it later, by chance from 0 to 1, so
// that the certificates of a fleet that joined together are not renewed together.
func renewAt(cert *x509.Certificate, chance float64) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return cert.NotBefore.Add(life*2/3 + time.Duration(chance*float64(life)/10))
}

// attempts asks until there is a new certificate, or ctx ends.
func (m *Membership) attempts(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		if failures > 0 {
			if err := m.read(ctx); err != nil {
				m.cfg.Logger.Warn("cannot read the Secret of the membership", "error", err)
			}
		}
		err := m.ask(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		m.setStatus(err)
		pause := m.pause(failures, err)
		m.cfg.Logger.Warn("no certificate yet", "cluster", m.cfg.Cluster, "error", err, "again", pause.Round(time.Second))
		if !sleep(ctx, pause) {
			return
		}
	}
}

// setStatus notes why there is no certificate.
func (m *Membership) setStatus(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status = err
}

// pause returns how long to wait after a number of failures: refusals need a person, others a moment.
func (m *Membership) pause(failures int, err error) time.Duration {
	base := m.cfg.Patience / 4 << min(failures, 6)
	if refused, ok := errors.AsType[*Refusal](err); ok && !refused.Reason.Again() {
		base = m.cfg.Patience * 6
	}
	return min(base, 30*m.cfg.Patience)/2 + rand.N(min(base, 30*m.cfg.Patience)) //nolint:gosec // spreads load
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Refusal is why the hub gives no certificate.
type Refusal struct {
	Reason  enrolment.Reason
	Message string
}

// Error returns the reason and what the hub says.
func (r *Refusal) Error() string {
	return "the hub gives no certificate: " + string(r.Reason) + ": " + r.Message
}

// keys are what a request is made with.
type keys struct {
	device, next *ecdsa.PrivateKey
	csr          []byte
}

// keys returns the keys in the Secret, and makes those that are not there. They are kept before they are used: an approval may
// come after a restart.
func (m *Membership) keys(ctx context.Context) (k keys, err error) {
	secret, token := m.held()
	changed := secret.DeepCopy()
	if changed.Data == nil {
		changed.Data = map[string][]byte{}
	}
	if k.device, err = keyIn(changed, deviceKey); err != nil {
		return k, err
	}
	if k.next, err = keyIn(changed, nextKey); err != nil {
		return k, err
	}
	k.csr = changed.Data[nextRequest]
	if _, err := enrolment.CheckCSR(k.csr, m.cfg.Cluster); err != nil || secret.Data[nextKey] == nil {
		if k.csr, err = enrolment.NewCSR(m.cfg.Cluster, k.next); err != nil {
			return k, err
		}
		changed.Data[nextRequest] = k.csr
	}
	if len(changed.Data) == len(secret.Data) && string(changed.Data[nextRequest]) == string(secret.Data[nextRequest]) {
		return k, nil
	}
	return k, m.write(ctx, changed, token)
}

// keyIn returns the private key of a Secret, and adds one if there is none.
func keyIn(secret *corev1.Secret, name string) (*ecdsa.PrivateKey, error) {
	if text := secret.Data[name]; text != nil {
		block, _ := pem.Decode(text)
		if block == nil {
			return nil, fmt.Errorf("secret %s, key %s: is no PEM; delete the Secret, and join again", secret.Name, name)
		}
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		key, ok := parsed.(*ecdsa.PrivateKey)
		if err != nil || !ok {
			return nil, fmt.Errorf("secret %s, key %s: is no ECDSA key; delete the Secret, and join again", secret.Name, name)
		}
		return key, nil
	}
	key, err := enrolment.NewKey()
	if err != nil {
		return nil, err
	}
	text, err := encodeKey(key)
	secret.Data[name] = text
	return key, err
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// write replaces the Secret, which has a token, unless somebody else has changed it.
func (m *Membership) write(ctx context.Context, secret *corev1.Secret, token enrolment.Token) error {
	written, err := m.cfg.Secrets.Update(ctx, secret, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the Secret %s: %w", m.cfg.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.secret, m.token = written, token
	return nil
}

// keep stores what the hub has answered.
func (m *Membership) keep(ctx context.Context, a enrolment.Answer, k keys) error {
	if err := a.Check(m.cfg.Cluster, k.next, time.Now()); err != nil {
		return fmt.Errorf("the answer of the hub cannot be used: %w", err)
	}
	secret, token := m.held()
	token = token.Joined()
	changed := secret.DeepCopy()
	text, err := encodeKey(k.next)
	if err != nil {
		return err
	}
	changed.Data[corev1.TLSCertKey], changed.Data[corev1.TLSPrivateKeyKey] = a.Certificate, text
	changed.Data[corev1.ServiceAccountRootCAKey], changed.Data[TokenKey] = a.Trust, []byte(token.String())
	delete(changed.Data, nextKey)
	delete(changed.Data, nextRequest)
	if err := m.write(ctx, changed, token); err != nil {
		return err
	}
	cert := certificate(changed, m.cfg.Cluster)
	m.cfg.Logger.Info("the cluster has a certificate", "cluster", m.cfg.Cluster, "expires", cert.NotAfter, "renewal", renewAt(cert, 0))
	return nil
}

package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/workwire/workwire/pkg/agent/membership"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// simulated is a cluster whose API server is a Secret in memory: many API servers are more than a machine runs.
type simulated struct {
	*joining
	name    wire.ClusterName
	secrets corev1client.SecretInterface
	log     kit.Log
	agent   *member
	stop    func()
}

func (w *joining) simulate(name wire.ClusterName, token string) *simulated {
	return &simulated{joining: w, name: name, secrets: fake.NewSimpleClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "join", Namespace: "default"}, Data: map[string][]byte{membership.TokenKey: []byte(token)},
	}).CoreV1().Secrets("default")}
}

func (s *simulated) open(ctx context.Context) (*membership.Membership, error) {
	return membership.Open(ctx, membership.Config{
		Secrets: s.secrets, Name: "join", Cluster: s.name, Patience: 5 * time.Second, Logger: s.log.Logger(),
		Connect: func(broker config.Config, clientID string) (transport.Transport, error) {
			return mqtt.New(mqtt.Config{Broker: broker, ClientID: clientID, Logger: s.log.Logger()})
		},
	})
}

// join returns once the cluster has a certificate.
func (s *simulated) join(ctx context.Context) error {
	m, err := s.open(ctx)
	if err != nil {
		return err
	}
	return m.Join(ctx)
}

// start has the cluster join, stay joined and connect, until stop.
func (s *simulated) start() {
	s.Helper()
	m, err := s.open(s.Context())
	kit.NoError(s, err)
	var disconnect func()
	s.agent, disconnect = s.connected(s.name, m)
	leave := kit.Run(s, string(s.name), func(ctx context.Context) error {
		if m.Join(ctx) != nil {
			return nil
		}
		return m.Run(ctx)
	})
	s.stop = sync.OnceFunc(func() { leave(); disconnect() })
}

// issuers returns the authorities that issued the certificate of the cluster, and that it trusts, by their common names.
func (s *simulated) issuers() (of string, trusted []string, err error) {
	secret, err := s.secrets.Get(context.Background(), "join", metav1.GetOptions{})
	if err != nil {
		return "", nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return "", nil, err
	}
	certs, err := certificatesOf(secret.Data[corev1.ServiceAccountRootCAKey])
	for _, cert := range certs {
		trusted = append(trusted, cert.Subject.CommonName)
	}
	return pair.Leaf.Issuer.CommonName, trusted, err
}

func certificatesOf(text []byte) (certs []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil && err == nil; block, rest = pem.Decode(rest) {
		var cert *x509.Certificate
		cert, err = x509.ParseCertificate(block.Bytes)
		certs = append(certs, cert)
	}
	return certs, err
}

// authority returns the authority that issues certificates.
func (w *joining) authority() tls.Certificate {
	w.Helper()
	pair, err := tls.LoadX509KeyPair(w.path("authority/ca.crt"), w.path("authority/ca.key"))
	kit.NoError(w, err)
	return pair
}

// forged fails the test unless the broker refuses a new certificate of an authority.
func (w *joining) forged(authority tls.Certificate, name wire.ClusterName) {
	w.Helper()
	key, err := enrolment.NewKey()
	kit.NoError(w, err)
	cert, err := certificates.IssueAgent(authority, string(name), &key.PublicKey, time.Hour, time.Now())
	kit.NoError(w, err)
	block, err := certificatesOf(cert)
	kit.NoError(w, err)
	chain := tls.Certificate{PrivateKey: key}
	for _, c := range block {
		chain.Certificate = append(chain.Certificate, c.Raw)
	}
	conn, err := tls.Dial("tcp", w.Broker.Addr, &tls.Config{
		InsecureSkipVerify:   true, //nolint:gosec // the certificate of the client is tried
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &chain, nil },
	})
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 a refusal comes after the handshake
		_ = conn.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
		w.Errorf("a certificate of the authority that was dropped: %v", err)
	}
}

// rotate takes a step of the replacement of the authority.
func (w *joining) rotate(step certificates.Step) {
	w.Helper()
	report, err := w.manager.Rotate(step)
	kit.NoError(w, err)
	if len(report.Warnings) > 0 {
		w.Errorf("%s: %v", step, report.Warnings)
	}
}

// renewed waits until each of the clusters was seen connected, with a certificate of the current authority. Not all at once: their
// certificates are valid for seconds, which a busy machine takes to renew one.
func (w *joining) renewed(what string, clusters []*simulated) {
	w.Helper()
	current := w.authority().Leaf.Subject.CommonName
	behind := slices.Clone(clusters)
	kit.Eventually(w, what, func() error {
		behind = slices.DeleteFunc(behind, func(s *simulated) bool {
			of, _, err := s.issuers()
			return err == nil && of == current && s.agent.up.Load()
		})
		if len(behind) > 0 {
			return fmt.Errorf("%d of %d are behind", len(behind), len(clusters))
		}
		return nil
	})
}

var replaced = flag.Int("replaced", 20, "number of clusters of TestAuthorityReplaced")

// TestAuthorityReplaced: while the authority is replaced, clusters stay joined, and a fifth of them, who are away for twice the life of their
// certificates, come back without anybody's hand; but for one that is revoked meanwhile. Nobody is admitted by the authority that was dropped.
func TestAuthorityReplaced(t *testing.T) {
	t.Parallel()
	life := max(15*time.Second, time.Duration(*replaced)*300*time.Millisecond)
	w := newJoining(t, func(w *joining) { w.validity = life })
	prefix := kit.Unique("replaced") + "-"
	token := w.token("", func(g *enrolment.Grant) { g.Clusters, g.Prefix, g.Uses = nil, prefix, *replaced })
	t.Cleanup(func() {
		selector := metav1.ListOptions{LabelSelector: v1alpha1.JoinTokenLabelKey + "=" + token.ID()}
		_ = w.clusters.ClusterV1().ManagedClusters().DeleteCollection(context.Background(), metav1.DeleteOptions{}, selector)
	})
	all, text := make([]*simulated, *replaced), token.String()
	ctx, cancel := context.WithTimeout(t.Context(), max(kit.Patience, life))
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(50)
	for i := range all {
		all[i] = w.simulate(wire.ClusterName(fmt.Sprintf("%s%d", prefix, i)), text)
		group.Go(func() error {
			if err := all[i].join(ctx); err != nil {
				return fmt.Errorf("%s does not join: %w: %s", all[i].name, err, all[i].log.String())
			}
			return nil
		})
	}
	kit.NoError(t, group.Wait())
	away, present := all[:*replaced/5], all[*replaced/5:]
	left := time.Now() // those who are away have got their certificates, and do nothing
	for _, s := range present {
		s.start()
	}
	former := w.authority()
	w.rotate(certificates.Trust)
	kit.Eventually(w, "those who are present connect", func() error {
		for _, s := range present {
			if !s.agent.up.Load() {
				return errors.New(string(s.name) + " is not connected")
			}
		}
		return nil
	})
	w.rotate(certificates.Issue)
	w.renewed("those who are present have certificates of the next authority", present)
	issued := time.Since(left)
	w.rotate(certificates.Drop)
	lost, others := away[0], away[1:]
	kit.NoError(t, join.Revoke(t.Context(), w.clusters, string(lost.name), "", time.Now()))

	time.Sleep(time.Until(left.Add(2 * life))) // the time that they are away for is what is tested
	began := time.Now()
	lost.start()
	for _, s := range others {
		s.start()
	}
	w.renewed("those who were away are back", others)
	back := time.Since(began)
	w.renewed("those who were present are still there", present)
	kit.True(t, "the one that was revoked is refused", func() bool { return strings.Contains(lost.log.String(), string(enrolment.Revoked)) })
	if lost.agent.connects.Load() > 0 {
		t.Error("the cluster that was revoked has connected")
	}
	current := w.authority().Leaf.Subject.CommonName
	kit.Eventually(w, "the next authority is the only one that they trust", func() error {
		for _, s := range append(present, others...) {
			if _, trusted, err := s.issuers(); err != nil || !slices.Equal(trusted, []string{current}) {
				return errors.Join(err, fmt.Errorf("%s trusts %v, want %s only", s.name, trusted, current))
			}
		}
		return nil
	})
	w.forged(former, others[0].name)
	t.Logf("%d clusters with certificates for %s; the next authority issued those of the %d that were present within %s; %d that were away for %s were back %s after they had started",
		*replaced, life, len(present), issued.Round(time.Second), len(others), began.Sub(left).Round(time.Second), back.Round(10*time.Millisecond))
}

// TestAuthorityIsTold: clusters whose certificates are valid for long renew them soon when another authority issues certificates: they
// are told, or, if they were away until the former one was dropped, refused.
func TestAuthorityIsTold(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	prefix := kit.Unique("told") + "-"
	token := w.token("", func(g *enrolment.Grant) { g.Clusters, g.Prefix, g.Uses = nil, prefix, 2 })
	present, away := w.simulate(wire.ClusterName(prefix+"present"), token.String()), w.simulate(wire.ClusterName(prefix+"away"), token.String())
	t.Cleanup(func() {
		for _, s := range []*simulated{present, away} {
			_ = w.clusters.ClusterV1().ManagedClusters().Delete(context.Background(), string(s.name), metav1.DeleteOptions{})
		}
	})
	kit.NoError(t, present.join(t.Context()))
	kit.NoError(t, away.join(t.Context()))
	present.start()
	kit.True(t, "the cluster connects", present.agent.up.Load)
	former := w.authority()
	w.rotate(certificates.Trust)
	began := time.Now()
	w.rotate(certificates.Issue)
	w.renewed("the one that is present was told", []*simulated{present})
	told := time.Since(began)
	if n := present.agent.refused.Load(); n > 0 {
		t.Errorf("the broker has refused it %d times", n)
	}
	w.rotate(certificates.Drop)
	began = time.Now()
	away.start()
	w.renewed("the one that was away comes back", []*simulated{away})
	if away.agent.refused.Load() == 0 {
		t.Error("its certificate of the authority that was dropped was not refused")
	}
	w.forged(former, away.name)
	t.Logf("a cluster renewed %s after the next authority issued, one that was away was back after %s", told.Round(10*time.Millisecond), time.Since(began).Round(10*time.Millisecond))
}

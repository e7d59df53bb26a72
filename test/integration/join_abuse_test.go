package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// asker is a device that asks as it likes, unlike an agent: several times at once, with a key of its own each time.
type asker struct {
	*joining
	name      wire.ClusterName
	token     enrolment.Token
	device    *ecdsa.PrivateKey
	public    []byte
	topics    enrolment.Topics
	conn      transport.Transport
	challenge []byte

	mu      sync.Mutex
	answers map[string]chan enrolment.Answer // guarded by mu: by the id of the request
}

// asker returns a device that has a challenge of the hub.
func (w *joining) asker(name wire.ClusterName, token enrolment.Token) *asker {
	w.Helper()
	a := &asker{joining: w, name: name, token: token, answers: map[string]chan enrolment.Answer{}}
	var err error
	a.topics, err = enrolment.TopicsOf(w.Topics, w.Source)
	kit.NoError(w, err)
	a.device, err = enrolment.NewKey()
	kit.NoError(w, err)
	a.public, err = enrolment.DeviceOf(a.device)
	kit.NoError(w, err)
	a.conn, _ = w.joiner("joiner/"+enrolment.NewID(), a.receive, a.topics.Answers("+"))
	kit.Eventually(w, "the hub answers with a challenge", func() error {
		ctx, cancel := context.WithTimeout(w.Context(), time.Second) // it may not listen yet
		defer cancel()
		answer, err := a.ask(ctx, a.csr())
		a.challenge = answer.Challenge
		return err
	})
	return a
}

func (a *asker) receive(_ context.Context, m transport.Message) {
	m.Ack()
	authority, err := os.ReadFile(a.path("hub/ca.crt"))
	trusted := x509.NewCertPool()
	if err != nil || !trusted.AppendCertsFromPEM(authority) {
		a.Errorf("read the authority: %v", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, answers := range a.answers {
		if answer, err := enrolment.ReadAnswer(m.Event, id, a.Source, trusted, time.Now()); err == nil {
			answers <- answer
		}
	}
}

// csr returns the request of a certificate for another key each time.
func (a *asker) csr() []byte {
	key, err := enrolment.NewKey()
	kit.NoError(a, err)
	csr, err := enrolment.NewCSR(a.name, key)
	kit.NoError(a, err)
	return csr
}

// ask sends a request, and returns the first answer to it.
func (a *asker) ask(ctx context.Context, csr []byte) (enrolment.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, kit.Patience)
	defer cancel()
	answers, err := a.send(ctx, csr)
	if err != nil {
		return enrolment.Answer{}, err
	}
	select {
	case answer := <-answers:
		return answer, nil
	case <-ctx.Done():
		return enrolment.Answer{}, fmt.Errorf("the hub does not answer %s: %w", a.name, ctx.Err())
	}
}

// send sends a request, whose answers come through the channel.
func (a *asker) send(ctx context.Context, csr []byte) (<-chan enrolment.Answer, error) {
	r := a.request(csr)
	e, err := r.Sign(a.device, a.token.Key())
	if err != nil {
		return nil, err
	}
	return a.publish(ctx, r.ID, e)
}

func (a *asker) request(csr []byte) enrolment.Request {
	return enrolment.Request{ID: enrolment.NewID(), Source: a.Source, Cluster: a.name, Device: a.public, CSR: csr, Challenge: a.challenge, Token: a.token.ID()}
}

// publish sends the event of a request, whose answers come through the channel.
func (a *asker) publish(ctx context.Context, id string, e cloudevents.Event) (<-chan enrolment.Answer, error) {
	answers := make(chan enrolment.Answer, 8)
	a.mu.Lock()
	a.answers[id] = answers
	a.mu.Unlock()
	if err := a.conn.(transport.Subscriber).Subscribe(ctx, a.topics.Answers(id)); err != nil {
		return nil, err
	}
	return answers, a.conn.Publish(ctx, a.topics.Requests(), e)
}

// noted returns the serial numbers of the certificates that the ManagedCluster has noted.
func (a *asker) noted() map[string]bool {
	cluster, err := a.clusters.ClusterV1().ManagedClusters().Get(a.Context(), string(a.name), metav1.GetOptions{})
	kit.NoError(a, err)
	serials := map[string]bool{}
	for _, issued := range enrolment.ParseIssued(cluster.Annotations[v1alpha1.CertificatesAnnotationKey]) {
		serials[issued.Serial] = true
	}
	return serials
}

func serialOf(t testing.TB, certificate []byte) string {
	certs, err := certificatesOf(certificate)
	kit.NoError(t, err)
	return certs[0].SerialNumber.Text(16)
}

// TestManyCertificatesAtOnce: each certificate that a device gets is noted on its ManagedCluster, so that it can be revoked, and there are no
// more of them than may be, however many are asked for at once.
func TestManyCertificatesAtOnce(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	a := w.asker(name, w.token(name, nil))
	first, err := a.ask(t.Context(), a.csr())
	kit.NoError(t, err)
	got := []string{serialOf(t, first.Certificate)}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(t.Context())
	for range enrolment.MaxCertificates + 10 {
		csr := a.csr()
		group.Go(func() error {
			answers, err := a.send(ctx, csr)
			if err != nil {
				return err
			}
			select { // those beyond the limit get none
			case answer := <-answers:
				if len(answer.Certificate) > 0 {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, serialOf(t, answer.Certificate))
				}
			case <-time.After(10 * time.Second):
			}
			return nil
		})
	}
	kit.NoError(t, group.Wait())
	noted := a.noted()
	for _, serial := range got {
		if !noted[serial] {
			t.Errorf("the certificate %s is not noted", serial)
		}
	}
	if len(got) < 2 || len(got) > enrolment.MaxCertificates {
		t.Errorf("%d certificates, want more than one, and at most %d", len(got), enrolment.MaxCertificates)
	}
}

// TestManyRequestsWait: a device that waits for its approval has not more CertificateSigningRequests than certificates it may have.
func TestManyRequestsWait(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	a := w.asker(name, w.token(name, func(g *enrolment.Grant) { g.Approve = false }))
	var last enrolment.Answer
	for range enrolment.MaxCertificates + 20 {
		var err error
		last, err = a.ask(t.Context(), a.csr())
		kit.NoError(t, err)
	}
	list, err := w.planes.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.ClusterLabelKey + "=" + string(name)})
	kit.NoError(t, err)
	// The informer that counts them may be behind by some.
	if n := len(list.Items); n < enrolment.MaxCertificates || n > enrolment.MaxCertificates+5 || last.Reason != enrolment.Busy {
		t.Errorf("%d CertificateSigningRequests, and the last answer is %+v", n, last)
	}
}

// TestReplacedWhileItAsks: a device gets no certificate once another one has its place, though its request was approved before. The hub has no
// authority: somebody else signs, and takes their time.
func TestReplacedWhileItAsks(t *testing.T) {
	t.Parallel()
	w := newJoining(t, func(w *joining) { w.external = true })
	name := w.Clusters[1]
	former := w.asker(name, w.token(name, nil))
	csr := former.csr()
	answers, err := former.send(t.Context(), csr)
	kit.NoError(t, err)
	open := w.unsigned(name, csr)
	next := w.asker(name, w.token(name, func(g *enrolment.Grant) { g.Replace = true }))
	own := next.csr()
	nextAnswers, err := next.send(t.Context(), own)
	kit.NoError(t, err)
	other := w.unsigned(name, own)
	lost := w.sign(open, name)
	select {
	case answer := <-answers:
		t.Errorf("the former device gets %+v", answer)
	case <-time.After(2 * time.Second):
	}
	kept := w.sign(other, name)
	answer := kit.Receive(t, "the certificate of the device that has the place now", nextAnswers)
	if serialOf(t, answer.Certificate) != kept {
		t.Errorf("the answer is %+v", answer)
	}
	if noted := next.noted(); !noted[kept] || noted[lost] {
		t.Errorf("noted are %v, want %s and not %s", noted, kept, lost)
	}
}

// TestTokenIsUsedOnce: a token that let a device in lets no other one in after a second token has replaced that device.
func TestTokenIsUsedOnce(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	replace := func(g *enrolment.Grant) { g.Replace = true }
	first := w.token(name, replace)
	w.device(name, first).joined()
	w.device(name, w.token(name, replace)).joined()
	w.device(name, first).refused(enrolment.TokenUsed)
}

// TestRequestOfAnotherKey: a CertificateSigningRequest that somebody has made beforehand, of the name that the hub would give, is not approved
// for the device.
func TestRequestOfAnotherKey(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	a := w.asker(name, w.token(name, nil))
	if _, err := a.ask(t.Context(), a.csr()); err != nil { // it has joined: the next request is approved without a token
		t.Fatal(err)
	}
	csr := a.csr()
	requests := w.planes.CertificatesV1().CertificateSigningRequests()
	_, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: enrolment.RequestName(name, csr), Labels: map[string]string{
			v1alpha1.ClusterLabelKey: string(name), v1alpha1.SourceLabelKey: string(w.Source),
		}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: a.csr()}), SignerName: v1alpha1.AgentSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	answer, err := a.ask(t.Context(), csr)
	kit.NoError(t, err)
	made, err := requests.Get(t.Context(), enrolment.RequestName(name, csr), metav1.GetOptions{})
	kit.NoError(t, err)
	if answer.Reason != enrolment.Busy || len(made.Status.Conditions) > 0 {
		t.Errorf("the answer is %+v, and the request of somebody else has %+v", answer, made.Status.Conditions)
	}
}

// unsigned waits for the CertificateSigningRequest of csr that is approved.
func (w *joining) unsigned(name wire.ClusterName, csr []byte) *certificatesv1.CertificateSigningRequest {
	w.Helper()
	var found *certificatesv1.CertificateSigningRequest
	kit.True(w, "a request is approved", func() bool {
		got, err := w.planes.CertificatesV1().CertificateSigningRequests().Get(w.Context(), enrolment.RequestName(name, csr), metav1.GetOptions{})
		found = got
		return err == nil && len(got.Status.Conditions) > 0 && got.Status.Conditions[0].Type == certificatesv1.CertificateApproved
	})
	return found
}

// sign signs a CertificateSigningRequest, and returns the serial number of its certificate.
func (w *joining) sign(csr *certificatesv1.CertificateSigningRequest, name wire.ClusterName) string {
	w.Helper()
	block, _ := pem.Decode(csr.Spec.Request)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	kit.NoError(w, err)
	csr.Status.Certificate, err = certificates.IssueAgent(w.authority(), string(name), parsed.PublicKey.(*ecdsa.PublicKey), time.Hour, time.Now())
	kit.NoError(w, err)
	_, err = w.planes.CertificatesV1().CertificateSigningRequests().UpdateStatus(w.Context(), csr, metav1.UpdateOptions{})
	kit.NoError(w, err)
	return serialOf(w, csr.Status.Certificate)
}

// TestEavesdropper: who has recorded all that went over the broker while a cluster joined, and has the password of joiners, gets nothing by
// sending it again, and nothing by asking with parts of it, though the token has a use left.
func TestEavesdropper(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	token := w.token(name, func(g *enrolment.Grant) { g.Uses, g.Replace = 2, true })
	victim := w.asker(name, token)
	answer := func(a *asker, r enrolment.Request, e cloudevents.Event) enrolment.Answer {
		t.Helper()
		answers, err := a.publish(t.Context(), r.ID, e)
		kit.NoError(t, err)
		return kit.Receive(t, "an answer", answers)
	}
	r := victim.request(victim.csr())
	recorded, err := r.Sign(victim.device, token.Key())
	kit.NoError(t, err)
	given := answer(victim, r, recorded)
	noted := victim.noted()
	if !noted[serialOf(t, given.Certificate)] {
		t.Fatalf("not joined: %+v", given)
	}

	unknown, _, err := join.TokenOf(w.broker(), "", joinerUser, "public")
	kit.NoError(t, err)
	thief := w.asker(name, unknown)
	for range 3 {
		if again := answer(thief, r, recorded); again.Certificate != nil && serialOf(t, again.Certificate) != serialOf(t, given.Certificate) {
			t.Errorf("the recorded request gets another certificate: %+v", again)
		}
	}
	own := thief.request(thief.csr())
	own.Token, own.Challenge = token.ID(), r.Challenge
	signed, err := own.Sign(thief.device, unknown.Key())
	kit.NoError(t, err)
	if got := answer(thief, own, signed); got.Certificate != nil || got.Challenge == nil {
		t.Errorf("another device with the recorded challenge gets %+v, want a challenge of its own", got)
	}
	own.ID, own.Challenge = enrolment.NewID(), thief.challenge
	signed, err = own.Sign(thief.device, unknown.Key())
	kit.NoError(t, err)
	if got := answer(thief, own, signed); got.Certificate != nil || got.Reason != enrolment.UnknownToken {
		t.Errorf("another device with the id of the token gets %+v", got)
	}
	if now := victim.noted(); !maps.Equal(now, noted) {
		t.Errorf("certificates are %v, and were %v", now, noted)
	}
}

package membership

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents",
	SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
}

// rig is a cluster that has joined, with a token that trusts one more authority, and what the hub signs with.
type rig struct {
	*testing.T
	*Membership
	hub, cluster, authority tls.Certificate
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	list, err := certificates.Parse([]byte("certificates: [{name: hub1, role: source}, {name: other, role: source}, {name: c1, role: agent}]"))
	kit.NoError(t, err)
	manager, err := certificates.New(certificates.ManagerConfig{Config: list, Dir: dir})
	kit.NoError(t, err)
	_, err = manager.Ensure()
	kit.NoError(t, err)
	load := func(cert, key string) tls.Certificate {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, cert), filepath.Join(dir, key))
		kit.NoError(t, err)
		return pair
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		kit.NoError(t, err)
		return data
	}
	r := &rig{T: t, hub: load("hub1/tls.crt", "hub1/tls.key"), cluster: load("c1/tls.crt", "c1/tls.key"), authority: load("authority/ca.crt", "authority/ca.key")}
	token, _, err := enrolment.New(enrolment.Token{
		Broker: "broker:1", Topics: topics, Source: "hub1", Username: "joiner", Password: "x", Authorities: [][]byte{load("other/tls.crt", "other/tls.key").Certificate[0]},
	})
	kit.NoError(t, err)
	secrets := fake.NewSimpleClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "join", Namespace: "default"}, Data: map[string][]byte{
		TokenKey: []byte(token.Joined().String()), corev1.TLSCertKey: read("c1/tls.crt"), corev1.TLSPrivateKeyKey: read("c1/tls.key"), corev1.ServiceAccountRootCAKey: read("c1/ca.crt"),
	}}).CoreV1().Secrets("default")
	r.Membership, err = Open(t.Context(), Config{
		Secrets: secrets, Name: "join", Cluster: "c1", Patience: time.Minute,
		Connect: func(config.Config, string) (transport.Transport, error) { panic("nobody asks") },
	})
	kit.NoError(t, err)
	return r
}

// tell passes a message to the cluster as it arrives over its connection, and reports whether it is to renew.
func (r *rig) tell(answer enrolment.Answer, hub tls.Certificate) (renew bool) {
	r.Helper()
	event, err := answer.Sign("hub1", hub)
	kit.NoError(r, err)
	acknowledged := false
	kit.NoError(r, r.Transport(arriving{{Topic: "sources/hub1/joinanswers/c1", Event: event, Ack: func() { acknowledged = true }}}).Run(r.Context(), transport.Handler{
		Received: func(context.Context, transport.Message) { r.Error("the agent gets what is for its membership") },
	}))
	if !acknowledged {
		r.Error("the message is not acknowledged")
	}
	select {
	case <-r.renew:
		return true
	default:
		return false
	}
}

// arriving is a transport by which messages arrive.
type arriving []transport.Message

func (a arriving) Run(ctx context.Context, h transport.Handler) error {
	for _, m := range a {
		if slices.Contains(h.Subscriptions, m.Topic) {
			h.Received(ctx, m)
		}
	}
	h.Connected(ctx, transport.Connection{})
	return nil
}

func (arriving) Publish(context.Context, string, cloudevents.Event) error { return nil }
func (arriving) Limit() int                                               { return 0 }

// TestTold: a cluster renews when its hub says that another authority issues certificates, and by no other message.
func TestTold(t *testing.T) {
	r := newRig(t)
	say := func(change func(*enrolment.Answer)) enrolment.Answer {
		a := enrolment.Answer{Request: "c1", Reason: enrolment.Renew, Authority: "0123"}
		change(&a)
		return a
	}
	if !r.tell(say(func(*enrolment.Answer) {}), r.hub) {
		t.Error("the cluster does not renew")
	}
	for what, a := range map[string]enrolment.Answer{
		"its authority":   say(func(a *enrolment.Answer) { a.Authority = enrolment.AuthorityOf(r.cluster.Leaf) }),
		"another cluster": say(func(a *enrolment.Answer) { a.Request = "c2" }),
		"another reason":  say(func(a *enrolment.Answer) { a.Reason = enrolment.Revoked }),
	} {
		if r.tell(a, r.hub) {
			t.Errorf("%s: the cluster renews", what)
		}
	}
	if r.tell(say(func(*enrolment.Answer) {}), r.cluster) {
		t.Error("signed by another cluster: the cluster renews")
	}
}

// TestRefused: a cluster whose certificate is refused asks as a joiner until it is accepted, after pauses of an hour at most.
func TestRefused(t *testing.T) {
	r := newRig(t)
	if user := r.identity().Username; user != "" {
		t.Errorf("it asks as %s, although it has a certificate", user)
	}
	for n := range 40 {
		r.Refused()
		if early := <-r.renew; early.pause < 0 || early.pause > min(time.Minute<<min(n, 10), maxRefusalPause) || early.serial.Cmp(r.cluster.Leaf.SerialNumber) != 0 {
			t.Errorf("refused %d times: %+v", n+1, early)
		}
	}
	if user := r.identity().Username; user != "joiner" {
		t.Errorf("refused, it asks as %q", user)
	}
	kit.NoError(t, r.Transport(arriving{}).Run(t.Context(), transport.Handler{Received: func(context.Context, transport.Message) {}}))
	if user := r.identity().Username; user != "" {
		t.Errorf("accepted again, it asks as %s", user)
	}
}

// authorities returns the names of those that the cluster trusts.
func (r *rig) authorities() (names []string) {
	r.Helper()
	certs, err := r.Broker().Certificates()
	kit.NoError(r, err)
	for block, rest := pem.Decode(certs.CA); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		kit.NoError(r, err)
		names = append(names, cert.Subject.CommonName)
	}
	return names
}

// seed gives the cluster another token that has its key.
func (r *rig) seed() {
	r.Helper()
	seeded, _, err := enrolment.New(r.token)
	kit.NoError(r, err)
	r.token = seeded
}

// TestTrusted: a cluster that has joined trusts what its hub named last, and not what its token had.
func TestTrusted(t *testing.T) {
	r := newRig(t)
	if got, want := r.authorities(), []string{r.authority.Leaf.Subject.CommonName}; !slices.Equal(got, want) {
		t.Errorf("it trusts %v, want %v", got, want)
	}
	// Somebody gives it another token, whose authority may be a newer one.
	r.seed()
	if got, want := r.authorities(), []string{r.authority.Leaf.Subject.CommonName, "other"}; !slices.Equal(got, want) {
		t.Errorf("with another token it trusts %v, want %v", got, want)
	}
}

// TestJoinedForgetsTheToken: an agent that joins trusts what its hub names and no longer what the token had, from then on and not only
// after a restart, and does not use the token again.
func TestJoinedForgetsTheToken(t *testing.T) {
	r := newRig(t)
	r.seed()
	key, ok := r.cluster.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the key is %T", r.cluster.PrivateKey)
	}
	secret, _ := r.held()
	answer := enrolment.Answer{Certificate: secret.Data[corev1.TLSCertKey], Trust: secret.Data[corev1.ServiceAccountRootCAKey]}
	kit.NoError(t, r.keep(t.Context(), answer, keys{next: key}))
	if got, want := r.authorities(), []string{r.authority.Leaf.Subject.CommonName}; !slices.Equal(got, want) {
		t.Errorf("it trusts %v, want %v", got, want)
	}
	if _, token := r.held(); token.Key() != nil {
		t.Error("it has the key of the token")
	}
}

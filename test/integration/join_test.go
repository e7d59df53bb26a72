package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/agent/membership"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/ctl/forget"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mosquittokit"
	"github.com/workwire/workwire/test/kit/rabbitmqkit"
	"github.com/workwire/workwire/test/kit/world"
)

// joining is a world with a hub that lets clusters join: its broker has certificates, and none for agents.
type joining struct {
	*secured
	hub      *world.Hub
	planes   *kubernetes.Clientset // of the hub
	clusters versioned.Interface
	validity time.Duration
	rejoin   time.Duration
	external bool   // somebody else signs
	program  string // has the key of the authority
	start    func(*joining) *brokertest.Running
	limits   limits.Config
	joiners  string // address of the broker for joiners; "": that of all
}

// joinerUser is the joiner's user name, as Mosquitto's rules have it.
const joinerUser = "joiner.any"

// joiningBrokers start the brokers that let clusters join.
var joiningBrokers = map[string]func(*joining) *brokertest.Running{
	"work-broker": func(w *joining) *brokertest.Running {
		return brokertest.Start(w, broker.Config{
			Listeners: []broker.Listener{{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{
				CertFile: w.path("broker/tls.crt"), KeyFile: w.path("broker/tls.key"), ClientCAFile: w.path("broker/ca.crt"), CRLFile: w.path("broker/ca.crl"),
			}}},
			Certificates: []broker.Certificate{{CommonName: "source." + string(w.Source), Role: acl.Source, ID: string(w.Source)}},
			Users:        w.namedUsers()[:1],
			Limits:       w.limits,
		})
	},
	"mosquitto": func(w *joining) *brokertest.Running {
		b := brokertest.StartMosquittoWith(w, mosquittokit.Config{Users: w.namedUsers(), TLS: &mosquittokit.TLS{
			CertFile: w.path("broker/tls.crt"), KeyFile: w.path("broker/tls.key"), ClientCAFile: w.path("broker/ca.crt"), CRLFile: w.path("broker/ca.crl"),
		}})
		w.joiners = b.JoinersAddr
		return b
	},
	"rabbitmq": func(w *joining) *brokertest.Running {
		c := brokertest.StartRabbitMQ(w, rabbitmqkit.Config{Users: w.namedUsers(), TLS: &rabbitmqkit.TLS{
			CertFile: w.path("broker/tls.crt"), KeyFile: w.path("broker/tls.key"), ClientCAFile: w.path("broker/ca.crt"),
		}})
		return &brokertest.Running{Addr: c.Addr}
	},
}

// onJoiningBrokers runs a test with each broker that lets clusters join.
func onJoiningBrokers(t *testing.T, change func(*joining), test func(t *testing.T, w *joining)) {
	t.Parallel()
	for name, start := range joiningBrokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newJoining(t, func(w *joining) {
				w.start = start
				if change != nil {
					change(w)
				}
			}))
		})
	}
}

// namedUsers returns the joiner, the hub and a cluster, as the rules of Mosquitto and RabbitMQ name them.
func (w *joining) namedUsers() []broker.User {
	return []broker.User{
		{Username: joinerUser, ID: "any", Password: "public", Role: acl.Joiner},
		{Username: "source." + string(w.Source), ID: string(w.Source), Role: acl.Source},
		{Username: w.cluster(), Role: acl.Agent},
	}
}

func newJoining(t *testing.T, change func(*joining)) *joining {
	t.Helper()
	w := &joining{secured: &secured{World: newWorld(t), dir: t.TempDir()}, validity: time.Hour, rejoin: time.Hour, start: joiningBrokers["work-broker"]}
	w.configure()
	if change != nil {
		change(w)
	}
	w.planes, w.clusters = kubernetes.NewForConfigOrDie(w.Hub.REST()), versioned.NewForConfigOrDie(w.Hub.REST())
	w.Broker = w.start(w)
	w.startHub()
	return w
}

// broker returns the transport configuration of the hub.
func (w *joining) broker() config.Config {
	return config.Config{
		BrokerHost: w.Broker.Addr, Topics: w.Topics, CA: config.PEM{File: w.path("hub/ca.crt")},
		ClientCert: config.PEM{File: w.path("hub/tls.crt")}, ClientKey: config.PEM{File: w.path("hub/tls.key")},
	}
}

func (w *joining) connect(broker config.Config, clientID string) (transport.Transport, error) {
	return mqtt.New(mqtt.Config{Broker: broker, ClientID: clientID, Logger: kit.Logger(w).With("client", clientID)})
}

func (w *joining) startHub() {
	w.Helper()
	connect := func(id string) transport.Transport {
		t, err := w.connect(w.broker(), string(w.Source)+id)
		kit.NoError(w, err)
		return t
	}
	w.hub = w.StartHub(func(c *hub.Config) {
		c.Transport = connect("-hub")
		c.Joining = &hub.Joining{
			Transport: connect("-hub-joins"), Namespace: "default", Validity: w.validity, Rejoin: w.rejoin,
			Certificate: func() (tls.Certificate, error) {
				return tls.LoadX509KeyPair(w.path("hub/tls.crt"), w.path("hub/tls.key"))
			},
			Trust: func() ([]byte, error) { return os.ReadFile(w.path("hub/ca.crt")) },
			Authority: func() (tls.Certificate, error) {
				return tls.LoadX509KeyPair(w.path("authority/ca.crt"), w.path("authority/ca.key"))
			},
		}
		if w.program != "" {
			c.Joining.AuthorityElsewhere = true
			c.Joining.Authority = func() (tls.Certificate, error) {
				return certificates.CommandAuthority(w.path("authority/ca.crt"), w.program)
			}
		}
		if w.external {
			c.Joining.Authority, c.Joining.SignerName = nil, "clusterissuers.cert-manager.io/fleet"
		}
	})
}

// joiner returns a connection as the user joiner, which receives with received and may subscribe to filters, and what ends it.
func (w *joining) joiner(clientID string, received func(context.Context, transport.Message), filters ...string) (transport.Transport, func()) {
	w.Helper()
	tr, err := w.connect(config.Config{BrokerHost: w.Broker.Addr, CA: w.broker().CA, Username: joinerUser, Password: "public"}, clientID)
	kit.NoError(w, err)
	connected := make(chan struct{})
	connect := sync.OnceFunc(func() { close(connected) })
	stop := kit.Run(w, clientID, func(ctx context.Context) error {
		return tr.Run(ctx, transport.Handler{
			Optional: filters, Received: received, Connected: func(context.Context, transport.Connection) { connect() },
		})
	})
	kit.Receive(w, clientID+" connects", connected)
	return tr, stop
}

func ignore(context.Context, transport.Message) {}

// token makes a token for a name.
func (w *joining) token(name wire.ClusterName, change func(*enrolment.Grant)) enrolment.Token {
	w.Helper()
	address := ""
	if w.joiners != "" {
		address = w.Broker.Addr + "," + w.joiners
	}
	token, grant, err := join.TokenOf(w.broker(), address, joinerUser, "public")
	kit.NoError(w, err)
	grant.Clusters, grant.Uses, grant.Expires, grant.Approve = []wire.ClusterName{name}, 1, time.Now().Add(time.Hour), true
	if change != nil {
		change(&grant)
	}
	kit.NoError(w, join.CreateToken(w.Context(), w.planes.CoreV1().Secrets("default"), grant, time.Now()))
	w.Cleanup(func() {
		_ = join.DeleteToken(context.Background(), w.planes.CoreV1().Secrets("default"), grant.ID())
		_ = w.clusters.ClusterV1().ManagedClusters().Delete(context.Background(), string(name), metav1.DeleteOptions{})
	})
	return token
}

// device is a cluster that wants to join: its Secret.
type device struct {
	*joining
	name   wire.ClusterName
	secret string
	log    *kit.Log
}

func (w *joining) device(name wire.ClusterName, token enrolment.Token) *device {
	w.Helper()
	d := &device{joining: w, name: name, secret: kit.Unique("join"), log: &kit.Log{}}
	_, err := d.secrets().CoreV1().Secrets(w.Targets[1]).Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: d.secret}, Data: map[string][]byte{membership.TokenKey: []byte(token.String())},
	}, metav1.CreateOptions{})
	kit.NoError(w, err)
	return d
}

func (d *device) secrets() *kubernetes.Clientset {
	return kubernetes.NewForConfigOrDie(d.Spokes[1].REST())
}

// open returns the membership of the device.
func (d *device) open() *membership.Membership {
	d.Helper()
	m, err := membership.Open(d.Context(), membership.Config{
		Secrets: d.secrets().CoreV1().Secrets(d.Targets[1]), Name: d.secret, Cluster: d.name, Connect: d.connect, Patience: 2 * time.Second, Logger: d.log.Logger(),
	})
	kit.NoError(d, err)
	return m
}

// joined returns the membership once the cluster has a certificate.
func (d *device) joined() *membership.Membership {
	d.Helper()
	m := d.open()
	ctx, end := context.WithTimeout(d.Context(), time.Minute)
	defer end()
	if err := m.Join(ctx); err != nil {
		d.Fatalf("not joined: %v\n%s", m.Ready(), d.log.String())
	}
	return m
}

// refused waits until the hub has refused the device, for a reason.
func (d *device) refused(reason enrolment.Reason) {
	d.Helper()
	m := d.open()
	ctx, end := context.WithCancel(d.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- m.Join(ctx) }()
	kit.True(d, string(reason)+": "+d.log.String(), func() bool { return strings.Contains(m.Ready().Error(), string(reason)) })
	end()
	<-stopped
}

// TestJoin: a cluster with nothing but a token gets its certificate, is accepted, and gets works.
func TestJoin(t *testing.T) {
	onJoiningBrokers(t, nil, testJoin)
}

func testJoin(t *testing.T, w *joining) {
	name := w.Clusters[1]
	d := w.device(name, w.token(name, func(g *enrolment.Grant) { g.Labels = map[string]string{"region": "north"} }))
	m := d.joined()
	cluster, err := w.clusters.ClusterV1().ManagedClusters().Get(t.Context(), string(name), metav1.GetOptions{})
	kit.NoError(t, err)
	if !cluster.Spec.HubAcceptsClient || cluster.Labels["region"] != "north" || cluster.Annotations[v1alpha1.DeviceAnnotationKey] == "" {
		t.Errorf("the ManagedCluster is %+v", cluster)
	}
	tr, err := w.connect(m.Broker(), string(name)+"-agent")
	kit.NoError(t, err)
	w.StartAgent(1, func(c *agent.Config) { c.Transport, c.Topics = tr, m.Broker().Topics })
	w.Create(w.Works(1), w.Work(1, "web", "1", "a"))
	w.Applied(w.Works(1), "web")

	secret, err := d.secrets().CoreV1().Secrets(w.Targets[1]).Get(t.Context(), d.secret, metav1.GetOptions{})
	kit.NoError(t, err)
	if kept, err := enrolment.ParseToken(string(secret.Data[membership.TokenKey])); err != nil || kept.Key() != nil {
		t.Errorf("%v: the cluster still has the secret of its token", err)
	}
	if used, err := join.JoinedWith(t.Context(), w.clusters); err != nil || !slices.Equal(used[cluster.Labels[v1alpha1.JoinTokenLabelKey]], []string{string(name)}) {
		t.Errorf("%v: the hub has not noted who used the token: %v", err, used)
	}
	d.joined() // again, with what there is: nobody is asked
}

// TestJoinByApproval: without a token that approves, somebody does, while the hub or the agent may restart.
func TestJoinByApproval(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	d := w.device(name, w.token(name, func(g *enrolment.Grant) { g.Approve = false }))
	d.refused(enrolment.WaitForApproval)
	w.hub.Stop()
	w.startHub()
	d.refused(enrolment.WaitForApproval)
	requests := w.planes.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.ClusterLabelKey + "=" + string(name)})
	kit.NoError(t, err)
	if len(list.Items) != 1 {
		t.Fatalf("%d CertificateSigningRequests, want the one that was asked for twice", len(list.Items))
	}
	cluster, err := w.clusters.ClusterV1().ManagedClusters().Get(t.Context(), string(name), metav1.GetOptions{})
	kit.NoError(t, err)
	if cluster.Spec.HubAcceptsClient {
		t.Error("the cluster is accepted before it was approved")
	}
	kit.True(t, "the ManagedCluster says that somebody has to approve it", func() bool {
		cluster, err := w.clusters.ClusterV1().ManagedClusters().Get(t.Context(), string(name), metav1.GetOptions{})
		available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
		return err == nil && available != nil && strings.Contains(available.Message, "kubectl certificate approve")
	})
	csr := list.Items[0]
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue})
	_, err = requests.UpdateApproval(t.Context(), csr.Name, &csr, metav1.UpdateOptions{})
	kit.NoError(t, err)
	d.joined()
	cluster, err = w.clusters.ClusterV1().ManagedClusters().Get(t.Context(), string(name), metav1.GetOptions{})
	kit.NoError(t, err)
	if !cluster.Spec.HubAcceptsClient {
		t.Error("the cluster was approved and is not accepted")
	}
}

// TestJoinRefused: who was not let in does not get in.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	token := w.token(name, nil)
	w.device("another", token).refused(enrolment.NameNotAllowed)
	guessed, _, err := join.TokenOf(w.broker(), "", joinerUser, "public")
	kit.NoError(t, err)
	w.device(name, guessed).refused(enrolment.UnknownToken)
	w.device(name, token.Joined()).refused(enrolment.UnknownDevice)
	var expires time.Time
	expired := w.token(name, func(g *enrolment.Grant) { g.Expires = time.Now().Add(time.Second); expires = g.Expires })
	kit.True(t, "the token expires", func() bool { return time.Now().After(expires) })
	w.device(name, expired).refused(enrolment.TokenExpired)
	w.device(name, token).joined()
	w.device(name, token).refused(enrolment.TokenUsed)
	w.device(name, w.token(name, nil)).refused(enrolment.NameTaken)
	kit.NoError(t, join.Revoke(t.Context(), w.clusters, string(name), "lost", time.Now()))
	w.device(name, w.token(name, func(g *enrolment.Grant) { g.Replace = true })).refused(enrolment.Revoked)
}

// TestSignCommand: a program that has the key of the authority signs; a cluster hears that it does not, and joins when it does.
func TestSignCommand(t *testing.T) {
	t.Parallel()
	kit.OpenSSL.Require(t)
	w := newJoining(t, func(w *joining) {
		w.program = w.path("sign")
		kit.NoError(t, os.WriteFile(w.program, []byte("#!/bin/sh\necho 'the KMS is away' >&2\nexit 1\n"), 0o700))
	})
	name := w.Clusters[1]
	d := w.device(name, w.token(name, nil))
	d.refused(enrolment.Busy)
	key := w.path("authority/ca.key")
	text := fmt.Sprintf("#!/bin/sh\nexec openssl pkeyutl -sign -inkey %s -pkeyopt \"digest:$(echo \"$1\" | tr -d -)\"\n", key)
	kit.NoError(t, os.WriteFile(w.program+".new", []byte(text), 0o700))
	kit.NoError(t, os.Rename(w.program+".new", w.program))
	member, _ := w.connected(name, d.joined())
	kit.True(t, "the cluster connects", member.up.Load)
}

// TestForgetJoined: a cluster that has joined and was forgotten gets no certificate any more, with its device key or a token that
// named only it; with a token for its name it is a new cluster.
func TestForgetJoined(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	name := w.Clusters[1]
	member, _ := w.connected(name, w.device(name, w.token(name, nil)).joined())
	kit.True(t, "the cluster connects", member.up.Load)
	unused := w.token(name, func(g *enrolment.Grant) { g.Replace = true })
	others := w.token("", func(g *enrolment.Grant) { g.Clusters = []wire.ClusterName{name, "other"}; g.Uses = 2 })
	requests := func() int {
		list, err := w.planes.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.ClusterLabelKey + "=" + string(name)})
		kit.NoError(t, err)
		return len(list.Items)
	}
	if requests() == 0 {
		t.Error("there is no CertificateSigningRequest to end")
	}
	reader, err := fleet.NewReader(w.Hub.REST())
	kit.NoError(t, err)
	find := func() *forget.Found {
		found, err := forget.Find(t.Context(), reader, string(name), "default")
		kit.NoError(t, err)
		return found
	}
	left, err := find().End(t.Context(), kit.Patience, func(string) {})
	if found := find(); err != nil || len(left) > 0 || !found.NothingLeft() || found.Namespace == nil || requests() > 0 {
		t.Errorf("%v, left: %v, %+v, and %d requests", err, left, found, requests())
	}
	kit.True(t, "its connection ends", func() bool { return !member.up.Load() })
	member.refusedAnew(t, "without a ManagedCluster")
	w.device(name, unused.Joined()).refused(enrolment.UnknownDevice)
	w.device(name, unused).refused(enrolment.UnknownToken)
	if _, err := w.clusters.ClusterV1().ManagedClusters().Get(t.Context(), string(name), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a ManagedCluster is there again: %v", err)
	}
	w.device(name, others).joined()
}

// TestJoinerMayOnlyAsk: with the joining identity, whose password every token has, nobody reads specs, requests, or answers to others.
func TestJoinerMayOnlyAsk(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	for _, filter := range []string{
		"sources/+/clusters/+/sourceevents", "sources/+/joinanswers/+", "sources/" + string(w.Source) + "/joinrequests", "clusters/+/agentbroadcast", "#",
	} {
		tr, stop := w.joiner("curious", ignore, filter)
		if err := tr.(transport.Subscriber).Subscribe(t.Context(), filter); err == nil {
			t.Errorf("a joiner may subscribe to %s", filter)
		}
		stop()
	}
}

// TestStayJoined: certificates are renewed, and a device whose certificate has expired comes back, without anybody's hand.
func TestStayJoined(t *testing.T) {
	onJoiningBrokers(t, func(w *joining) { w.validity = 8 * time.Second }, testStayJoined)
}

func testStayJoined(t *testing.T, w *joining) {
	name := w.Clusters[1]
	d := w.device(name, w.token(name, nil))
	m := d.joined()
	serial := func() string {
		certs, err := m.Broker().Certificates()
		kit.NoError(t, err)
		pair, err := tls.X509KeyPair(certs.ClientCert, certs.ClientKey)
		kit.NoError(t, err)
		return pair.Leaf.SerialNumber.String()
	}
	first := serial()
	stop := kit.Run(t, "membership", m.Run)
	kit.True(t, "the certificate is renewed", func() bool { return serial() != first })
	stop()
	kit.True(t, "the certificate has expired", func() bool { return m.Ready() != nil })
	d.joined()
}

// TestAwayTooLong: a device whose certificate expired longer ago than the hub lets it come back is refused, and joins with a token for its name.
func TestAwayTooLong(t *testing.T) {
	t.Parallel()
	w := newJoining(t, func(w *joining) { w.validity, w.rejoin = 3*time.Second, time.Second })
	name := w.Clusters[1]
	d := w.device(name, w.token(name, nil))
	certs, err := d.joined().Broker().Certificates()
	kit.NoError(t, err)
	pair, err := tls.X509KeyPair(certs.ClientCert, certs.ClientKey)
	kit.NoError(t, err)
	kit.True(t, "its certificate expired more than a second ago", func() bool { return time.Since(pair.Leaf.NotAfter) > 2*time.Second })
	d.refused(enrolment.AwayTooLong)
	w.device(name, w.token(name, func(g *enrolment.Grant) { g.Replace = true })).joined()
}

// TestBrokerMoves: a cluster that has joined goes to another address of the broker with another token for its name, in the place of the one in its
// Secret: it stays the same device, and asks with the next renewal.
func TestBrokerMoves(t *testing.T) {
	t.Parallel()
	w := newJoining(t, func(w *joining) { w.validity = 8 * time.Second })
	name := w.Clusters[1]
	d := w.device(name, w.token(name, nil))
	former := d.joined().Broker()
	moved := w.token(name, nil)
	moved.Broker, moved.HubName = "127.0.0.1:1,"+w.Broker.Addr, former.BrokerHost
	secrets := d.secrets().CoreV1().Secrets(w.Targets[1])
	_, err := secrets.Patch(t.Context(), d.secret, types.MergePatchType, fmt.Appendf(nil, `{"stringData":{%q:%q}}`, membership.TokenKey, moved.String()), metav1.PatchOptions{})
	kit.NoError(t, err)

	m := d.joined() // the agent starts again
	if b := m.Broker(); b.BrokerHost != moved.Broker || b.HubName != former.BrokerHost {
		t.Errorf("the agent goes to %s as of %q", b.BrokerHost, b.HubName)
	}
	member, _ := w.connected(name, m)
	kit.True(t, "it connects at the other address", member.up.Load)
	secret := func() *corev1.Secret {
		secret, err := secrets.Get(t.Context(), d.secret, metav1.GetOptions{})
		kit.NoError(t, err)
		return secret
	}
	before := secret()
	kit.Run(t, "membership", m.Run)
	kit.True(t, "it renews its certificate there", func() bool { return !slices.Equal(secret().Data[corev1.TLSCertKey], before.Data[corev1.TLSCertKey]) })
	after := secret()
	if token, err := enrolment.ParseToken(string(after.Data[membership.TokenKey])); err != nil || token.Key() != nil || token.Broker != moved.Broker {
		t.Errorf("%v: the Secret has the token %+v", err, token)
	}
	if !slices.Equal(after.Data["device.key"], before.Data["device.key"]) {
		t.Error("it is another device")
	}
}

var joins = flag.Int("joins", 100, "number of clusters of TestManyJoin")

// TestCertificateUnheard: a cluster that could not keep its certificate before that expired gets another one for the same request.
func TestCertificateUnheard(t *testing.T) {
	t.Parallel()
	w := newJoining(t, func(w *joining) { w.validity = 2 * time.Second })
	s := w.simulate(w.Clusters[1], w.token(w.Clusters[1], nil).String())
	failing := &failing{SecretInterface: s.secrets}
	s.secrets = failing
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	if err := s.join(ctx); err != nil || failing.until.IsZero() {
		t.Errorf("%v, after certificates until %v: %s", err, failing.until, s.log.String())
	}
}

// failing writes no certificate until the first one has expired.
type failing struct {
	corev1client.SecretInterface
	until time.Time
}

func (f *failing) Update(ctx context.Context, secret *corev1.Secret, options metav1.UpdateOptions) (*corev1.Secret, error) {
	if chain, err := certificatesOf(secret.Data[corev1.TLSCertKey]); err == nil && len(chain) > 0 {
		if f.until.IsZero() {
			f.until = chain[0].NotAfter
		}
		if !time.Now().After(f.until) {
			return nil, errors.New("the disk is full")
		}
	}
	return f.SecretInterface.Update(ctx, secret, options)
}

// TestManyJoin: clusters join with one token, as many at a time as the broker lets in, and none more than the token allows.
func TestManyJoin(t *testing.T) {
	t.Parallel()
	w := newJoining(t, nil)
	prefix := kit.Unique("many") + "-"
	token := w.token("", func(g *enrolment.Grant) { g.Clusters, g.Prefix, g.Uses = nil, prefix, *joins })
	t.Cleanup(func() {
		selector := metav1.ListOptions{LabelSelector: v1alpha1.JoinTokenLabelKey + "=" + token.ID()}
		_ = w.clusters.ClusterV1().ManagedClusters().DeleteCollection(context.Background(), metav1.DeleteOptions{}, selector)
	})
	text := token.String()
	began := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(50)
	for i := range *joins {
		group.Go(func() error { return w.simulate(wire.ClusterName(fmt.Sprintf("%s%d", prefix, i)), text).join(ctx) })
	}
	kit.NoError(t, group.Wait())
	took := time.Since(began)
	w.device(wire.ClusterName(prefix+"more"), token).refused(enrolment.TokenUsed)
	used, err := join.JoinedWith(t.Context(), w.clusters)
	kit.NoError(t, err)
	if len(used[token.ID()]) != *joins {
		t.Errorf("%d clusters have joined with a token for %d", len(used[token.ID()]), *joins)
	}
	t.Logf("%d clusters joined in %s: %.0f/s", *joins, took.Round(time.Millisecond), float64(*joins)/took.Seconds())
}

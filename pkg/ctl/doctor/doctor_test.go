package doctor

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/webproxy"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// The control plane is the package's own: it lacks the definitions at first.
var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane, Bare: true}) }

var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents",
	AgentBroadcast: "clusters/+/agentbroadcast",
}

// expect checks the verdicts, each as "check verdict", and texts of the last result.
func expect(t *testing.T, results []Result, verdicts []string, texts ...string) {
	t.Helper()
	var got []string
	for _, r := range results {
		got = append(got, r.Check+" "+string(r.Verdict))
	}
	if !slices.Equal(got, verdicts) {
		t.Errorf("got %q, want %q\n%+v", got, verdicts, results)
	}
	for _, text := range texts {
		if !slices.ContainsFunc(results, func(r Result) bool { return strings.Contains(r.Message+" → "+r.Fix, text) }) {
			t.Errorf("no result has %q: %+v", text, results)
		}
	}
}

// TestBroker examines a broker with passwords in several states.
func TestBroker(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t, broker.Config{Users: []broker.User{
		{Username: "hub1", Password: "secret", Role: acl.Source}, {Username: "c1", Password: "secret", Role: acl.Agent},
	}})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	kit.NoError(t, closed.Close())
	good := config.Config{BrokerHost: b.Addr, Username: "hub1", Password: "secret", Topics: topics}
	for name, c := range map[string]struct {
		change   func(*config.Config)
		cluster  wire.ClusterName
		verdicts []string
		texts    []string
	}{
		"no cluster": {func(*config.Config) {}, "", []string{"address ok", "tls ok", "login ok", "subscribe ok", "subscribe ok", "source id skipped", "publish skipped", "api skipped"}, []string{"use --cluster", "no program says that it publishes as hub1"}},
		"no broker": {func(c *config.Config) { c.BrokerHost = closed.Addr().String() }, "c1", []string{"address fault", "login skipped", "api skipped"},
			[]string{"connection refused", "check brokerHost, and that the broker runs"}},
		"no such host": {func(c *config.Config) { c.BrokerHost = "nowhere.invalid:1883" }, "c1", []string{"address fault", "login skipped", "api skipped"}, []string{"check the host name"}},
		"one of two addresses": {func(c *config.Config) { c.BrokerHost = closed.Addr().String() + "," + b.Addr }, "",
			[]string{"address fault", "address ok", "tls ok", "login ok", "subscribe ok", "subscribe ok", "source id skipped", "publish skipped", "api skipped"}, []string{"connection refused", b.Addr}},
		"wrong password": {func(c *config.Config) { c.Password = "wrong" }, "c1", []string{"address ok", "tls ok", "login fault", "api skipped"},
			[]string{"bad user name or password", "check username and password"}},
		"no access": {func(c *config.Config) { c.Username = "c1" }, "c1",
			[]string{"address ok", "tls ok", "login ok", "subscribe fault", "subscribe fault", "api skipped"}, []string{"sources/hub1/clusters/+/agentevents", "access rules"}},
		"another source's topics": {func(c *config.Config) {
			c.Topics = wire.Topics{SourceEvents: "sources/hub2/clusters/+/sourceevents", AgentEvents: "sources/hub2/clusters/+/agentevents"}
		}, "c1", []string{"address ok", "tls ok", "login ok", "subscribe fault", "api skipped"}, []string{"not authorized"}},
		"invalid topics": {func(c *config.Config) { c.Topics.SourceEvents = "sources/other/clusters/+/sourceevents" }, "c1",
			[]string{"address ok", "tls ok", "topics fault", "api skipped"}, []string{"names another source"}},
	} {
		t.Run(name, func(t *testing.T) {
			broker := good
			c.change(&broker)
			expect(t, Run(t.Context(), Config{Broker: &broker, Cluster: c.cluster}), c.verdicts, c.texts...)
		})
	}
	t.Run("no agent", func(t *testing.T) {
		results := Run(t.Context(), Config{Broker: &good, Cluster: "c1", Timeout: time.Second})
		if last := results[len(results)-2]; last.Verdict != Fault || !strings.Contains(last.Fix, "start the agent of c1") || Worst(results) != Fault {
			t.Errorf("got %+v", results)
		}
	})
	t.Run("agent", func(t *testing.T) { examineAgent(t, good) })
	t.Run("source", func(t *testing.T) { examineSource(t, good) })
}

func peer(t *testing.T, b config.Config, user string, subscription string) *wirekit.Peer {
	t.Helper()
	b.Username = user
	tr, err := mqtt.New(mqtt.Config{Broker: b, ClientID: user, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	return wirekit.Connect(t, tr, subscription)
}

// examineAgent has an agent answer whose clock is an hour behind.
func examineAgent(t *testing.T, b config.Config) {
	agent := peer(t, b, "c1", "sources/+/clusters/c1/sourceevents")
	results := make(chan []Result, 1)
	go func() { results <- Run(context.Background(), Config{Broker: &b, Cluster: "c1", Timeout: kit.Patience}) }()
	question := wirekit.Next(t, agent, "the question", func(r *wire.StatusResync) bool { return r.Cluster == "c1" })
	if len(question.Hashes) != 1 || !question.Reply || question.SourceIdentity != "" {
		t.Errorf("the question has consequences: %+v", question)
	}
	event, err := wire.Encode(&wire.Presence{Agent: "agent", Cluster: "c1", Session: "s", Present: true}, time.Now().Add(-time.Hour))
	kit.NoError(t, err)
	agent.Publish(t, "clusters/c1/agentbroadcast", &wire.Presence{Agent: "agent", Cluster: "c1", Session: "s", Present: true}, func(e *cloudevents.Event) { *e = event })
	expect(t, kit.Receive(t, "the results", results),
		[]string{"address ok", "tls ok", "login ok", "subscribe ok", "subscribe ok", "source id skipped", "publish ok", "agent ok", "clock of the agent fault", "api skipped"},
		"the clock of the agent is 1h0m0s behind", "by NTP")
}

// examineSource examines with the configuration of an agent.
func examineSource(t *testing.T, b config.Config) {
	source := peer(t, b, "hub1", "sources/hub1/clusters/+/agentevents")
	b.Username = "c1"
	results := make(chan []Result, 1)
	go func() {
		results <- Run(context.Background(), Config{Broker: &b, Role: Agent, Cluster: "c1", Timeout: kit.Patience})
	}()
	question := wirekit.Next(t, source, "the question", func(r *wire.SpecResync) bool { return r.Cluster == "c1" })
	if len(question.Versions) != 1 || !question.Partial {
		t.Errorf("the question has consequences: %+v", question)
	}
	source.Publish(t, "sources/hub1/clusters/c1/sourceevents", &wire.Spec{
		UID: question.Versions[0].UID, Source: "hub1", Cluster: "c1", Action: wire.ResyncResponse, DeletionTimestamp: new(metav1.Now()), NoMetadata: true,
	}, nil)
	expect(t, kit.Receive(t, "the results", results),
		[]string{"address ok", "tls ok", "login ok", "subscribe ok", "publish ok", "source ok", "clock of the source ok", "api skipped"})
}

// TestTLS examines a broker with certificates, also where only a proxy reaches it.
func TestTLS(t *testing.T) {
	issue := func(dir string, validity time.Duration) {
		manager, err := certificates.New(certificates.ManagerConfig{Dir: dir, Config: certificates.Config{Certificates: []certificates.Certificate{
			{Name: "broker", Role: certificates.Broker, Hosts: []string{"127.0.0.1", "broker.example.test"}, Validity: metav1.Duration{Duration: validity}},
			{Name: "hub1", Role: certificates.Source}, {Name: "c1", Role: certificates.Agent},
		}}})
		kit.NoError(t, err)
		_, err = manager.Ensure()
		kit.NoError(t, err)
	}
	dir, other := t.TempDir(), t.TempDir()
	issue(dir, 0)
	issue(other, 0)
	files := &broker.ListenerTLS{
		CertFile: filepath.Join(dir, "broker/tls.crt"), KeyFile: filepath.Join(dir, "broker/tls.key"), ClientCAFile: filepath.Join(dir, "broker/ca.crt"),
	}
	b := brokertest.Start(t, broker.Config{Listeners: []broker.Listener{{Address: "127.0.0.1:0", TLS: files}}})
	_, port, err := net.SplitHostPort(b.Addr)
	kit.NoError(t, err)
	good := config.Config{
		BrokerHost: b.Addr, Topics: topics, CA: config.PEM{File: filepath.Join(dir, "hub1/ca.crt")},
		ClientCert: config.PEM{File: filepath.Join(dir, "hub1/tls.crt")}, ClientKey: config.PEM{File: filepath.Join(dir, "hub1/tls.key")},
	}
	run := func(change func(*config.Config), now time.Time) []Result {
		broker := good
		change(&broker)
		return Run(t.Context(), Config{Broker: &broker, Now: func() time.Time { return now }})
	}
	now := time.Now()
	all := []string{"address ok", "tls ok", "broker's certificate ok", "client certificate ok", "login ok", "subscribe ok", "subscribe ok", "source id skipped", "publish skipped", "api skipped"}
	expect(t, run(func(*config.Config) {}, now), all, "certificate for broker.example.test, 127.0.0.1 by workwire", "TLS 1.3")
	expect(t, run(func(c *config.Config) { c.CA.File = filepath.Join(other, "hub1/ca.crt") }, now),
		[]string{"address ok", "tls fault", "client certificate ok", "login skipped", "api skipped"}, "unknown authority", "set caFile (or caData) to the authority")
	expect(t, run(func(c *config.Config) {
		c.ClientCert.File, c.ClientKey.File = filepath.Join(other, "hub1/tls.crt"), filepath.Join(other, "hub1/tls.key")
	}, now), []string{"address ok", "tls ok", "broker's certificate ok", "client certificate ok", "login fault", "api skipped"}, "does not trust the authority of this client's certificate")
	expect(t, run(func(c *config.Config) { c.CA.File = filepath.Join(dir, "none") }, now), []string{"address ok", "tls fault", "login skipped", "api skipped"}, "no such file")
	late := slices.Clone(all)
	late[2], late[3] = "broker's certificate warning", "client certificate warning"
	expect(t, run(func(*config.Config) {}, now.Add(80*24*time.Hour)), late, "it expires at", "workctl certs ensure")
	late[2], late[3] = "broker's certificate fault", "client certificate fault"
	expect(t, run(func(*config.Config) {}, now.Add(91*24*time.Hour)), late, "it expired at")
	results := run(func(c *config.Config) { c.BrokerHost = "localhost:" + port }, now)
	if !slices.ContainsFunc(results, func(r Result) bool {
		return r.Check == "tls" && r.Verdict == Fault && strings.Contains(r.Fix, "a name that the broker's certificate holds")
	}) {
		t.Errorf("another name: %+v", results)
	}
	behind := brokertest.Start(t, broker.Config{Listeners: []broker.Listener{{Address: "127.0.0.1:0", WebSocketPath: "/mqtt", TLS: files}}})
	proxy := webproxy.Start(t, "broker.example.test", behind.Addr)
	t.Setenv("HTTPS_PROXY", proxy.URL())
	only := func(c *config.Config) { c.BrokerHost = "wss://broker.example.test/mqtt" }
	expect(t, run(only, now), all, "wss://broker.example.test/mqtt (through the proxy "+proxy.Addr+") accepts connections", "TLS 1.3 at broker.example.test:443")
	t.Setenv("HTTPS_PROXY", "http://"+proxy.Addr)
	expect(t, run(only, now), []string{"address fault", "login skipped", "api skipped"}, "407 Proxy Authentication Required", "into HTTPS_PROXY: http://user:password@host:port")
}

// TestAPI examines an API server from nothing to a cluster.
func TestAPI(t *testing.T) {
	examine := func(c Config, verdicts []string, texts ...string) {
		t.Helper()
		if c.REST == nil {
			c.REST = plane.REST()
		}
		expect(t, Run(t.Context(), c), append([]string{"broker skipped"}, verdicts...), texts...)
	}
	const clock = "clock of the API server ok"
	examine(Config{REST: &rest.Config{Host: "https://127.0.0.1:1"}}, []string{"api fault"}, "check the address in the kubeconfig")
	stranger := plane.REST()
	stranger.CertData, stranger.KeyData, stranger.CertFile, stranger.KeyFile, stranger.BearerToken = nil, nil, "", "", "wrong"
	examine(Config{REST: stranger}, []string{"api fault"}, "log in again")
	examine(Config{}, []string{"api ok", clock, "definitions fault"}, "does not serve manifestworks.work.open-cluster-management.io", "apply deploy/crds")
	kit.NoError(t, install.CRDs(t.Context(), plane.REST(), crds.Hub()...))
	examine(Config{Role: Agent, Cluster: "c1"}, []string{"api ok", clock, "definitions fault"}, "appliedmanifestworks")
	examine(Config{Rights: Source}, []string{"api ok", clock, "definitions ok", "rights ok"})
	nobody := plane.REST()
	nobody.Impersonate.UserName = "nobody"
	nobody.Impersonate.Groups = []string{"system:authenticated"}
	examine(Config{REST: nobody}, []string{"api ok", clock, "definitions ok", "rights warning"}, "may not get manifestworks, list manifestworks", "ask an administrator")
	examine(Config{REST: nobody, Rights: Source}, []string{"api ok", clock, "definitions ok", "rights fault"}, "patch manifestworks/status", "deploy/kustomize/hub/rbac")

	client := workclient.NewForConfigOrDie(plane.REST()).ClusterV1().ManagedClusters()
	before := []string{"api ok", clock, "definitions ok", "rights ok"}
	examine(Config{Cluster: "c1"}, append(slices.Clone(before), "cluster fault"), "create its ManagedCluster")
	cluster, err := client.Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	examine(Config{Cluster: "c1"}, append(slices.Clone(before), "cluster fault"), "is not accepted")
	cluster.Spec.HubAcceptsClient = true
	cluster, err = client.Update(t.Context(), cluster, metav1.UpdateOptions{})
	kit.NoError(t, err)
	examine(Config{Cluster: "c1"}, append(slices.Clone(before), "cluster warning"), "has not heard of its agent")
	available := metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionFalse, Reason: "Away", Message: "gone", LastTransitionTime: metav1.Now()}
	cluster.Status.Conditions = []metav1.Condition{available}
	cluster, err = client.UpdateStatus(t.Context(), cluster, metav1.UpdateOptions{})
	kit.NoError(t, err)
	examine(Config{Cluster: "c1"}, append(slices.Clone(before), "cluster fault"), "Away: gone")
	cluster.Status.Conditions[0].Status = metav1.ConditionTrue
	_, err = client.UpdateStatus(t.Context(), cluster, metav1.UpdateOptions{})
	kit.NoError(t, err)
	examine(Config{Cluster: "c1"}, append(slices.Clone(before), "cluster ok"))
}

// TestSkew compares clocks.
func TestSkew(t *testing.T) {
	sent := time.Unix(1_700_000_000, 0)
	received := sent.Add(5 * time.Second)
	for _, c := range []struct {
		theirs time.Duration // after sent
		want   Verdict
		text   string
	}{
		{0, Good, "less than 5s"}, {5 * time.Second, Good, ""}, {34 * time.Second, Good, ""}, {36 * time.Second, Warning, "31s ahead"},
		{-29 * time.Second, Good, ""}, {-31 * time.Second, Warning, "31s behind"}, {time.Hour, Fault, "59m55s ahead"}, {-24 * time.Hour, Fault, "24h0m0s behind"},
	} {
		p := &patient{}
		p.skew("clock", "the agent", sent.Add(c.theirs), sent, received)
		if r := p.results[0]; r.Verdict != c.want || !strings.Contains(r.Message, c.text) {
			t.Errorf("%s: %+v", c.theirs, r)
		}
	}
}

package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// soon is how long before its expiry a certificate is worth a warning: an installation that renews
// at two thirds of the default 90 days never comes so near.
const soon = 14 * 24 * time.Hour

// broker checks the way to the broker and what it allows, until something fails.
func (p *patient) broker(ctx context.Context) {
	addresses := p.addresses(ctx)
	if len(addresses) == 0 || !p.tls(ctx, addresses) {
		p.skip("login", "the broker cannot be reached", "")
		return
	}
	topics, err := p.topics()
	if err != nil {
		p.fault("topics", err, "correct topics in the transport configuration: docs/protocol.md, Topics")
		return
	}
	messages := make(chan mqtt.Received, 1024)
	start := time.Now()
	loginCtx, cancel := p.timeout(ctx)
	defer cancel()
	conn, err := mqtt.Dial(loginCtx, *p.Broker, "workctl-"+p.id, func(m mqtt.Received) {
		select {
		case messages <- m:
		default: // the answer may be lost; the check fails then, and says so
		}
	})
	if err != nil {
		p.fault("login", err, mqtt.Advice(err))
		return
	}
	defer conn.Close()
	p.good("login", "the broker accepted the credentials after %s, packets up to %d bytes", since(start), conn.Limit())
	if p.subscribe(ctx, conn, topics.subscriptions) {
		if topics.instances != "" {
			p.instances(ctx, conn, topics.source, topics.instances, messages)
		}
		p.ask(ctx, conn, topics.question, messages)
	}
}

func since(start time.Time) time.Duration { return time.Since(start).Round(100 * time.Microsecond) }

// reachable is a place that accepts connections: as configured, and how.
type reachable struct {
	configured string
	address    string // host:port, with the IP address unless a proxy connects
	dial       func(ctx context.Context) (net.Conn, error)
}

// addresses dials each address of the broker, and returns those that accept connections.
func (p *patient) addresses(ctx context.Context) []reachable {
	if len(p.Broker.Addresses()) == 0 {
		p.fault("address", errors.New("there is none"), "set brokerHost to host:port")
	}
	var answering []reachable
	for _, address := range p.Broker.Addresses() {
		answering = append(answering, p.address(ctx, address)...)
	}
	return answering
}

// address dials each IP address of one address of the broker, or has a proxy dial it.
func (p *patient) address(ctx context.Context, configured string) []reachable {
	a, err := config.ParseAddress(configured)
	if err != nil {
		p.fault("address", err, "set brokerHost to host:port, or to the URL of a WebSocket")
		return nil
	}
	through, err := p.Broker.Proxy(a)
	if err != nil {
		p.fault("address", err, "correct HTTPS_PROXY")
		return nil
	}
	if through != nil {
		dial := func(ctx context.Context) (net.Conn, error) { return through.Dial(ctx, a.Host) }
		return p.reached(ctx, "through the proxy "+through.String(), reachable{configured, a.Host, dial})
	}
	host, port, _ := net.SplitHostPort(a.Host) // ParseAddress has split it
	lookupCtx, cancel := p.timeout(ctx)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(lookupCtx, host)
	if err != nil {
		p.fault("address", err, mqtt.Advice(err))
		return nil
	}
	var answering []reachable
	for _, ip := range found {
		address := net.JoinHostPort(ip, port)
		dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
		answering = append(answering, p.reached(ctx, address, reachable{configured, address, dial})...)
	}
	return answering
}

// reached dials r, and returns it if it accepts connections.
func (p *patient) reached(ctx context.Context, way string, r reachable) []reachable {
	start := time.Now()
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		fix := mqtt.Advice(err)
		if fix == "" {
			fix = "open the way to this address and port: firewalls, network policies, security groups"
		}
		p.fault("address", err, fix)
		return nil
	}
	_ = conn.Close() // nothing was sent
	p.good("address", "%s (%s) accepts connections after %s", r.configured, way, since(start))
	return []reachable{r}
}

// tls makes a TLS handshake with each address, and checks the names and the expiry of certificates.
func (p *patient) tls(ctx context.Context, addresses []reachable) bool {
	if !p.Broker.UsesTLS() {
		if slices.ContainsFunc(addresses, func(r reachable) bool {
			host, _, _ := net.SplitHostPort(r.address)
			return !serve.IsLoopback(host)
		}) {
			p.add("tls", Warning, "set tls: required and caFile", "the connection is not encrypted")
		} else {
			p.good("tls", "the connection is not encrypted, and does not leave this machine")
		}
		return true
	}
	certs, err := p.Broker.Certificates()
	if err != nil {
		p.fault("tls", err, "make the files readable, or correct their paths")
		return false
	}
	secured := false
	for _, r := range addresses {
		settings, err := p.Broker.TLSConfig(r.configured, certs)
		if err != nil {
			p.fault("tls", err, "correct the files in the transport configuration")
			return false
		}
		secured = p.handshake(ctx, r, settings) || secured
	}
	for block, rest := pem.Decode(certs.ClientCert); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			p.expiry("client certificate", certificate, "renew it: workctl certs ensure")
			break // the others are of authorities
		}
	}
	return secured
}

func (p *patient) handshake(ctx context.Context, r reachable, settings *tls.Config) bool {
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	conn, err := r.dial(ctx)
	if err != nil {
		p.fault("tls", fmt.Errorf("%s: %w", r.address, err), mqtt.Advice(err))
		return false
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	secured := tls.Client(conn, settings)
	if err := secured.HandshakeContext(ctx); err != nil {
		p.fault("tls", fmt.Errorf("%s: %w", r.address, err), mqtt.Advice(err))
		return false
	}
	state := secured.ConnectionState()
	if len(state.PeerCertificates) == 0 {
		p.fault("tls", errors.New("the broker showed no certificate"), "give the broker a certificate")
		return false
	}
	certificate := state.PeerCertificates[0]
	names := append([]string(nil), certificate.DNSNames...)
	for _, ip := range certificate.IPAddresses {
		names = append(names, ip.String())
	}
	p.good("tls", "%s at %s, certificate for %s by %s", tls.VersionName(state.Version), r.address, strings.Join(names, ", "), certificate.Issuer.CommonName)
	p.expiry("broker's certificate", certificate, "renew the broker's certificate")
	return true
}

func (p *patient) expiry(check string, certificate *x509.Certificate, fix string) {
	left := certificate.NotAfter.Sub(p.Now())
	until := certificate.NotAfter.UTC().Format("2006-01-02 15:04Z")
	switch {
	case left <= 0:
		p.add(check, Fault, fix, "it expired at %s", until)
	case left < soon && left < certificate.NotAfter.Sub(certificate.NotBefore)/4:
		p.add(check, Warning, fix, "it expires at %s", until)
	default:
		p.good(check, "it is valid until %s", until)
	}
}

// route is what a role subscribes to, and its question to the other side.
type route struct {
	subscriptions []string
	source        wire.SourceID // of the role Source
	instances     string        // topic of the role Source, empty if there is none
	question      func() (topic string, message wire.Message)
}

// topics returns the route of the role.
func (p *patient) topics() (route, error) {
	if p.Role == Agent {
		return p.agentTopics()
	}
	levels := strings.Split(p.Broker.Topics.AgentEvents, "/")
	if strings.HasPrefix(p.Broker.Topics.AgentEvents, "$share/") {
		levels = levels[2:]
	}
	source := wire.SourceID(levels[1]) // the pattern was validated when the file was read
	topics, err := p.Broker.Topics.ForSource(source)
	if err != nil {
		return route{}, err
	}
	r := route{subscriptions: topics.Subscriptions(), source: source}
	r.instances, _ = topics.Instances()
	if p.Cluster == "" {
		return r, nil
	}
	specs, err := topics.Specs(p.Cluster)
	r.question = func() (string, wire.Message) {
		// The agent has no such work, so that all that it answers is its presence.
		return specs, &wire.StatusResync{
			Source: source, Cluster: p.Cluster, Reply: true, Hashes: []wire.StatusVersion{{UID: types.UID(p.id), Hash: "0"}},
		}
	}
	return r, err
}

func (p *patient) agentTopics() (route, error) {
	topics, err := p.Broker.Topics.ForAgent(p.Cluster)
	if err != nil {
		return route{}, err
	}
	source, one := topics.Source()
	if !one {
		return route{subscriptions: topics.Subscriptions()}, nil
	}
	events, err := topics.Events(source)
	return route{subscriptions: topics.Subscriptions(), question: func() (string, wire.Message) {
		// No source has the work: its deletion is the answer.
		return events, &wire.SpecResync{
			Agent: "workctl-" + p.id, Cluster: p.Cluster, Source: source, Partial: true,
			Versions: []wire.SpecVersion{{UID: types.UID(p.id), Generation: 1, Probe: true}}, Expires: p.Now().Add(time.Minute),
		}
	}}, err
}

// subscribe checks that the broker grants the subscriptions of the role.
func (p *patient) subscribe(ctx context.Context, conn *mqtt.Conn, filters []string) bool {
	granted := true
	for _, filter := range filters {
		ctx, cancel := p.timeout(ctx)
		filter = wire.Unshared(filter) // a member of the group would take messages of the others
		err := conn.Subscribe(ctx, filter, 0)
		cancel()
		if err != nil {
			p.fault("subscribe", err, mqtt.Advice(err))
			granted = false
			continue
		}
		p.good("subscribe", "the broker granted %s", filter)
	}
	return granted
}

// ask publishes the question of the role, and waits for an answer.
func (p *patient) ask(ctx context.Context, conn *mqtt.Conn, question func() (string, wire.Message), messages <-chan mqtt.Received) {
	if question == nil {
		p.skip("publish", "nobody to ask is given", "use --cluster to check the way to the agent of a cluster and back")
		return
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	topic, message := question()
	event, err := wire.Encode(message, p.Now())
	if err == nil && p.Sign != nil {
		err = p.Sign(&event)
	}
	if err != nil {
		p.fault("publish", err, "")
		return
	}
	other, fix := "agent", "start the agent of "+string(p.Cluster)+", and look at its log; an agent with --trusted-keys answers signed questions only: use --signing-key"
	if p.Role == Agent {
		other, fix = "source", "start the hub, and accept the cluster: spec.hubAcceptsClient of its ManagedCluster; a hub with --trusted-agents answers signed questions only, "+
			"and reports the cluster for others (StatusesTrusted): use --signing-key with the agent's key"
	}
	sent := p.Now()
	switch heard, err := conn.Publish(ctx, topic, event); {
	case err != nil:
		p.fault("publish", err, mqtt.Advice(err))
		return
	case !heard:
		p.fault("publish", fmt.Errorf("the broker accepted %s, and says that nobody subscribes to it", topic), fix)
		return
	}
	p.good("publish", "the broker accepted %s", topic)
	start := time.Now()
	for {
		select {
		case m := <-messages:
			if at, ok := p.answer(m); ok {
				p.good(other, "it answered after %s", since(start))
				p.skew("clock of the "+other, "the "+other, at, sent, p.Now())
				return
			}
		case <-conn.Done():
			p.fault(other, conn.Err(), mqtt.Advice(conn.Err()))
			return
		case <-ctx.Done():
			p.fault(other, fmt.Errorf("no answer within %s", p.Timeout), fix)
			return
		}
	}
}

// answer reports whether a message answers the question, and when it was made by the other side's
// clock.
func (p *patient) answer(m mqtt.Received) (time.Time, bool) {
	message, err := decode(m.Event, m.Err)
	if err != nil {
		return time.Time{}, false
	}
	switch message := message.(type) {
	case *wire.Presence:
		return m.Event.Time(), p.Role == Source && message.Cluster == p.Cluster && message.Present
	case *wire.Spec:
		return m.Event.Time(), p.Role == Agent && string(message.UID) == p.id
	}
	return time.Time{}, false
}

func decode(event cloudevents.Event, err error) (wire.Message, error) {
	if err != nil {
		return nil, err
	}
	return wire.Decode(event)
}

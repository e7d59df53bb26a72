package broker_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/paho"
	"github.com/google/uuid"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/acltest"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mosquittokit"
	"github.com/workwire/workwire/test/kit/rabbitmqkit"
)

// fleet is a broker with the identities of acltest as its users.
type fleet struct {
	addr      string
	joiners   string     // address for joiners; "": there are none
	ca        *authority // of client certificates; nil: passwords
	mosquitto bool
	rabbitmq  bool
	webSocket bool
	certs     map[acl.Identity]*tls.Config // issued so far
}

// fenceAgent and fenceSource publish the last message to each reader.
var (
	fenceAgent  = acl.Identity{Role: acl.Agent, ID: "fence"}
	fenceSource = acl.Identity{Role: acl.Source, ID: "fence-hub"}
)

// fleets starts both brokers, with passwords and with client certificates.
func fleets() map[string]func(*testing.T) *fleet {
	return map[string]func(*testing.T) *fleet{
		"work-broker, passwords": func(t *testing.T) *fleet {
			addr := brokertest.Start(t, broker.Config{Users: fleetUsers()}).Addr
			return &fleet{addr: addr, joiners: addr}
		},
		"work-broker, certificates": func(t *testing.T) *fleet {
			ca := newAuthority(t)
			listener := ca.write(t, t.TempDir(), 1)
			listener.TLS.RequireClientCert = true
			return &fleet{addr: brokertest.Start(t, broker.Config{Listeners: []broker.Listener{listener}}).Addr, ca: ca}
		},
		"mosquitto, passwords": func(t *testing.T) *fleet {
			addr := brokertest.StartMosquitto(t, fleetUsers()).Addr
			return &fleet{addr: addr, joiners: addr, mosquitto: true}
		},
		"mosquitto, certificates": func(t *testing.T) *fleet {
			ca := newAuthority(t)
			files := ca.write(t, t.TempDir(), 1).TLS
			b := brokertest.StartMosquittoWith(t, mosquittokit.Config{
				Users: fleetUsers(), TLS: &mosquittokit.TLS{CertFile: files.CertFile, KeyFile: files.KeyFile, ClientCAFile: files.ClientCAFile},
			})
			return &fleet{ca: ca, mosquitto: true, addr: b.Addr, joiners: b.JoinersAddr}
		},
		"rabbitmq, passwords": func(t *testing.T) *fleet {
			addr := brokertest.StartRabbitMQ(t, rabbitmqkit.Config{Users: fleetUsers()}).Addr
			return &fleet{rabbitmq: true, addr: addr, joiners: addr}
		},
		"rabbitmq, certificates": func(t *testing.T) *fleet {
			ca, c := certifiedRabbitMQ(t)
			return &fleet{ca: ca, rabbitmq: true, addr: c.Addr, joiners: c.Addr}
		},
		"work-broker, WebSockets": func(t *testing.T) *fleet {
			ca := newAuthority(t)
			listener := ca.write(t, t.TempDir(), 1)
			listener.TLS.RequireClientCert, listener.WebSocketPath = true, "/mqtt"
			return &fleet{addr: brokertest.Start(t, broker.Config{Listeners: []broker.Listener{listener}}).Addr, ca: ca, webSocket: true}
		},
	}
}

// certifiedRabbitMQ starts a RabbitMQ that knows its clients by certificates of the authority.
func certifiedRabbitMQ(t *testing.T) (*authority, *rabbitmqkit.Container) {
	t.Helper()
	ca := newAuthority(t)
	files := ca.write(t, t.TempDir(), 1).TLS
	users := fleetUsers()
	for i := range users {
		if users[i].Role != acl.Joiner {
			users[i].Password = ""
		}
	}
	return ca, brokertest.StartRabbitMQ(t, rabbitmqkit.Config{
		Users: users, TLS: &rabbitmqkit.TLS{CertFile: files.CertFile, KeyFile: files.KeyFile, ClientCAFile: files.ClientCAFile},
	})
}

// fleetUsers returns the users: the user name of an agent is its cluster, that of another
// is not a valid cluster name.
func fleetUsers() []broker.User {
	var out []broker.User
	for _, id := range append(acltest.Identities(), acltest.Observer, acltest.Joiner, fenceAgent, fenceSource) {
		out = append(out, broker.User{Username: userOf(id), Password: password, Role: id.Role, ID: id.ID})
	}
	return out
}

func userOf(id acl.Identity) string {
	if id.Role == acl.Agent {
		return id.ID
	}
	return string(id.Role) + "." + id.ID
}

// optionsFor returns the options to connect as id.
func (f *fleet) optionsFor(t *testing.T, id acl.Identity, clientID string) options {
	t.Helper()
	if owner, _, named := strings.Cut(clientID, "/"); f.rabbitmq && (!named || owner == "") {
		clientID = userOf(id) + "/" + clientID // RabbitMQ's rules bind the sessions of a client id to the user
	}
	if f.ca == nil {
		return options{user: userOf(id), clientID: clientID}
	}
	if f.certs[id] == nil {
		if f.certs == nil {
			f.certs = map[acl.Identity]*tls.Config{}
		}
		f.certs[id] = f.certificate(t, f.ca, id)
	}
	return options{anonymous: true, clientID: clientID, tls: f.certs[id], webSocket: f.webSocket}
}

// certificate returns a certificate for id. Its common name is the user name for Mosquitto; for
// work-broker its organizational unit is the role.
func (f *fleet) certificate(t *testing.T, ca *authority, id acl.Identity) *tls.Config {
	t.Helper()
	if f.mosquitto || f.rabbitmq {
		return ca.client(t, userOf(id))
	}
	return ca.client(t, id.ID, string(id.Role)+"s")
}

// TestAccess makes the attempts of acltest with both brokers, and checks which messages are
// delivered. TestRefusals checks how work-broker refuses.
func TestAccess(t *testing.T) {
	t.Parallel()
	for name, start := range fleets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t)
			t.Run("login", f.checkLogin)
			t.Run("reading", f.checkReading)
			t.Run("publishing", f.checkPublishing)
			t.Run("client ids", f.checkClientIDs)
			t.Run("joining", f.checkJoining)
		})
	}
}

// dial connects, and fails the test if the broker refuses. RabbitMQ 4.0.5 has been seen to close a new
// connection without a CONNACK; it is tried again, as clients do.
func (f *fleet) dial(t *testing.T, o options) *client {
	t.Helper()
	var c *client
	kit.True(t, "a connection", func() bool {
		var err error
		c, err = tryDial(t, f.addr, o)
		if err != nil && (!f.rabbitmq || c.connack != nil && c.connack.ReasonCode >= 0x80) {
			t.Fatalf("connect as %q: %v", o.user, err)
		}
		return err == nil
	})
	return c
}

// checkLogin connects clients without a valid identity, which the broker must refuse.
func (f *fleet) checkLogin(t *testing.T) {
	unknown := map[string]options{
		"anonymous":      {anonymous: true},
		"wrong password": {user: "c1", password: "wrong"},
		"no password":    {user: "c1", password: "-"},
		"unknown user":   {user: "nobody"},
	}
	if f.ca != nil {
		foreign := f.certificate(t, newAuthority(t), acltest.A)
		foreign.RootCAs = f.ca.client(t, "").RootCAs
		for name, o := range unknown {
			o.tls = f.ca.client(t, "")
			unknown[name] = o
		}
		unknown["certificate of another CA"] = options{anonymous: true, tls: foreign}
	}
	for name, o := range unknown {
		o.clientID, o.webSocket = "unknown", f.webSocket
		c, err := tryDial(t, f.addr, o)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if f.ca == nil && (c.connack == nil || c.connack.ReasonCode < 0x80) {
			t.Errorf("%s: refused without a reason: %v", name, err)
		}
	}
	if f.ca == nil {
		return
	}
	if _, err := tryDial(t, f.addr, options{anonymous: true, clientID: "plain", webSocket: f.webSocket}); err == nil {
		t.Error("a client without TLS is accepted")
	}
	// The user name must be ignored in favour of the certificate.
	both := options{user: "c2", password: "-", clientID: "two names", tls: f.certificate(t, f.ca, acltest.A), webSocket: f.webSocket}
	if c, err := tryDial(t, f.addr, both); err == nil {
		if code := c.publish("clusters/c2/agentbroadcast", "forged"); code < 0x80 {
			t.Error("a client with the certificate of c1 and the name of c2 is c2")
		}
	}
}

// checkReading subscribes one client for each attempt. At Mosquitto, each topic has a retained
// message. It receives a live one after that. A last message on the reader's fence topic marks the end of what
// it could read.
func (f *fleet) checkReading(t *testing.T) {
	owners := map[acl.Identity]*client{}
	for _, id := range append(acltest.Identities(), fenceAgent, fenceSource) {
		owners[id] = f.dial(t, f.optionsFor(t, id, "owner of "+id.String()))
	}
	send := func(who acl.Identity, topic, payload string, retain bool) {
		t.Helper()
		code := owners[who].publishPacket(&paho.Publish{Topic: topic, QoS: 1, Retain: retain, Payload: []byte(payload)})
		if code >= 0x80 {
			t.Fatalf("%v may not publish to %s: 0x%x", who, topic, code)
		}
	}
	if f.mosquitto { // work-broker refuses retained messages
		defer f.clear(t)
		for _, topic := range acltest.Topics() {
			send(topic.Publisher, topic.Name, "retained", true)
		}
	}
	readers := map[acltest.Attempt]*client{}
	for i, a := range acltest.Attempts() {
		if a.Action != acl.Subscribe || !slices.Contains(acltest.Identities(), a.Who) {
			continue
		}
		if _, shared := acltest.TrimShare(a.Topic); shared && f.rabbitmq {
			continue // it has no shared subscriptions, and says so, so that clients do not try
		}
		c := f.dial(t, f.optionsFor(t, a.Who, fmt.Sprintf("reader %d", i)))
		if f.rabbitmq && !a.Allowed { // refused, and the connection is closed
			if _, err := c.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: a.Topic, QoS: 1}}}); err == nil {
				t.Errorf("%v: granted", a)
			}
			c.awaitEnd()
			continue
		}
		code := c.subscribe(a.Topic)
		if a.Allowed && code >= 0x80 || !a.Allowed && code < 0x80 && !f.mosquitto {
			t.Errorf("%v: SUBACK 0x%x", a, code)
		}
		fence, _ := fenceOf(a.Who)
		c.mustSubscribe(fence)
		readers[a] = c
	}
	for _, topic := range acltest.Topics() {
		send(topic.Publisher, topic.Name, "live", false)
	}
	for _, id := range acltest.Identities() {
		fence, publisher := fenceOf(id)
		send(publisher, fence, "end", false)
	}
	for a, c := range readers {
		fence, _ := fenceOf(a.Who)
		c.await("the end of "+a.String(), func() bool {
			return slices.ContainsFunc(c.received, func(p *paho.Publish) bool { return p.Topic == fence })
		})
		got := map[string]bool{}
		c.mu.Lock()
		for _, p := range c.received {
			if p.Topic != fence {
				got[string(p.Payload)+" "+p.Topic] = true
			}
		}
		c.mu.Unlock()
		f.checkRead(t, a, got)
	}
}

// clear removes the retained messages.
func (f *fleet) clear(t *testing.T) {
	t.Helper()
	for _, topic := range acltest.Topics() {
		f.dial(t, f.optionsFor(t, topic.Publisher, "clearer")).publishPacket(&paho.Publish{Topic: topic.Name, QoS: 1, Retain: true})
	}
}

// checkRead compares the messages of an attempt with the allowed ones. Mosquitto grants
// subscriptions that are too wide, and delivers the messages that the client may read and a
// source's own broadcasts. Against MQTT, it sends retained messages to shared subscriptions.
func (f *fleet) checkRead(t *testing.T, a acltest.Attempt, got map[string]bool) {
	t.Helper()
	filter, shared := acltest.TrimShare(a.Topic)
	want := map[string]bool{}
	for _, topic := range acltest.Topics() {
		own := topic.Publisher == a.Who && strings.HasSuffix(topic.Name, "/sourcebroadcast")
		if acltest.Matches(filter, topic.Name) && (topic.ReadBy(a.Who) && a.Allowed || f.mosquitto && (topic.ReadBy(a.Who) || own)) {
			want["live "+topic.Name] = true
			// Mosquitto 2.0.11 sends retained messages to shared subscriptions; 2.0.21 does not, as
			// MQTT 5 says.
			if retained := "retained " + topic.Name; f.mosquitto && (!shared || got[retained]) {
				want[retained] = true
			}
		}
	}
	if shared && !a.Allowed {
		for message := range got { // members of a group share what they may read
			if !want[message] {
				t.Errorf("%v: received %s", a, message)
			}
		}
		return
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v: received %v, want %v", a, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// fenceOf returns a topic that only id reads, and its publisher.
func fenceOf(id acl.Identity) (topic string, publisher acl.Identity) {
	if id.Role == acl.Source {
		return "sources/" + id.ID + "/clusters/" + fenceAgent.ID + "/agentevents", fenceAgent
	}
	return "sources/" + fenceSource.ID + "/clusters/" + id.ID + "/sourceevents", fenceSource
}

// ways returns the ways to publish. work-broker refuses retained messages from everybody.
func (f *fleet) ways() []string {
	if f.mosquitto {
		return []string{"at QoS 0", "at QoS 1", "as a will", "retained"}
	}
	return []string{"at QoS 0", "at QoS 1", "as a will"}
}

// checkPublishing makes every attempt to publish in every way, and checks the live and the retained
// messages of the readers.
func (f *fleet) checkPublishing(t *testing.T) {
	reader := func(id acl.Identity, name string) *client {
		c := f.dial(t, f.optionsFor(t, id, name+" "+id.String()))
		for _, a := range acltest.Attempts() {
			if _, shared := acltest.TrimShare(a.Topic); a.Who == id && a.Action == acl.Subscribe && a.Allowed && !shared && !acltest.Joining(a.Topic) {
				c.mustSubscribe(a.Topic)
			}
		}
		fence, _ := fenceOf(id)
		c.mustSubscribe(fence)
		return c
	}
	if f.mosquitto {
		defer f.clear(t)
	}
	live := map[acl.Identity]*client{}
	for _, id := range acltest.Identities() {
		live[id] = reader(id, "live reader")
	}
	for i, a := range acltest.Attempts() {
		if a.Action == acl.Publish && (a.Who == acltest.Observer || slices.Contains(acltest.Identities(), a.Who)) {
			if acltest.Joining(a.Topic) && (a.Allowed || f.mosquitto && a.Who == acltest.Hub) {
				continue // checkJoining; at Mosquitto, a source may ask itself
			}
			for _, way := range f.ways() {
				f.publish(t, a, way, fmt.Sprintf("publisher %d", i))
			}
		}
	}
	late := map[acl.Identity]*client{}
	for _, id := range acltest.Identities() {
		late[id] = reader(id, "late reader")
		fence, publisher := fenceOf(id)
		f.dial(t, f.optionsFor(t, publisher, "fence")).publish(fence, "end")
	}
	for _, id := range acltest.Identities() {
		wantLive, wantLate := map[string]bool{}, map[string]bool{}
		for _, topic := range acltest.Topics() {
			if topic.ReadBy(id) {
				for _, way := range f.ways() {
					wantLive[sent(topic.Name, way, topic.Publisher)] = true
				}
				if f.mosquitto {
					wantLate[sent(topic.Name, "retained", topic.Publisher)] = true
				}
			}
		}
		f.checkReceived(t, id, live[id], wantLive)
		f.checkReceived(t, id, late[id], wantLate)
	}
}

func sent(topic, way string, by acl.Identity) string { return topic + " " + way + " by " + by.String() }

// publish makes one attempt and returns when the broker has processed it.
func (f *fleet) publish(t *testing.T, a acltest.Attempt, way, clientID string) {
	t.Helper()
	o := f.optionsFor(t, a.Who, clientID)
	payload := []byte(sent(a.Topic, way, a.Who))
	if way == "as a will" {
		o.will = &paho.WillMessage{Topic: a.Topic, QoS: 1, Payload: payload}
	}
	c, err := tryDial(t, f.addr, o)
	if err != nil && f.rabbitmq && a.Allowed {
		c, err = f.dial(t, o), nil
	}
	if err != nil {
		if way != "as a will" || a.Allowed {
			t.Errorf("%v %s: %v", a, way, err)
		}
		return
	}
	switch way {
	case "at QoS 0":
		_, _ = c.Publish(t.Context(), &paho.Publish{Topic: a.Topic, Payload: payload}) // the readers show the result
		// A connection that takes the session over may end this one before the broker has read the
		// message. The broker answers in order, so an answer to whatever follows shows that it has.
		ctx, cancel := c.whileConnected()
		_, _ = c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: a.Topic}}})
		cancel()
		c.leave()
	case "as a will":
		c.drop()
	default:
		ctx, cancel := c.whileConnected()
		answer, err := c.Publish(ctx, &paho.Publish{Topic: a.Topic, QoS: 1, Retain: way == "retained", Payload: payload})
		cancel()
		accepted := answer != nil && answer.ReasonCode < 0x80
		if a.Allowed != accepted || answer == nil && !f.rabbitmq { // which closes the connection
			t.Errorf("%v %s: PUBACK %+v, %v", a, way, answer, err)
		}
		c.leave()
		return // it has answered
	}
	// A broker accepts a client id again only after it has processed the previous connection.
	o.will = nil
	f.dial(t, o).leave()
}

// checkReceived waits for the last message and compares the messages before it.
func (f *fleet) checkReceived(t *testing.T, id acl.Identity, c *client, want map[string]bool) {
	t.Helper()
	fence, _ := fenceOf(id)
	c.await("the end at "+id.String(), func() bool {
		return slices.ContainsFunc(c.received, func(p *paho.Publish) bool { return p.Topic == fence })
	})
	got := map[string]bool{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.received {
		if p.Topic != fence {
			got[string(p.Payload)] = true
		}
	}
	for message := range got {
		if !want[message] {
			t.Errorf("%v received %q", id, message)
		}
	}
	for message := range want {
		if !got[message] {
			t.Errorf("%v did not receive %q", id, message)
		}
	}
}

// checkClientIDs connects a cluster with the client id of another: it must not receive the queued
// messages of the other. work-broker does not disconnect the other either; at RabbitMQ, its own session
// is still there.
func (f *fleet) checkClientIDs(t *testing.T) {
	hub := f.dial(t, f.optionsFor(t, acltest.Hub, "hub"))
	for _, clientID := range []string{"hub1-hub", "hub1-hub-joins", "workctl-" + uuid.NewString()} { // of work-hub and workctl
		own := f.optionsFor(t, acltest.Hub, "")
		own.clientID = clientID
		f.dial(t, own).mustSubscribe("clusters/+/agentbroadcast")
	}
	victimOptions := f.optionsFor(t, acltest.A, "victim")
	victimOptions.expiry = 3600
	victim := f.dial(t, victimOptions)
	victim.mustSubscribe(specFilter)
	victim.drop()
	hub.publish(specTopic, "secret")
	thiefOptions := f.optionsFor(t, acltest.B, victimOptions.clientID)
	thiefOptions.expiry = 3600
	if thief, err := tryDial(t, f.addr, thiefOptions); err == nil { // refused is fine too
		thief.mustSubscribe("sources/+/clusters/c2/sourceevents")
		hub.publish("sources/hub1/clusters/c2/sourceevents", "end")
		if got := thief.payloads(1); got[0] != "end" {
			t.Errorf("another cluster received %q", got[0])
		}
		thief.leave()
	}
	if f.mosquitto {
		return
	}
	victim = f.dial(t, victimOptions)
	if got := victim.payloads(1); got[0] != "secret" {
		t.Errorf("its own messages: %q", got)
	}
	if f.rabbitmq {
		return // a client that has logged in ends the connection of another with its id, as with Mosquitto
	}
	f.dial(t, thiefOptions)
	if code := victim.publish("clusters/c1/agentbroadcast", "x"); code >= 0x80 || victim.disconnected != nil {
		t.Errorf("another client with its id disturbs the client: 0x%x, %+v", code, victim.disconnected)
	}
}

// checkJoining: whoever asks to join, or for the next certificate, connects with the id of the request, and reads the answer; an agent
// reads what is for its cluster, too. A joiner does nothing else.
func (f *fleet) checkJoining(t *testing.T) {
	if f.joiners == "" {
		return
	}
	const answers = "sources/hub1/joinanswers/"
	joiner := func(clientID string) *client {
		f := *f
		f.addr = f.joiners
		o := options{user: userOf(acltest.Joiner), clientID: clientID}
		if f.ca != nil {
			o.tls = f.ca.client(t, "")
		}
		return f.dial(t, o)
	}
	certified := f.optionsFor(t, acltest.A, "")
	hub, asking, asked := f.dial(t, f.optionsFor(t, acltest.Hub, "hub")), map[string]*client{}, []string{}
	hub.mustSubscribe(joinRequests)
	told := f.dial(t, f.optionsFor(t, acltest.A, "told"))
	told.mustSubscribe(answers + acltest.A.ID)
	if hub.publish(answers+acltest.A.ID, "renew") >= 0x80 || told.payloads(1)[0] != "renew" {
		t.Error("a cluster cannot be told to renew its certificate")
	}
	certified.clientID = enrolment.NewID()
	asking[certified.clientID] = f.dial(t, certified)
	id := enrolment.NewID()
	asking[id] = joiner(id)
	for id, c := range asking {
		c.mustSubscribe(answers + id)
		if code := c.publish(joinRequests, id); code >= 0x80 {
			t.Fatalf("a request is refused: 0x%x", code)
		}
		asked = append(asked, id)
	}
	if got := hub.payloads(2); !slices.Equal(got, asked) {
		t.Errorf("the hub received %v, want %v", got, asked)
	}
	var thieves []*client // at Mosquitto, which filters what it delivers
	for _, a := range acltest.Attempts() {
		if a.Who != acltest.Joiner || a.Allowed {
			continue
		}
		c := joiner(enrolment.NewID())
		ctx, cancel := c.whileConnected()
		if a.Action == acl.Publish {
			if answer, err := c.Publish(ctx, &paho.Publish{Topic: a.Topic, QoS: 1}); err == nil && answer.ReasonCode < 0x80 {
				t.Errorf("%v: accepted", a)
			}
		} else if _, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: a.Topic, QoS: 1}}}); err == nil && f.mosquitto {
			thieves = append(thieves, c)
		} else if err == nil {
			t.Errorf("%v: granted", a)
		}
		cancel()
	}
	if f.mosquitto {
		for _, clientID := range []string{"+", "#", "-"} {
			c := joiner(clientID)
			c.mustSubscribe(answers + "+")
			thieves = append(thieves, c)
		}
		thief := joiner(enrolment.NewID())
		thief.mustSubscribe(answers + asked[0])
		thief.mustSubscribe("$share/stolen/" + answers + asked[1])
		thieves = append(thieves, thief)
	}
	for _, id := range asked {
		if code := hub.publish(answers+id, "answer"); code >= 0x80 {
			t.Errorf("the answer is refused: 0x%x", code)
		}
		asking[id].payloads(1)
	}
	hub.publish(specTopic, "secret")
	hub.publish("sources/hub1/sourcebroadcast", "secret")
	for _, c := range thieves {
		c.subscribe(answers + "fence") // answered after what came before
		c.mu.Lock()
		for _, p := range c.received {
			t.Errorf("a joiner received %s %s", p.Topic, p.Payload)
		}
		c.mu.Unlock()
	}
}

// TestMosquittoClientIDs checks what mosquitto.conf says about client ids: another user can
// disconnect a client, unless the user name is the client id.
func TestMosquittoClientIDs(t *testing.T) {
	for _, one := range []bool{false, true} {
		t.Run(fmt.Sprintf("use_username_as_clientid %v", one), func(t *testing.T) {
			b := brokertest.StartMosquittoWith(t, mosquittokit.Config{Users: users(), OneSessionPerUser: one})
			victim := dial(t, b.Addr, options{user: "c1", clientID: "victim"})
			thief := dial(t, b.Addr, options{user: "c2", clientID: "victim"})
			if !one {
				victim.awaitEnd()
				return
			}
			for user, c := range map[string]*client{"c1": victim, "c2": thief} {
				if code := c.publish("clusters/"+user+"/agentbroadcast", "x"); code >= 0x80 {
					t.Errorf("%s: 0x%x", user, code)
				}
			}
			dial(t, b.Addr, options{user: "c1", clientID: "another"})
			victim.awaitEnd()
		})
	}
}

// awaitEnd waits until the connection has ended.
func (c *client) awaitEnd() {
	c.t.Helper()
	kit.Receive(c.t, "the end of the connection", c.Done())
}

// whileConnected returns a context that ends with the connection: paho waits for its own timeout.
func (c *client) whileConnected() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.t.Context())
	go func() {
		select {
		case <-c.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

package enrolment_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// authority returns a new authority, and a function that issues certificates with a subject.
func authority(t testing.TB) (ca tls.Certificate, issue func(name, unit string) tls.Certificate) {
	t.Helper()
	sign := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) tls.Certificate {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		kit.NoError(t, err)
		if parent == nil {
			parent, signer = template, key
		}
		template.NotBefore, template.NotAfter, template.SerialNumber, template.BasicConstraintsValid = now.Add(-time.Hour), now.Add(24*time.Hour), big.NewInt(now.UnixNano()), true
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		kit.NoError(t, err)
		leaf, err := x509.ParseCertificate(der)
		kit.NoError(t, err)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	}
	ca = sign(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	return ca, func(name, unit string) tls.Certificate {
		return sign(&x509.Certificate{
			Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{unit}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, ca.Leaf, ca.PrivateKey.(*ecdsa.PrivateKey))
	}
}

func token(t testing.TB) (enrolment.Token, enrolment.Grant) {
	t.Helper()
	ca, _ := authority(t)
	made, grant, err := enrolment.New(enrolment.Token{
		Broker: "broker.example.com:8883", Source: "hub1", Username: "joiner", Password: "public", Authorities: ca.Certificate,
		Topics: wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"},
	})
	kit.NoError(t, err)
	grant.Uses, grant.Expires = 1, now.Add(time.Hour)
	return made, grant
}

func key(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	made, err := enrolment.NewKey()
	kit.NoError(t, err)
	return made
}

// request returns a request of a device, with a CSR for another key.
func request(t testing.TB, cluster wire.ClusterName, device *ecdsa.PrivateKey) enrolment.Request {
	t.Helper()
	public, err := enrolment.DeviceOf(device)
	kit.NoError(t, err)
	csr, err := enrolment.NewCSR(cluster, key(t))
	kit.NoError(t, err)
	return enrolment.Request{ID: enrolment.NewID(), Source: "hub1", Cluster: cluster, Device: public, CSR: csr}
}

// TestToken: a token survives as text, in pieces too, and what is no token says so.
func TestToken(t *testing.T) {
	made, grant := token(t)
	text := made.String()
	t.Logf("%d bytes", len(text))
	for _, copied := range []string{text, text + "\n", text[:70] + "\n" + text[70:]} {
		got, err := enrolment.ParseToken(copied)
		kit.NoError(t, err)
		if got.String() != text || got.ID() != grant.ID() || got.Source != "hub1" || got.Password != "public" {
			t.Errorf("got %+v", got)
		}
	}
	kept := made.Joined()
	if got, err := enrolment.ParseToken(kept.String()); err != nil || got.Key() != nil || got.ID() != "" {
		t.Errorf("what is kept of a token: %v, key %v", err, got.Key())
	}
	half := made
	half.Authorities = nil
	for text, want := range map[string]string{
		"": "this is no token", "hunter2": "this is no token", text[:len(text)-9]: "damaged", text[:40] + "*" + text[41:]: "damaged",
		"workwire-join-" + strings.Repeat("A", 1<<20): "this is no token", half.String(): "names no authority",
		"workwire-join-": "damaged",
	} {
		if _, err := enrolment.ParseToken(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.30q: got %v, want %q", text, err, want)
		}
	}
}

// TestGrantSaysNothing: with what the hub keeps, nobody joins.
func TestGrantSaysNothing(t *testing.T) {
	made, grant := token(t)
	text, err := json.Marshal(grant)
	kit.NoError(t, err)
	for _, secret := range [][]byte{made.Seed, made.Key()} {
		coded, err := json.Marshal(secret)
		kit.NoError(t, err)
		if strings.Contains(string(text), strings.Trim(string(coded), `"`)) {
			t.Errorf("the grant %s has the secret of the token", text)
		}
	}
}

// Extensions of X.509 (RFC 5280, 4.2.1.3, 4.2.1.9 and 4.2.1.12).
var (
	keyUsage         = asn1.ObjectIdentifier{2, 5, 29, 15}
	basicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	extKeyUsage      = asn1.ObjectIdentifier{2, 5, 29, 37}
	serverAuth       = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
)

func extension(t testing.TB, id asn1.ObjectIdentifier, value any) pkix.Extension {
	t.Helper()
	der, err := asn1.Marshal(value)
	kit.NoError(t, err)
	return pkix.Extension{Id: id, Critical: true, Value: der}
}

// TestRequest: a request is read as it was signed, and none that was changed, signed by others, or asks for more.
func TestRequest(t *testing.T) {
	made, grant := token(t)
	device := key(t)
	good := request(t, "berlin", device)
	event := func(r enrolment.Request) cloudevents.Event {
		t.Helper()
		e, err := r.Sign(device, made.Key())
		kit.NoError(t, err)
		return e
	}
	p, err := enrolment.ReadRequest(event(good), "hub1")
	kit.NoError(t, err)
	if !p.Proves(grant) || p.Cluster != "berlin" || p.DeviceHash != enrolment.HashOf(good.Device) {
		t.Errorf("got %+v", p)
	}
	if _, other := token(t); p.Proves(other) {
		t.Error("it proves a token that it was not signed with")
	}
	csr := func(template *x509.CertificateRequest, signer any) []byte {
		t.Helper()
		der, err := x509.CreateCertificateRequest(rand.Reader, template, signer)
		kit.NoError(t, err)
		return der
	}
	subject := pkix.Name{CommonName: "berlin", OrganizationalUnit: []string{"agents"}}
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	kit.NoError(t, err)
	other, err := enrolment.DeviceOf(key(t))
	kit.NoError(t, err)
	for name, change := range map[string]func(*enrolment.Request){
		"another hub":               func(r *enrolment.Request) { r.Source = "hub2" },
		"another device's key":      func(r *enrolment.Request) { r.Device = other },
		"no device":                 func(r *enrolment.Request) { r.Device = nil },
		"an id that can be guessed": func(r *enrolment.Request) { r.ID = "1" },
		"an id of a topic":          func(r *enrolment.Request) { r.ID = "+/" + r.ID[2:] },
		"no name":                   func(r *enrolment.Request) { r.Cluster = "" },
		"a name of a topic":         func(r *enrolment.Request) { r.Cluster = "a/b" },
		"a long challenge":          func(r *enrolment.Request) { r.Challenge = make([]byte, 1000) },
		"no CSR":                    func(r *enrolment.Request) { r.CSR = nil },
		"a CSR for another name":    func(r *enrolment.Request) { r.Cluster = "paris" },
		"a CSR of a source": func(r *enrolment.Request) {
			r.CSR = csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "berlin", OrganizationalUnit: []string{"sources"}}}, key(t))
		},
		"a CSR of two roles": func(r *enrolment.Request) {
			r.CSR = csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "berlin", OrganizationalUnit: []string{"agents", "sources"}}}, key(t))
		},
		"a CSR with a host": func(r *enrolment.Request) {
			r.CSR = csr(&x509.CertificateRequest{Subject: subject, DNSNames: []string{"hub"}}, key(t))
		},
		"a CSR of an authority": func(r *enrolment.Request) {
			r.CSR = csr(&x509.CertificateRequest{Subject: subject, ExtraExtensions: []pkix.Extension{extension(t, basicConstraints, struct{ IsCA bool }{true})}}, key(t))
		},
		"a CSR to sign certificates": func(r *enrolment.Request) {
			r.CSR = csr(&x509.CertificateRequest{Subject: subject, ExtraExtensions: []pkix.Extension{extension(t, keyUsage, asn1.BitString{Bytes: []byte{1 << 2}, BitLength: 6})}}, key(t))
		},
		"a CSR of a server": func(r *enrolment.Request) {
			r.CSR = csr(&x509.CertificateRequest{Subject: subject, ExtraExtensions: []pkix.Extension{extension(t, extKeyUsage, []asn1.ObjectIdentifier{serverAuth})}}, key(t))
		},
		"a CSR with an RSA key":     func(r *enrolment.Request) { r.CSR = csr(&x509.CertificateRequest{Subject: subject}, large) },
		"a CSR with a changed byte": func(r *enrolment.Request) { r.CSR = append([]byte(nil), r.CSR...); r.CSR[len(r.CSR)-1] ^= 1 },
		"a long CSR": func(r *enrolment.Request) {
			r.CSR = csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: strings.Repeat("a", 5000)}}, key(t))
		},
	} {
		changed := good
		change(&changed)
		if _, err := enrolment.ReadRequest(event(changed), "hub1"); err == nil {
			t.Errorf("%s: the request is believed", name)
		}
	}
	e := event(good)
	kit.NoError(t, e.SetData(cloudevents.ApplicationJSON, []byte(strings.Replace(string(e.Data()), `"content":"ey`, `"content":"eyAg`, 1))))
	if _, err := enrolment.ReadRequest(e, "hub1"); err == nil {
		t.Error("a request that was changed on its way is believed")
	}
}

// TestAnswer: only the hub's own answer counts, to this request, with a certificate for this key.
func TestAnswer(t *testing.T) {
	ca, issue := authority(t)
	stranger, forged := authority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	next := key(t)
	cert, err := certificates.IssueAgent(ca, "berlin", &next.PublicKey, time.Hour, now)
	kit.NoError(t, err)
	trust := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate[0]})
	answer := enrolment.Answer{Request: "r1", Certificate: cert, Trust: trust}
	read := func(signer tls.Certificate, request string) error {
		e, err := answer.Sign("hub1", signer)
		kit.NoError(t, err)
		_, err = enrolment.ReadAnswer(e, request, "hub1", pool, now)
		return err
	}
	kit.NoError(t, read(issue("hub1", "sources"), "r1"))
	kit.NoError(t, read(issue("source.hub1", "sources"), "r1")) // as Mosquitto has it
	for name, err := range map[string]error{
		"another request":    read(issue("hub1", "sources"), "r2"),
		"another source":     read(issue("hub2", "sources"), "r1"),
		"an agent":           read(issue("hub1", "agents"), "r1"),
		"another authority":  read(forged("hub1", "sources"), "r1"),
		"the authority":      read(ca, "r1"),
		"a stranger himself": read(stranger, "r1"),
	} {
		if err == nil {
			t.Errorf("the answer of %s counts", name)
		}
	}
	kit.NoError(t, answer.Check("berlin", next, now))
	if answer.Check("paris", next, now) == nil || answer.Check("berlin", key(t), now) == nil || answer.Check("berlin", next, now.Add(25*time.Hour)) == nil {
		t.Error("a certificate for another name, another key or another time can be used")
	}
	answer.Trust = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stranger.Certificate[0]})
	if answer.Check("berlin", next, now) == nil {
		t.Error("a certificate of no authority of the answer can be used")
	}
}

// TestChallenge: a challenge counts once it was given to this device, for ten minutes.
func TestChallenge(t *testing.T) {
	c := enrolment.NewChallenges()
	challenged := func(device string, challenge []byte) enrolment.Proven {
		return enrolment.Proven{Request: enrolment.Request{Challenge: challenge}, DeviceHash: device}
	}
	given := c.New("device1", now)
	whole := now.Truncate(time.Second) // a challenge has the second of its time
	if !c.Answered(challenged("device1", given), whole.Add(enrolment.ChallengeAge)) {
		t.Error("a challenge does not count")
	}
	changed := append([]byte(nil), given...)
	changed[7]++
	for name, answered := range map[string]bool{
		"none": c.Answered(challenged("device1", nil), now), "of another device": c.Answered(challenged("device2", given), now),
		"old": c.Answered(challenged("device1", given), whole.Add(enrolment.ChallengeAge+1)), "ahead": c.Answered(challenged("device1", given), whole.Add(-enrolment.ChallengeAge)),
		"changed":        c.Answered(challenged("device1", changed), now),
		"of another hub": enrolment.NewChallenges().Answered(challenged("device1", given), now),
	} {
		if answered {
			t.Errorf("a challenge that is %s counts", name)
		}
	}
}

func TestDecide(t *testing.T) {
	made, grant := token(t)
	device := key(t)
	r := request(t, "berlin", device)
	proven := func(change func(*enrolment.Request), signed bool) enrolment.Proven {
		t.Helper()
		asked := r
		asked.Token = made.ID()
		if change != nil {
			change(&asked)
		}
		k := made.Key()
		if !signed {
			k = nil
		}
		e, err := asked.Sign(device, k)
		kit.NoError(t, err)
		p, err := enrolment.ReadRequest(e, "hub1")
		kit.NoError(t, err)
		return p
	}
	with := proven(nil, true)
	without := proven(func(r *enrolment.Request) { r.Token = "" }, false)
	own := with.DeviceHash
	given := func(change func(*enrolment.Grant)) *enrolment.Grant {
		g := grant
		g.Approve = true
		if change != nil {
			change(&g)
		}
		return &g
	}
	named := given(func(g *enrolment.Grant) { g.Clusters = []wire.ClusterName{"berlin"} })
	replacing, byHand := given(func(g *enrolment.Grant) { *g = *named; g.Replace = true }), given(func(g *enrolment.Grant) { *g = *named; g.Replace, g.Approve = true, false })
	const year = 365 * 24 * time.Hour
	id := made.ID()
	for _, test := range []struct {
		name  string
		p     enrolment.Proven
		grant *enrolment.Grant
		used  int
		known enrolment.Known
		want  enrolment.Verdict
	}{
		{"a new cluster", with, given(nil), 0, enrolment.Known{}, enrolment.Verdict{Approve: true, Register: true}},
		{"by hand", with, &grant, 0, enrolment.Known{}, enrolment.Verdict{Register: true}},
		{"registered, not approved yet", with, given(nil), 0, enrolment.Known{Exists: true, Device: own, Tokens: []string{id}}, enrolment.Verdict{Approve: true}},
		{"registered with a token that does not approve", with, given(nil), 0, enrolment.Known{Exists: true, Device: own, Tokens: []string{"other"}}, enrolment.Verdict{}},
		{"waits for approval", with, &grant, 0, enrolment.Known{Exists: true, Device: own, Tokens: []string{id}}, enrolment.Verdict{}},
		{"without a token, not let in yet", without, nil, 0, enrolment.Known{Exists: true, Device: own, Tokens: []string{id}}, enrolment.Verdict{}},
		{"another device with this token", with, replacing, 0, enrolment.Known{Exists: true, Device: "other", Tokens: []string{id}}, enrolment.Verdict{Reason: enrolment.TokenUsed}},
		{"another device with this token before the last one", with, replacing, 0, enrolment.Known{Exists: true, Device: "other", Tokens: []string{"last", id}}, enrolment.Verdict{Reason: enrolment.TokenUsed}},
		{"used up", with, given(nil), 1, enrolment.Known{}, enrolment.Verdict{Reason: enrolment.TokenUsed}},
		{"one use left", with, given(func(g *enrolment.Grant) { g.Uses = 2 }), 1, enrolment.Known{}, enrolment.Verdict{Approve: true, Register: true}},
		{"expired", with, given(func(g *enrolment.Grant) { g.Expires = now }), 0, enrolment.Known{}, enrolment.Verdict{Reason: enrolment.TokenExpired}},
		{"for others", with, given(func(g *enrolment.Grant) { g.Clusters = []wire.ClusterName{"paris"} }), 0, enrolment.Known{}, enrolment.Verdict{Reason: enrolment.NameNotAllowed}},
		{"for another prefix", with, given(func(g *enrolment.Grant) { g.Prefix = "shop-" }), 0, enrolment.Known{}, enrolment.Verdict{Reason: enrolment.NameNotAllowed}},
		{"for its prefix", with, given(func(g *enrolment.Grant) { g.Prefix = "ber" }), 0, enrolment.Known{}, enrolment.Verdict{Approve: true, Register: true}},
		{"deleted token", with, nil, 0, enrolment.Known{}, enrolment.Verdict{Reason: enrolment.UnknownToken}},
		{"guessed token", proven(nil, false), given(nil), 0, enrolment.Known{}, enrolment.Verdict{Reason: enrolment.UnknownToken}},
		{"no token", without, nil, 0, enrolment.Known{}, enrolment.Verdict{Reason: enrolment.UnknownDevice}},
		{"no token, the name of another", without, nil, 0, enrolment.Known{Exists: true, Device: "other", Expires: now}, enrolment.Verdict{Reason: enrolment.UnknownDevice}},
		{"the name of another", with, given(nil), 0, enrolment.Known{Exists: true, Device: "other"}, enrolment.Verdict{Reason: enrolment.NameTaken}},
		{"the name of another, named", with, named, 0, enrolment.Known{Exists: true, Device: "other"}, enrolment.Verdict{Reason: enrolment.NameTaken}},
		{"in place of another", with, replacing, 0, enrolment.Known{Exists: true, Device: "other"}, enrolment.Verdict{Approve: true, Register: true}},
		{"in place of another, by hand", with, byHand, 0, enrolment.Known{Exists: true, Device: "other"}, enrolment.Verdict{Reason: enrolment.NameTaken}},
		{"a new cluster, with a token that replaces, by hand", with, byHand, 0, enrolment.Known{}, enrolment.Verdict{Register: true}},
		{"again, with a token that replaces, by hand", with, byHand, 0, enrolment.Known{Exists: true, Device: own, Expires: now.Add(-year - 1)}, enrolment.Verdict{Register: true}},
		{"as many certificates as it may have", without, nil, 0, enrolment.Known{Exists: true, Device: own, Expires: now.Add(time.Hour), Valid: enrolment.MaxCertificates}, enrolment.Verdict{Reason: enrolment.Busy}},
		{"one certificate less", without, nil, 0, enrolment.Known{Exists: true, Device: own, Expires: now.Add(time.Hour), Valid: enrolment.MaxCertificates - 1}, enrolment.Verdict{Approve: true}},
		{"a cluster that joined otherwise", with, given(nil), 0, enrolment.Known{Exists: true}, enrolment.Verdict{Reason: enrolment.NameTaken}},
		{"a cluster made beforehand", with, named, 0, enrolment.Known{Exists: true}, enrolment.Verdict{Approve: true, Register: true}},
		{"renewal", without, nil, 0, enrolment.Known{Exists: true, Device: own, Expires: now.Add(time.Hour)}, enrolment.Verdict{Approve: true}},
		{"back in time", without, nil, 0, enrolment.Known{Exists: true, Device: own, Expires: now.Add(-year)}, enrolment.Verdict{Approve: true}},
		{"back too late", without, nil, 0, enrolment.Known{Exists: true, Device: own, Expires: now.Add(-year - 1)}, enrolment.Verdict{Reason: enrolment.AwayTooLong}},
		{"back too late, with a token", with, given(nil), 0, enrolment.Known{Exists: true, Device: own, Expires: now.Add(-year - 1)}, enrolment.Verdict{Approve: true, Register: true}},
		{"revoked", without, nil, 0, enrolment.Known{Exists: true, Device: own, Expires: now.Add(time.Hour), Revoked: true}, enrolment.Verdict{Reason: enrolment.Revoked}},
		{"revoked, with a token", with, named, 0, enrolment.Known{Exists: true, Device: own, Revoked: true}, enrolment.Verdict{Reason: enrolment.Revoked}},
		{"being deleted", with, named, 0, enrolment.Known{Exists: true, Device: own, Deleting: true}, enrolment.Verdict{Reason: enrolment.Busy}},
	} {
		got := enrolment.Decide(test.p, test.grant, test.used, test.known, year, now)
		if (got.Message == "") != (got.Reason == "") {
			t.Errorf("%s: reason %q, message %q", test.name, got.Reason, got.Message)
		}
		got.Message = ""
		if got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestGrantValidate(t *testing.T) {
	_, grant := token(t)
	kit.NoError(t, grant.Validate(now))
	for want, change := range map[string]func(*enrolment.Grant){
		"uses must be":      func(g *enrolment.Grant) { g.Uses = 0 },
		"expires must be":   func(g *enrolment.Grant) { g.Expires = now },
		"not both":          func(g *enrolment.Grant) { g.Clusters, g.Prefix = []wire.ClusterName{"a"}, "a" },
		"is no name":        func(g *enrolment.Grant) { g.Clusters = []wire.ClusterName{"A"} },
		"replace needs the": func(g *enrolment.Grant) { g.Replace = true },
		"needs approve":     func(g *enrolment.Grant) { g.Replace, g.Approve, g.Clusters = true, false, []wire.ClusterName{"a"} },
		"publicKey is none": func(g *enrolment.Grant) { g.PublicKey = nil },
	} {
		g := grant
		change(&g)
		if err := g.Validate(now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// FuzzRead: whatever comes from the broker is refused or read, and never ends the program.
func FuzzRead(f *testing.F) {
	made, _ := token(f)
	device := key(f)
	e, err := request(f, "berlin", device).Sign(device, made.Key())
	kit.NoError(f, err)
	f.Add(e.Data(), e.Type())
	f.Add([]byte(`{"content":"e30=","chain":["AA=="]}`), "dev.workwire.v1alpha1.joins.status.update_request")
	f.Fuzz(func(t *testing.T, data []byte, kind string) {
		e := cloudevents.New()
		e.SetID("1")
		e.SetSource("a")
		e.SetType(kind)
		kit.NoError(t, e.SetData(cloudevents.ApplicationJSON, data))
		if p, err := enrolment.ReadRequest(e, "hub1"); err == nil && p.Source != "hub1" {
			t.Errorf("read %+v", p)
		}
		if _, err := enrolment.ReadAnswer(e, "r", "hub1", x509.NewCertPool(), now); err == nil {
			t.Error("an answer of nobody counts")
		}
	})
}

// FuzzParseToken: a text is refused, or is a token whose text is a token.
func FuzzParseToken(f *testing.F) {
	made, _ := token(f)
	f.Add(made.String())
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := enrolment.ParseToken(text)
		if err != nil {
			return
		}
		if again, err := enrolment.ParseToken(parsed.String()); err != nil || again.String() != parsed.String() {
			t.Errorf("%q becomes %v", text, err)
		}
	})
}

package certificates

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/test/kit"
)

// installation is a directory with a manager, and a clock that the test sets.
type installation struct {
	*testing.T
	dir     string
	manager *Manager
	now     time.Time
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	p := &installation{T: t, dir: t.TempDir(), now: time.Now()}
	p.list(example)
	return p
}

func (p *installation) list(text string) {
	p.Helper()
	config, err := Parse([]byte(text))
	kit.NoError(p, err)
	p.manager, err = New(ManagerConfig{Config: config, Dir: p.dir, Now: func() time.Time { return p.now }})
	kit.NoError(p, err)
}

func (p *installation) ensure(renew ...string) Report {
	p.Helper()
	report, err := p.manager.Ensure(renew...)
	kit.NoError(p, err)
	return report
}

func (p *installation) rotate(step Step) Report {
	p.Helper()
	report, err := p.manager.Rotate(step)
	kit.NoError(p, err)
	return report
}

// renewed returns the names of the issued certificates.
func renewed(r Report) string {
	var names []string
	for _, o := range r.Outcomes {
		if o.RenewalReason != "" {
			names = append(names, o.Name)
		}
	}
	return strings.Join(names, " ")
}

func (p *installation) read(name string) []byte {
	p.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	kit.NoError(p, err)
	return data
}

func (p *installation) cert(directory string) *x509.Certificate {
	p.Helper()
	pair, err := tls.X509KeyPair(p.read(directory+"/tls.crt"), p.read(directory+"/tls.key"))
	kit.NoError(p, err)
	return pair.Leaf
}

// trusted reports whether cert is valid for the trusted authorities in directory.
func (p *installation) trusted(directory string, cert *x509.Certificate) bool {
	p.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.read(directory + "/ca.crt"))
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: p.now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

func TestEnsure(t *testing.T) {
	p := newInstallation(t)
	if r := p.ensure(); renewed(r) != "broker hub1 cluster1" || !strings.HasPrefix(r.Authority, "created the authority example ") {
		t.Errorf("at first: %+v", r)
	}
	if r := p.ensure(); renewed(r) != "" || r.Authority != "" || len(r.Outcomes) != 3 {
		t.Errorf("again: %+v", r)
	}
	hub := p.cert("hub1")
	if hub.Subject.String() != "CN=source.hub1,OU=sources" || hub.IsCA || len(hub.ExtKeyUsage) != 1 || hub.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth ||
		len(hub.SubjectKeyId) != 20 || hub.SerialNumber.Sign() <= 0 || !hub.NotBefore.Before(p.now) || !p.trusted("broker", hub) {
		t.Errorf("the hub's certificate is %+v", hub)
	}
	broker := p.cert("broker")
	if broker.VerifyHostname("broker.example.com") != nil || broker.VerifyHostname("::1") != nil || broker.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Errorf("the broker's certificate is %+v", broker)
	}
	for name, want := range map[string]fs.FileMode{"hub1/tls.key": 0o600, "agents/1/tls.crt": 0o644, "ca/ca.key": 0o600, "ca": 0o700 | fs.ModeDir} {
		info, err := os.Stat(filepath.Join(p.dir, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, "*", ".tls*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
	if r := p.ensure("hub1"); renewed(r) != "hub1" {
		t.Errorf("asked for hub1: %+v", r)
	}
	if _, err := p.manager.Ensure("nobody"); err == nil {
		t.Error("an unknown name is accepted")
	}
	p.now = p.now.Add(17 * time.Hour)
	if r := p.ensure(); renewed(r) != "cluster1" {
		t.Errorf("after two thirds of a day: %+v", r)
	}
	if r := p.ensure(All); renewed(r) != "broker hub1 cluster1" {
		t.Errorf("all: %+v", r)
	}
	kit.NoError(t, os.WriteFile(filepath.Join(p.dir, "hub1/tls.key"), p.read("broker/tls.key"), 0o644))
	if r := p.ensure(); renewed(r) != "hub1" {
		t.Errorf("with another's key: %+v", r)
	}
	kit.NoError(t, os.Chmod(filepath.Join(p.dir, "broker/tls.key"), 0o644))
	p.ensure()
	if info, err := os.Stat(filepath.Join(p.dir, "broker/tls.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a key that everybody could read stays so: %v, %v", info.Mode(), err)
	}
}

// TestEnsureAtOnce calls Ensure concurrently: only one authority may be created.
func TestEnsureAtOnce(t *testing.T) {
	p := newInstallation(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := p.manager.Ensure(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if r := p.ensure(); renewed(r) != "" {
		t.Errorf("afterwards: %+v", r)
	}
}

func TestRenewalReason(t *testing.T) {
	now := time.Now()
	day := 24 * time.Hour
	authority := func() *issuer {
		i, err := newIssuer(Authority{Name: "test", Validity: metav1.Duration{Duration: 100 * day}}, now)
		kit.NoError(t, err)
		return i
	}
	current, other := authority(), authority()
	want := Certificate{Name: "broker", CommonName: "broker", Role: Broker, Hosts: []string{"b.example.com", "10.0.0.1"}, Validity: metav1.Duration{Duration: 30 * day}}
	issue := func(i *issuer, change func(*Certificate)) installed {
		c := want
		if change != nil {
			change(&c)
		}
		cert, _, _, err := i.issue(c, now)
		kit.NoError(t, err)
		return installed{cert: cert}
	}
	gone := issue(current, nil)
	kit.NoError(t, current.revoke([]*big.Int{gone.cert.SerialNumber}, now))
	good := issue(current, nil)
	long := issue(current, func(c *Certificate) { c.Validity = metav1.Duration{Duration: 1000 * day} })
	for name, test := range map[string]struct {
		have installed
		at   time.Duration
		want string
	}{
		"none":                 {installed{}, 0, "does not exist"},
		"broken":               {installed{err: errors.New("no PEM")}, 0, "no PEM"},
		"good":                 {good, 0, ""},
		"before two thirds":    {good, 19 * day, ""},
		"after two thirds":     {good, 20 * day, "two thirds"},
		"expired":              {good, 31 * day, "expired"},
		"another authority":    {issue(other, nil), 0, "another authority"},
		"revoked":              {gone, 0, "revoked"},
		"another name":         {issue(current, func(c *Certificate) { c.CommonName = "b2" }), 0, "another name or role"},
		"another role":         {issue(current, func(c *Certificate) { c.Role = Agent }), 0, "another name or role"},
		"a host less":          {issue(current, func(c *Certificate) { c.Hosts = c.Hosts[:1] }), 0, "other hosts"},
		"another address":      {issue(current, func(c *Certificate) { c.Hosts = []string{"b.example.com", "10.0.0.2"} }), 0, "other hosts"},
		"hosts in other order": {issue(current, func(c *Certificate) { c.Hosts = []string{"10.0.0.1", "B.example.com"} }), 0, ""},
		"ends with authority":  {long, 80 * day, ""}, // a new one would not last longer
		"ended with authority": {long, 101 * day, "expired"},
		"server in broker's":   {issue(current, func(c *Certificate) { c.Role = Server }), 0, ""}, // they are alike
	} {
		got := renewalReason(want, test.have, current, now.Add(test.at))
		if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestRotate(t *testing.T) {
	p := newInstallation(t)
	if _, err := p.manager.Rotate(Trust); err == nil {
		t.Error("an authority that is not there is replaced")
	}
	p.ensure()
	refuse := func(step Step) {
		t.Helper()
		if _, err := p.manager.Rotate(step); err == nil {
			t.Errorf("step %s is taken out of order", step)
		}
	}
	nothing := func(step Step) {
		t.Helper()
		if r := p.rotate(step); r.Authority != "" || renewed(r) != "" {
			t.Errorf("repeated step %s: %+v", step, r)
		}
	}
	refuse(Issue)
	refuse("other")
	nothing(Drop)
	old := p.cert("hub1")

	if r := p.rotate(Trust); renewed(r) != "" || !r.Outcomes[0].Updated {
		t.Errorf("trust: %+v", r)
	}
	nothing(Trust)
	refuse(Drop)
	trust := p.read("broker/ca.crt")
	if r := p.ensure("cluster1"); renewed(r) != "cluster1" || p.cert("agents/1").Issuer.String() != old.Issuer.String() {
		t.Error("the next authority issues before its time")
	}

	if r := p.rotate(Issue); renewed(r) != "broker hub1 cluster1" {
		t.Errorf("issue: %+v", r)
	}
	nothing(Issue)
	refuse(Trust)
	fresh := p.cert("hub1")
	if fresh.Issuer.String() == old.Issuer.String() || !p.trusted("broker", fresh) || !p.trusted("broker", old) {
		t.Error("after issue: one of the two is not trusted")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trust)
	if _, err := fresh.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Errorf("who has what trust wrote does not accept what issue wrote: %v", err)
	}

	key := p.read("ca/former.key")
	kit.NoError(t, os.Remove(filepath.Join(p.dir, "hub1", "tls.crt"))) // as an issue that has failed for it leaves it
	if r := p.rotate(Drop); renewed(r) != "hub1" || len(r.Outcomes) != 3 || !r.Outcomes[1].Updated {
		t.Errorf("drop: %+v", r)
	}
	fresh = p.cert("hub1")
	kit.NoError(t, os.WriteFile(filepath.Join(p.dir, "ca", "former.key"), key, 0o600)) // as a drop that was interrupted leaves it
	nothing(Drop)
	if p.trusted("broker", old) || !p.trusted("broker", fresh) {
		t.Error("after drop: the wrong one is trusted")
	}
	if left, _ := filepath.Glob(filepath.Join(p.dir, "ca", "*er*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// TestKilledDuringPromotion stops the promotion after each of its renames.
func TestKilledDuringPromotion(t *testing.T) {
	for done := range extensions {
		p := newInstallation(t)
		p.ensure()
		p.rotate(Trust)
		next := p.read("ca/next.crt")
		a, err := openAuthorities(filepath.Join(p.dir, "ca"))
		kit.NoError(t, err)
		kit.NoError(t, a.write(formerFiles, a.current))
		for _, extension := range extensions[:done] {
			kit.NoError(t, os.Rename(a.path(nextFiles+extension), a.path(currentFiles+extension)))
		}
		if r := p.rotate(Issue); renewed(r) != "broker hub1 cluster1" {
			t.Errorf("killed after %d renames: %+v", done, r)
		}
		if !bytes.Equal(p.read("ca/ca.crt"), next) {
			t.Errorf("killed after %d renames: the next authority is not the current one", done)
		}
		p.rotate(Drop)
	}
}

// TestIncompleteAuthority checks that a missing file is an error: a new authority would invalidate
// all certificates.
func TestIncompleteAuthority(t *testing.T) {
	for _, name := range []string{"ca.crt", "ca.key"} {
		p := newInstallation(t)
		p.ensure()
		kit.NoError(t, os.Remove(filepath.Join(p.dir, "ca", name)))
		if _, err := p.manager.Ensure(); err == nil || !strings.Contains(err.Error(), "restore the") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

func TestRevoke(t *testing.T) {
	p := newInstallation(t)
	p.ensure()
	p.ensure("hub1")
	first := p.cert("hub1")
	p.rotate(Trust)
	p.rotate(Issue)
	// Two of the former authority, one of the current one.
	if n, err := p.manager.Revoke("hub1"); n != 3 || err != nil {
		t.Errorf("revoked %d, %v, want 3", n, err)
	}
	if _, err := p.manager.Revoke("nobody"); err == nil {
		t.Error("nobody's certificates are revoked")
	}
	a, err := openAuthorities(filepath.Join(p.dir, "ca"))
	kit.NoError(t, err)
	if !a.former.hasRevoked(first.SerialNumber) || !a.current.hasRevoked(p.cert("hub1").SerialNumber) || a.current.hasRevoked(p.cert("broker").SerialNumber) {
		t.Error("the wrong ones are revoked")
	}
	if !bytes.Equal(p.read("broker/ca.crl"), a.revocations()) {
		t.Error("the broker's list is another one")
	}
	if r := p.ensure(); renewed(r) != "hub1" {
		t.Errorf("afterwards: %+v", r)
	}
	// A name that is no longer listed can be revoked.
	p.list("authority: {directory: ca, validity: 8760h}\ncertificates: [{name: broker, role: broker, hosts: [b]}]")
	if n, err := p.manager.Revoke("cluster1"); n == 0 || err != nil {
		t.Errorf("revoked %d, %v", n, err)
	}
	p.now = p.now.Add(9000 * time.Hour)
	if _, err := p.manager.Revoke("cluster1"); err == nil {
		t.Error("expired certificates are revoked")
	}
}

func TestStatus(t *testing.T) {
	p := newInstallation(t)
	if _, err := p.manager.Status(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without an authority: %v", err)
	}
	p.ensure()
	p.now = p.now.Add(20 * time.Hour)
	state, err := p.manager.Status()
	kit.NoError(t, err)
	if len(state.Authorities) != 1 || state.Authorities[0].Place != "current" || len(state.Certificates) != 3 ||
		state.Certificates[0].RenewalReason != "" || state.Certificates[2].RenewalReason == "" || state.Certificates[0].Issuer != state.Authorities[0].Name {
		t.Errorf("state is %+v", state)
	}
	p.now = p.now.Add(7000 * time.Hour)
	if r := p.ensure(); len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "rotate-authority") {
		t.Errorf("warnings about an old authority: %q", r.Warnings)
	}
	p.now = p.now.Add(7000 * time.Hour)
	if _, err := p.manager.Ensure(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("with an expired authority: %v", err)
	}
}

func TestSecret(t *testing.T) {
	p := newInstallation(t)
	if _, err := p.manager.Secret("hub1", "ns", ""); err == nil {
		t.Error("a Secret of nothing")
	}
	p.ensure()
	text, err := p.manager.Secret("hub1", "ns", "")
	kit.NoError(t, err)
	for _, want := range []string{"kind: Secret\n", "type: kubernetes.io/tls\n", "  name: hub1\n", "  namespace: ns\n", "  tls.crt: ", "  tls.key: ", "  ca.crt: "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the Secret lacks %q:\n%s", want, text)
		}
	}
	if text, err = p.manager.Secret("broker", "ns", "tls"); err != nil || !strings.Contains(string(text), "  ca.crl: ") || !strings.Contains(string(text), "  name: tls\n") {
		t.Errorf("%v:\n%s", err, text)
	}
	if _, err := p.manager.Secret("nobody", "ns", ""); err == nil {
		t.Error("a Secret of nobody")
	}
}

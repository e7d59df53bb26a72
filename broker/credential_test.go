package broker

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/test/kit"
)

func TestCredentialEnds(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	certificate := func(serial int64, expires time.Duration) *x509.Certificate {
		return &x509.Certificate{RawIssuer: []byte("ca"), SerialNumber: big.NewInt(serial), NotAfter: now.Add(expires), Subject: pkix.Name{CommonName: "c1", OrganizationalUnit: []string{"a: b, c", "agents"}}}
	}
	first, second := mustHash(t, "first"), mustHash(t, "second")
	file := filepath.Join(t.TempDir(), "passwd")
	kit.NoError(t, os.WriteFile(file, []byte(first+"\n"), 0o600))
	auth, err := newAuthenticator(Config{Users: []User{
		{Username: "c1", PasswordHash: first, Role: acl.Agent},
		{Username: "moved", ID: "c3", PasswordHash: first, Role: acl.Agent},
		{Username: "file", PasswordFile: file, Role: acl.Agent},
		{Username: "embedded", Password: "x", Role: acl.Agent},
		{Username: "token", PasswordHash: first, Role: acl.Joiner},
	}}, limits.New(limits.Config{}))
	kit.NoError(t, err)
	revoked := map[string]struct{}{certificateKey(revocationKey([]byte("ca"), big.NewInt(2))): {}}
	v := validity{now: now, users: auth.accounts.Load().states(), revoked: []map[string]struct{}{nil, revoked},
		authorities: []map[string]struct{}{{"a1": {}}, nil, {"a2": {}}}, mapped: map[string]Certificate{"odd: name,": {CommonName: "odd: name,", Role: acl.Agent, ID: "c5"}}}
	odd := certificate(1, time.Hour)
	odd.Subject = pkix.Name{CommonName: "odd: name,"}
	listed, ca := certificate(1, time.Hour), &x509.Certificate{RawSubjectPublicKeyInfo: []byte("of the authority")}
	listed.RawSubjectPublicKeyInfo = []byte("of the certificate")
	v.authorities[1] = map[string]struct{}{authorityKey(listed): {}}
	former := "certificate:" + certificateKey("x") + ":" + strconv.FormatInt(now.Add(time.Hour).Unix(), 10)
	for name, test := range map[string]struct {
		owner, credential string
		want              bool
	}{
		"same password":               {"agent:c1", passwordCredential("c1", first), false},
		"new password":                {"agent:c1", passwordCredential("c1", second), true},
		"same password in a file":     {"agent:file", passwordCredential("file", first), false},
		"no such user any more":       {"agent:c9", passwordCredential("c9", first), true},
		"user is somebody else":       {"agent:c2", passwordCredential("moved", first), true},
		"password of the program":     {"agent:embedded", passwordCredential("embedded", ""), false},
		"a joiner":                    {acl.Identity{Role: acl.Joiner, ID: "token"}.Account().String(), passwordCredential("token", first), false},
		"certificate":                 {"agent:c1", certificateCredential(certificate(1, time.Hour), []string{"gone", "a2"}), false},
		"expired certificate":         {"agent:c1", certificateCredential(certificate(1, 0), []string{"a1"}), true},
		"revoked certificate":         {"agent:c1", certificateCredential(certificate(2, time.Hour), []string{"a1"}), true},
		"authority dropped":           {"agent:c1", certificateCredential(certificate(1, time.Hour), []string{"gone"}), true},
		"no authority":                {"agent:c1", certificateCredential(certificate(1, time.Hour), nil), true},
		"trusted itself":              {"agent:c1", certificateCredential(listed, authoritiesOf([][]*x509.Certificate{{listed}})), false},
		"its key is no authority":     {"agent:c1", certificateCredential(listed, authoritiesOf([][]*x509.Certificate{{listed, ca}})), true},
		"mapped":                      {"agent:c5", certificateCredential(odd, []string{"a1"}), false},
		"mapped to another identity":  {"agent:c6", certificateCredential(odd, []string{"a1"}), true},
		"not mapped any more":         {"agent:c1", certificateCredential(&x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: now.Add(time.Hour), Subject: pkix.Name{CommonName: "c1"}}, []string{"a1"}), true},
		"session of a former version": {"agent:c1", "", false},
		"certificate of one":          {"agent:c1", former, false},
	} {
		if got := v.ended(test.owner, test.credential); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		isPassword := strings.HasPrefix(test.credential, "password:")
		if got := auth.accounts.Load().ended(test.owner, test.credential); got != (isPassword && test.want) {
			t.Errorf("%s, at the login: %v", name, got)
		}
	}
	kit.NoError(t, os.WriteFile(file, []byte("rubbish"), 0o600))
	v.users = auth.accounts.Load().states()
	if v.ended("agent:file", passwordCredential("file", first)) {
		t.Error("a password file that cannot be used ends sessions")
	}
	kit.NoError(t, os.WriteFile(file, []byte(second), 0o600))
	v.users = auth.accounts.Load().states()
	if !v.ended("agent:file", passwordCredential("file", first)) {
		t.Error("a new password in a file ends no session")
	}
}

func mustHash(t *testing.T, password string) string {
	t.Helper()
	hash, err := HashPassword(password)
	kit.NoError(t, err)
	return hash
}

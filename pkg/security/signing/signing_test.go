package signing_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

func newKey(t testing.TB) *signing.Key {
	t.Helper()
	key, err := signing.NewKey()
	kit.NoError(t, err)
	return key
}

func keyPEM(t testing.TB, key *signing.Key) []byte {
	t.Helper()
	data, err := key.PEM()
	kit.NoError(t, err)
	return data
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	kit.NoError(t, os.WriteFile(path, data, 0o600))
}

// trustFile writes a file of keys that are trusted for hub1.
func trustFile(t testing.TB, path string, keys ...*signing.Key) {
	t.Helper()
	var list []signing.TrustedKey
	for _, key := range keys {
		list = append(list, signing.TrustedKey{PublicKey: key.Public(), Sources: []wire.SourceID{"hub1"}})
	}
	data, err := signing.FormatTrustedKeys(list...)
	kit.NoError(t, err)
	write(t, path, data)
}

func deletion(t testing.TB, source wire.SourceID) cloudevents.Event {
	t.Helper()
	e, err := wire.Encode(&wire.Spec{UID: "u", Source: source, Cluster: "c1", Action: wire.Delete, DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}, time.Now())
	kit.NoError(t, err)
	return e
}

// parties returns a signer and those who trust its key, with their files.
func parties(t testing.TB, now func() time.Time) (signer *signing.Signer, trusted *signing.TrustedKeys, keyFile, trustedFile string) {
	t.Helper()
	keyFile, trustedFile = filepath.Join(t.TempDir(), "signing.key"), filepath.Join(t.TempDir(), "trusted-keys.yaml")
	key := newKey(t)
	write(t, keyFile, keyPEM(t, key))
	trustFile(t, trustedFile, key)
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: keyFile, Now: now, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	trusted, err = signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: trustedFile, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	return signer, trusted, keyFile, trustedFile
}

func wantRefused(t testing.TB, trusted *signing.TrustedKeys, e cloudevents.Event, source wire.SourceID, want signing.Reason) {
	t.Helper()
	_, err := trusted.Verify(e, source)
	var refused *signing.RefusedError
	if !errors.As(err, &refused) || refused.Reason != want {
		t.Errorf("Verify = %v, want %s", err, want)
	}
}

func TestSignAndVerify(t *testing.T) {
	clock := time.UnixMicro(1_790_000_000_000_000)
	signer, trusted, _, _ := parties(t, func() time.Time { return clock })
	e := deletion(t, "hub1")
	wantRefused(t, trusted, e, "hub1", signing.Unsigned)
	kit.NoError(t, signer.Sign(&e))
	at, err := trusted.Verify(e, "hub1")
	if err != nil || !at.Equal(clock) {
		t.Fatalf("Verify = %v, %v", at, err)
	}
	wantRefused(t, trusted, e, "hub2", signing.WrongSource) // on the topic of another source
	clock = clock.Add(-time.Hour)
	again := deletion(t, "hub1")
	kit.NoError(t, signer.Sign(&again))
	if later, err := trusted.Verify(again, "hub1"); err != nil || !later.After(at) {
		t.Errorf("Verify = %v, %v, want a time after %v", later, err, at)
	}

	edited := e.Clone()
	edited.SetExtension("resourceid", "v")
	wantRefused(t, trusted, edited, "hub1", signing.Invalid)
	mangled := e.Clone()
	mangled.SetExtension("signature", "v1:nonsense")
	wantRefused(t, trusted, mangled, "hub1", signing.Malformed)
	foreign := deletion(t, "hub2")
	kit.NoError(t, signer.Sign(&foreign))
	wantRefused(t, trusted, foreign, "hub2", signing.WrongSource)
	stranger, _, _, _ := parties(t, nil)
	strange := deletion(t, "hub1")
	kit.NoError(t, stranger.Sign(&strange))
	wantRefused(t, trusted, strange, "hub1", signing.UnknownKey)

	request, err := wire.Encode(&wire.SpecResync{Agent: "a", Cluster: "c1"}, time.Now())
	kit.NoError(t, err)
	report := status(t, "c1")
	for _, err := range []error{signer.Sign(&request), signer.Sign(&report), signer.SignStatus(&e)} {
		if err == nil {
			t.Error("an event is signed as what it is not")
		}
	}
}

func status(t testing.TB, cluster wire.ClusterName) cloudevents.Event {
	t.Helper()
	e, err := wire.Encode(&wire.Status{UID: "u", Generation: 3, Source: "hub1", Cluster: cluster, Agent: "a", Action: wire.Update, Sequence: 7, Session: "s"}, time.Now())
	kit.NoError(t, err)
	return e
}

// agentsFile writes a file of keys that are trusted for some clusters.
func agentsFile(t testing.TB, path string, key *signing.Key, clusters ...wire.ClusterName) {
	t.Helper()
	data, err := signing.FormatTrustedKeys(signing.TrustedKey{PublicKey: key.Public(), Clusters: clusters})
	kit.NoError(t, err)
	write(t, path, data)
}

func openAgents(t testing.TB, files ...string) *signing.TrustedAgents {
	t.Helper()
	agents, err := signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: files, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	return agents
}

func newSigner(t testing.TB, path string) *signing.Signer {
	t.Helper()
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: path, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	return signer
}

// TestTrustedAgents: a status counts if a key of the cluster of its topic signed it, and if it names that
// cluster; keys are read from several files, and again when they change.
func TestTrustedAgents(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	keys := map[string]*signing.Key{"c1": newKey(t), "c2": newKey(t), "thief": newKey(t)}
	for name, key := range keys {
		write(t, path(name+".key"), keyPEM(t, key))
	}
	agentsFile(t, path("one.yaml"), keys["c1"], "c1", "c1b")
	agentsFile(t, path("two.yaml"), keys["c2"], "c2")
	agents := openAgents(t, path("one.yaml"), path("two.yaml"))
	signed := func(key string, cluster wire.ClusterName) cloudevents.Event {
		e := status(t, cluster)
		kit.NoError(t, newSigner(t, path(key+".key")).SignStatus(&e))
		return e
	}
	edited := signed("c1", "c1")
	edited.SetExtension("resourceversion", "4")
	for what, c := range map[string]struct {
		event cloudevents.Event
		topic wire.ClusterName
		want  signing.Reason
	}{
		"signed":                       {signed("c1", "c1"), "c1", ""},
		"another cluster of the key":   {signed("c1", "c1b"), "c1b", ""},
		"of another file":              {signed("c2", "c2"), "c2", ""},
		"not signed":                   {status(t, "c1"), "c1", signing.Unsigned},
		"by a stranger":                {signed("thief", "c1"), "c1", signing.UnknownKey},
		"by another cluster":           {signed("c2", "c1"), "c1", signing.WrongCluster},
		"on the topic of another":      {signed("c1", "c1"), "c2", signing.WrongCluster},
		"for another than the topic's": {signed("c1", "c1"), "c1b", signing.WrongCluster},
		"edited":                       {edited, "c1", signing.Invalid},
	} {
		_, err := agents.Verify(c.event, c.topic)
		var refused *signing.RefusedError
		if errors.As(err, &refused); (err == nil) != (c.want == "") || err != nil && refused.Reason != c.want {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	if !agents.Knows("c1b") || !agents.Knows("c2") || agents.Knows("c3") {
		t.Error("Knows c1b, c2 or c3 wrongly")
	}
	agentsFile(t, path("two.yaml"), keys["thief"], "c2", "c3")
	kit.True(t, "the new file is read", func() bool { return agents.Knows("c3") })
	write(t, path("two.yaml"), []byte("keys: broken as well"))
	if _, err := agents.Verify(signed("thief", "c2"), "c2"); err != nil {
		t.Errorf("a broken file replaces the keys: %v", err)
	}
	if _, err := signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: []string{path("two.yaml")}}); err == nil {
		t.Error("a broken file is opened")
	}
}

// TestManyTrustedAgents: a file of trusted agents may have more keys than one of trusted keys.
func TestManyTrustedAgents(t *testing.T) {
	var list []signing.TrustedKey
	for i := range 300 {
		name := wire.ClusterName(fmt.Sprintf("cluster-%05d-of-the-fleet", i))
		list = append(list, signing.TrustedKey{PublicKey: newKey(t).Public(), Clusters: []wire.ClusterName{name}})
	}
	data, err := signing.FormatTrustedKeys(list...)
	kit.NoError(t, err)
	path := filepath.Join(t.TempDir(), "trusted-agents.yaml")
	write(t, path, data)
	if !openAgents(t, path).Knows("cluster-00299-of-the-fleet") {
		t.Error("the last cluster is not known")
	}
	if _, err := signing.ParseTrustedKeys(data); err == nil || !strings.Contains(err.Error(), "want 1 to 256") {
		t.Errorf("ParseTrustedKeys of 300 keys = %v", err)
	}
}

// TestRotation changes the keys while events are signed and verified.
func TestRotation(t *testing.T) {
	signer, trusted, keyFile, trustedFile := parties(t, nil)
	old := deletion(t, "hub1")
	kit.NoError(t, signer.Sign(&old))
	data, err := os.ReadFile(keyFile)
	kit.NoError(t, err)
	oldKey, err := signing.ParseKey(data)
	kit.NoError(t, err)
	next := newKey(t)
	verified := func(event func() cloudevents.Event, want bool) func() bool {
		return func() bool {
			_, err := trusted.Verify(event(), "hub1")
			return (err == nil) == want
		}
	}
	signed := func() cloudevents.Event {
		e := deletion(t, "hub1")
		kit.NoError(t, signer.Sign(&e))
		return e
	}
	isNext := func() bool {
		s, err := wire.SignatureOf(signed())
		return err == nil && s.KeyID == next.Public().ID
	}
	trustFile(t, trustedFile, oldKey, next)
	write(t, keyFile, keyPEM(t, next))
	kit.True(t, "the new key signs", isNext)
	kit.True(t, "the new key is trusted", verified(signed, true))
	kit.True(t, "the old key is still trusted", verified(func() cloudevents.Event { return old }, true))
	write(t, keyFile, []byte("broken"))
	trustFile(t, trustedFile, next)
	kit.True(t, "the old key is no longer trusted", verified(func() cloudevents.Event { return old }, false))
	write(t, trustedFile, []byte("keys: broken as well"))
	if !isNext() || !verified(signed, true)() {
		t.Error("broken files replace the keys")
	}
}

func TestParseKey(t *testing.T) {
	key := newKey(t)
	data := keyPEM(t, key)
	if parsed, err := signing.ParseKey(data); err != nil || parsed.Public().ID != key.Public().ID {
		t.Errorf("ParseKey = %v, %v", parsed, err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	kit.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(ec)
	kit.NoError(t, err)
	for what, data := range map[string][]byte{
		"empty": nil, "no PEM": []byte("x"), "two keys": append(bytes.Clone(data), data...),
		"another type": bytes.ReplaceAll(data, []byte("PRIVATE KEY"), []byte("PUBLIC KEY")),
		"not PKCS #8":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}),
		"an EC key":    pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	} {
		if _, err := signing.ParseKey(data); err == nil {
			t.Errorf("%s is parsed", what)
		}
	}
}

func TestParseTrustedKeys(t *testing.T) {
	data, err := signing.FormatTrustedKeys(signing.TrustedKey{PublicKey: newKey(t).Public(), Sources: []wire.SourceID{"hub1", "hub2"}})
	kit.NoError(t, err)
	keys, err := signing.ParseTrustedKeys(data)
	if err != nil || len(keys) != 1 || len(keys[0].Sources) != 2 {
		t.Fatalf("ParseTrustedKeys = %+v, %v", keys, err)
	}
	text := string(data)
	for want, text := range map[string]string{
		"want 1 to 256":        "keys: []\n",
		"unknown field":        text + "more: 1\n",
		"twice":                text + strings.TrimPrefix(text, "keys:\n"),
		"is not that of":       strings.Replace(text, keys[0].ID, "0000000000000000", 1),
		"is not base64":        strings.Replace(text, "publicKey: ", "publicKey: '!'\n  # ", 1),
		"sources is empty":     strings.Replace(text, "sources:\n  - hub1\n  - hub2\n", "sources: []\n", 1),
		"must have only a-z":   strings.Replace(text, "- hub1", "- Hub1", 1),
		"not a public key":     "keys: [{id: x, sources: [hub1], publicKey: aGVsbG8=}]",
		"keys[0]: publicKey: ": "keys: [{id: x, sources: [hub1]}]",
	} {
		if _, err := signing.ParseTrustedKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseTrustedKeys = %v, want %q, of\n%s", err, want, text)
		}
	}
}

func TestParseTrustedAgents(t *testing.T) {
	data, err := signing.FormatTrustedKeys(signing.TrustedKey{PublicKey: newKey(t).Public(), Clusters: []wire.ClusterName{"c1", "c2"}})
	kit.NoError(t, err)
	keys, err := signing.ParseTrustedAgents(data)
	if err != nil || len(keys) != 1 || len(keys[0].Clusters) != 2 {
		t.Fatalf("ParseTrustedAgents = %+v, %v", keys, err)
	}
	text := string(data)
	for want, text := range map[string]string{
		"clusters is empty":               strings.Replace(text, "clusters:\n  - c1\n  - c2\n", "clusters: []\n", 1),
		"must have only a-z":              strings.Replace(text, "- c1", "- C1", 1),
		"for --trusted-keys of work-agen": strings.Replace(text, "clusters:", "sources:", 1),
		"twice":                           text + strings.TrimPrefix(text, "keys:\n"),
	} {
		if _, err := signing.ParseTrustedAgents([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseTrustedAgents = %v, want %q, of\n%s", err, want, text)
		}
	}
	if _, err := signing.ParseTrustedKeys(data); err == nil || !strings.Contains(err.Error(), "--trusted-agents of work-hub") {
		t.Errorf("ParseTrustedKeys of a file of agents = %v", err)
	}
}

// vector is an entry of testdata/vectors.yaml, for other implementations.
type vector struct {
	Name       string            `json:"name"`
	Seed       string            `json:"seed"`
	KeyID      string            `json:"keyId"`
	Time       int64             `json:"time"`
	Type       string            `json:"type"`
	Source     string            `json:"source"`
	Extensions map[string]string `json:"extensions"`
	Data       string            `json:"data"`
	Signed     string            `json:"signedBytes"`
	Signature  string            `json:"signature"`
}

// TestVectors computes the test vectors of docs/protocol.md.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/vectors.yaml")
	kit.NoError(t, err)
	var vectors []vector
	kit.NoError(t, yaml.UnmarshalStrict(text, &vectors))
	if len(vectors) < 4 {
		t.Errorf("%d vectors", len(vectors))
	}
	for _, v := range vectors {
		seed, err := hex.DecodeString(v.Seed)
		kit.NoError(t, err)
		der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(seed))
		kit.NoError(t, err)
		path := filepath.Join(t.TempDir(), "key")
		write(t, path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: path, Now: func() time.Time { return time.UnixMicro(v.Time) }})
		kit.NoError(t, err)
		e := cloudevents.New()
		e.SetType(v.Type)
		e.SetSource(v.Source)
		for name, value := range v.Extensions {
			e.SetExtension(name, value)
		}
		if v.Data != "" {
			kit.NoError(t, e.SetData("application/json", []byte(v.Data)))
		}
		if wire.IsSignableByAgent(e) {
			kit.NoError(t, signer.SignStatus(&e))
		} else {
			kit.NoError(t, signer.Sign(&e))
		}
		if got := string(wire.SignedBytes(e, v.KeyID, time.UnixMicro(v.Time))); got != v.Signed {
			t.Errorf("%s: signed bytes are\n%s\nwant\n%s", v.Name, got, v.Signed)
		}
		if got := e.Extensions()["signature"]; got != v.Signature {
			t.Errorf("%s: signature is\n%s\nwant\n%s", v.Name, got, v.Signature)
		}
	}
}

// FuzzKeys: neither parser of files panics, and a trusted key survives a round trip.
func FuzzKeys(f *testing.F) {
	key := newKey(f)
	f.Add(keyPEM(f, key))
	data, err := signing.FormatTrustedKeys(signing.TrustedKey{PublicKey: key.Public(), Sources: []wire.SourceID{"hub1"}})
	kit.NoError(f, err)
	f.Add(data)
	agents, err := signing.FormatTrustedKeys(signing.TrustedKey{PublicKey: key.Public(), Clusters: []wire.ClusterName{"c1"}})
	kit.NoError(f, err)
	f.Add(agents)
	f.Add([]byte("keys: [{id: x, sources: [hub1], publicKey: aGVsbG8=}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if key, err := signing.ParseKey(data); err == nil {
			if _, err := key.PEM(); err != nil {
				t.Fatal(err)
			}
		}
		for _, parse := range []func([]byte) ([]signing.TrustedKey, error){signing.ParseTrustedKeys, signing.ParseTrustedAgents} {
			keys, err := parse(data)
			if err != nil {
				continue
			}
			text, err := signing.FormatTrustedKeys(keys...)
			kit.NoError(t, err)
			if again, err := parse(text); err != nil || len(again) != len(keys) {
				t.Fatalf("%q is read as %q: %v", data, text, err)
			}
		}
	})
}

func benchEvent(b *testing.B) cloudevents.Event {
	b.Helper()
	e := deletion(b, "hub1")
	kit.NoError(b, e.SetData("application/json", []byte(`{"manifests":["`+strings.Repeat("x", 4<<10)+`"]}`)))
	return e
}

func BenchmarkSign(b *testing.B) {
	signer, _, _, _ := parties(b, nil)
	e := benchEvent(b)
	b.ReportAllocs()
	for b.Loop() {
		kit.NoError(b, signer.Sign(&e))
	}
}

func BenchmarkVerify(b *testing.B) {
	signer, trusted, _, _ := parties(b, nil)
	e := benchEvent(b)
	kit.NoError(b, signer.Sign(&e))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := trusted.Verify(e, "hub1"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSignStatus(b *testing.B) {
	path := filepath.Join(b.TempDir(), "signing.key")
	write(b, path, keyPEM(b, newKey(b)))
	signer, e := newSigner(b, path), benchStatus(b)
	b.ReportAllocs()
	for b.Loop() {
		kit.NoError(b, signer.SignStatus(&e))
	}
}

func BenchmarkVerifyStatus(b *testing.B) {
	key, dir := newKey(b), b.TempDir()
	write(b, dir+"/signing.key", keyPEM(b, key))
	agentsFile(b, dir+"/trusted-agents.yaml", key, "c1")
	agents, e := openAgents(b, dir+"/trusted-agents.yaml"), benchStatus(b)
	kit.NoError(b, newSigner(b, dir+"/signing.key").SignStatus(&e))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := agents.Verify(e, "c1"); err != nil {
			b.Fatal(err)
		}
	}
}

// benchStatus returns a status of 2 KiB.
func benchStatus(b *testing.B) cloudevents.Event {
	b.Helper()
	e := status(b, "c1")
	kit.NoError(b, e.SetData("application/json", []byte(`{"conditions":["`+strings.Repeat("x", 2<<10)+`"]}`)))
	return e
}

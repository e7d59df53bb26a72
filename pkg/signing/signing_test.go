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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/signing"
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
	if err := signer.Sign(&request); err == nil {
		t.Error("an event of an agent is signed")
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
	if len(vectors) < 3 {
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
		kit.NoError(t, signer.Sign(&e))
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
	f.Add([]byte("keys: [{id: x, sources: [hub1], publicKey: aGVsbG8=}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if key, err := signing.ParseKey(data); err == nil {
			if _, err := key.PEM(); err != nil {
				t.Fatal(err)
			}
		}
		keys, err := signing.ParseTrustedKeys(data)
		if err != nil {
			return
		}
		text, err := signing.FormatTrustedKeys(keys...)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := signing.ParseTrustedKeys(text); err != nil || len(again) != len(keys) {
			t.Fatalf("%q is read as %q: %v", data, text, err)
		}
	})
}

func benchEvent(b *testing.B) cloudevents.Event {
	b.Helper()
	e := deletion(b, "hub1")
	if err := e.SetData("application/json", []byte(`{"manifests":["`+strings.Repeat("x", 4<<10)+`"]}`)); err != nil {
		b.Fatal(err)
	}
	return e
}

func BenchmarkSign(b *testing.B) {
	signer, _, _, _ := parties(b, nil)
	e := benchEvent(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := signer.Sign(&e); err != nil {
			b.Fatal(err)
		}
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

package enrolment

import (
	"bytes"
	"compress/flate"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/workwire/workwire/pkg/wire"
)

// Token is what a cluster needs to join: the place of the broker, whom to trust there, and the proof that it may.
type Token struct {
	// Broker is the brokerHost of the agent's transport configuration, HubName its hubName, Topics its topics.
	Broker  string      `json:"broker"`
	HubName string      `json:"hubName,omitempty"`
	Topics  wire.Topics `json:"topics"`
	// Source is the id of the hub.
	Source wire.SourceID `json:"source"`
	// Username and Password are the joining identity at the broker. They permit to ask and nothing else, and are the same in
	// all tokens.
	Username string `json:"username"`
	Password string `json:"password"`
	// Authorities are the certificates, in DER, of which one has issued those of broker and hub.
	Authorities [][]byte `json:"authorities"`
	// Seed is that of the Ed25519 key that proves the token; empty after the cluster has joined.
	Seed []byte `json:"seed,omitempty"`
}

// prefix begins the text of every token, so that people and programs that look for secrets know it.
const prefix = "workwire-join-"

// maxToken is the size of the longest token, in bytes, with its contents decompressed.
const maxToken = 32 << 10

// New returns the token with a new key, and what the hub keeps of it.
func New(t Token) (Token, Grant, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Token{}, Grant{}, err
	}
	t.Seed = key.Seed()
	return t, Grant{PublicKey: public}, t.Validate()
}

// ID returns the name of the token, by which the hub finds its [Grant]; empty without a key.
func (t Token) ID() string {
	if key := t.Key(); key != nil {
		return idOf(key.Public().(ed25519.PublicKey))
	}
	return ""
}

func idOf(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}

// Key returns the key that proves the token; nil without one.
func (t Token) Key() ed25519.PrivateKey {
	if len(t.Seed) != ed25519.SeedSize {
		return nil
	}
	return ed25519.NewKeyFromSeed(t.Seed)
}

// Pool returns the authorities to trust. It returns an error if one cannot be read, or there is none.
func (t Token) Pool() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for _, der := range t.Authorities {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("authority of the token: %w", err)
		}
		pool.AddCert(cert)
	}
	if len(t.Authorities) == 0 {
		return nil, errors.New("the token names no authority: nobody would know whether it is the hub that answers")
	}
	return pool, nil
}

// Validate returns every fault of t.
func (t Token) Validate() error {
	var errs []error
	if t.Broker == "" || t.Username == "" {
		errs = append(errs, errors.New("the token names no broker, or no user of it"))
	}
	if len(t.Seed) != 0 && len(t.Seed) != ed25519.SeedSize {
		errs = append(errs, errors.New("the key of the token is none"))
	}
	if _, err := t.Topics.ForAgent("any"); err != nil {
		errs = append(errs, err)
	}
	if _, err := TopicsOf(t.Topics, t.Source); err != nil {
		errs = append(errs, err)
	}
	_, err := t.Pool()
	return errors.Join(append(errs, err)...)
}

// String returns the token as text of one line, which is a secret while the token has a key.
func (t Token) String() string {
	text, _ := json.Marshal(t) // has no value that cannot be encoded
	var compressed bytes.Buffer
	w, _ := flate.NewWriter(&compressed, flate.BestCompression) // the level is valid
	_, _ = w.Write(text)                                        // into memory
	_ = w.Close()
	return prefix + base64.RawURLEncoding.EncodeToString(compressed.Bytes())
}

// ParseToken returns the token of a text. It returns an error that says what is wrong, without the text.
func ParseToken(text string) (Token, error) {
	text = strings.Join(strings.Fields(text), "") // a terminal may have broken the line
	coded, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return Token{}, fmt.Errorf("this is no token: one begins with %s, as workctl token create prints it", prefix)
	}
	if len(coded) > maxToken {
		return Token{}, fmt.Errorf("this is no token: it has %d bytes", len(coded))
	}
	compressed, err := base64.RawURLEncoding.DecodeString(coded)
	if err != nil {
		return Token{}, errors.New("the token is damaged: copy all of it, in one piece")
	}
	data, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(compressed)), maxToken))
	if err != nil {
		return Token{}, errors.New("the token is damaged: copy all of it, in one piece")
	}
	var t Token
	if err := json.Unmarshal(data, &t); err != nil {
		return Token{}, errors.New("the token is damaged: copy all of it, in one piece")
	}
	if err := t.Validate(); err != nil {
		return Token{}, fmt.Errorf("the token cannot be used: %w", err)
	}
	return t, nil
}

// Joined returns the token without its key: what a cluster keeps to ask for its next certificate.
func (t Token) Joined() Token {
	t.Seed = nil
	return t
}

// Topics are where requests and answers of one hub are published (docs/protocol.md, Joining).
type Topics struct{ word, source string }

// TopicsOf returns the topics for joining the hub with an id, whose other topics are given. It returns an error if they
// have no first word or the id is not valid in a topic.
func TopicsOf(t wire.Topics, source wire.SourceID) (Topics, error) {
	agent, err := t.ForAgent("any")
	if err != nil {
		return Topics{}, err
	}
	if _, err := agent.Events(source); err != nil {
		return Topics{}, err
	}
	word, _, _ := strings.Cut(wire.Unshared(t.SourceEvents), "/")
	return Topics{word: word, source: string(source)}, nil
}

// Requests returns the topic of requests.
func (t Topics) Requests() string { return t.word + "/" + t.source + "/joinrequests" }

// Revocations returns the topic of the revocation list of the hub's authority, which the broker takes.
func (t Topics) Revocations() string { return t.Answers("-") }

// Answers returns the topic of the answers to the request with an id.
func (t Topics) Answers(request string) string {
	return t.word + "/" + t.source + "/joinanswers/" + request
}

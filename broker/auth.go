package broker

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/broker/packet"
	"github.com/workwire/workwire/pkg/runtime/filestamp"
)

// Errors of authentication. Log and metrics distinguish them; the client receives only "bad user
// name or password".
var (
	errAnonymous   = errors.New("no user name and no client certificate; anonymous clients are refused")
	errBadPassword = errors.New("unknown user name or wrong password")
)

// authenticator authenticates clients. It is safe for concurrent use.
type authenticator struct {
	limiter *limits.Limiter

	// macKey makes account.verified useless outside this process.
	macKey [32]byte

	accounts atomic.Pointer[accounts]
}

// accounts are the users and certificates of a configuration. They are constant.
type accounts struct {
	users map[string]*account    // by user name
	certs map[string]Certificate // by common name
}

// login is who a client is, and what it has authenticated with (see credential.go).
type login struct {
	id         acl.Identity
	credential string
}

type account struct {
	user User
	file *watchedFile // nil unless user.PasswordFile is set

	verified atomic.Value // string: hash and MAC of the password accepted last
}

func newAuthenticator(cfg Config, limiter *limits.Limiter) (*authenticator, error) {
	a := &authenticator{limiter: limiter}
	_, _ = rand.Read(a.macKey[:]) // never fails
	return a, a.configure(cfg)
}

// configure replaces users and certificates with those of cfg. It keeps the former ones if a
// password file cannot be used.
func (a *authenticator) configure(cfg Config) error {
	next, former := &accounts{users: map[string]*account{}, certs: map[string]Certificate{}}, a.accounts.Load()
	for _, u := range cfg.Users {
		acc := &account{user: u}
		if u.PasswordFile != "" {
			acc.file = &watchedFile{path: u.PasswordFile}
			if _, err := acc.hash(); err != nil {
				return fmt.Errorf("user %s: %w", u.Username, err)
			}
		}
		if former != nil && former.users[u.Username] != nil {
			if verified := former.users[u.Username].verified.Load(); verified != nil {
				acc.verified.Store(verified)
			}
		}
		next.users[u.Username] = acc
	}
	for _, c := range cfg.Certificates {
		next.certs[c.CommonName] = c
	}
	a.accounts.Store(next)
	return nil
}

// byPassword authenticates a user of a client at address by password. A password that was accepted
// before is recognized by its MAC: a bcrypt check for each of a thousand reconnecting agents would
// take half a minute. A right random password is found at once, too. Other checks wait for their turn
// until ctx ends.
func (a *authenticator) byPassword(ctx context.Context, address, username string, password []byte) (login, error) {
	compare := func(hash string) (right bool, err error) {
		err = a.limiter.Authenticate(ctx, address, username, func() bool {
			right = matches(hash, password)
			return right
		})
		if err != nil {
			return false, &packet.Error{Code: packet.ServerBusy, Text: "too many logins wait for the check of their password: " + err.Error()}
		}
		return right, nil
	}
	acc, ok := a.accounts.Load().users[username]
	if !ok {
		_, err := compare(decoyHash)
		return login{}, cmp.Or(err, errBadPassword)
	}
	if acc.user.Password != "" {
		if subtle.ConstantTimeCompare([]byte(acc.user.Password), password) != 1 {
			return login{}, errBadPassword
		}
		return login{acc.user.Identity(), passwordCredential(username, "")}, nil
	}
	hash, err := acc.hash()
	if err != nil {
		return login{}, err
	}
	accepted := login{acc.user.Identity(), passwordCredential(username, hash)}
	mac := hmac.New(sha256.New, a.macKey[:])
	mac.Write(password)
	verified := hash + string(mac.Sum(nil))
	if last, _ := acc.verified.Load().(string); subtle.ConstantTimeCompare([]byte(last), []byte(verified)) == 1 {
		return accepted, nil
	}
	if matchesQuickly(hash, password) {
		return accepted, nil
	}
	if right, err := compare(hash); err != nil || !right {
		return login{}, cmp.Or(err, errBadPassword)
	}
	acc.verified.Store(verified)
	return accepted, nil
}

// hash returns the current hash, from the password file if there is one.
func (c *account) hash() (string, error) {
	if c.file == nil {
		return c.user.PasswordHash, nil
	}
	data, err := c.file.read()
	if err != nil {
		return "", fmt.Errorf("read the password file: %w", err)
	}
	hash := strings.TrimSpace(string(data))
	if validateHash(hash) != nil {
		return "", fmt.Errorf("password file %s has no hash of bcrypt or PBKDF2; generate one with `work-broker passwd`", c.file.path)
	}
	return hash, nil
}

// byCertificate authenticates a client by its certificate, which TLS has verified. authorities have
// issued it.
func (a *authenticator) byCertificate(cert *x509.Certificate, authorities []string) (login, error) {
	id, err := certificateIdentity(cert.Subject.CommonName, cert.Subject.OrganizationalUnit, a.accounts.Load().certs)
	return login{id, certificateCredential(cert, authorities)}, err
}

// certificateIdentity returns the identity for the subject of a certificate: the one mapped to its
// common name, else the common name as id, with the role named by an organizational unit.
func certificateIdentity(commonName string, units []string, mapped map[string]Certificate) (acl.Identity, error) {
	if c, ok := mapped[commonName]; ok {
		return c.Identity(), nil
	}
	roles := map[acl.Role]bool{}
	id := acl.Identity{ID: commonName}
	for _, unit := range units {
		if role, ok := map[string]acl.Role{"agents": acl.Agent, "sources": acl.Source, "monitors": acl.Monitor, "observers": acl.Observer}[unit]; ok {
			id.Role, roles[role] = role, true
		}
	}
	switch len(roles) {
	case 0:
		return acl.Identity{}, fmt.Errorf("client certificate %q has no organizational unit agents, sources, monitors or observers and is not listed under certificates", commonName)
	case 1:
	default:
		return acl.Identity{}, fmt.Errorf("client certificate %q has organizational units of more than one role", commonName)
	}
	if err := id.Validate(); err != nil {
		return acl.Identity{}, fmt.Errorf("client certificate %q: %w; list it under certificates with another id", commonName, err)
	}
	return id, nil
}

// watchedFile is a small file that is read again when its size or modification time changes. It is
// safe for concurrent use.
type watchedFile struct {
	path string

	mu    sync.Mutex
	stamp filestamp.Stamp
	data  []byte
}

func (f *watchedFile) read() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp, err := filestamp.Of(f.path)
	if err != nil {
		return nil, err
	}
	if f.data != nil && stamp == f.stamp {
		return f.data, nil
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	f.stamp, f.data = stamp, data
	return data, nil
}

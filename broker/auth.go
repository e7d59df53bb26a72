package broker

import (
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

	"golang.org/x/crypto/bcrypt"

	"github.com/workwire/workwire/broker/acl"
)

// HashPassword returns the bcrypt hash of password for [User.PasswordHash]. Passwords are
// limited to 72 bytes by bcrypt; a longer or an empty one is an error.
func HashPassword(password string) (string, error) {
	if password == "" {
		return "", errors.New("hash the password: it is empty")
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return "", fmt.Errorf("hash the password: %w", err)
	}
	return string(hash), nil
}

// Why a client was refused. They are kept apart in the log and in metrics; the client
// learns only "bad user name or password" or "not authorized".
var (
	errAnonymous   = errors.New("neither a user name nor a client certificate was given; anonymous clients are refused")
	errBadPassword = errors.New("unknown user name or wrong password")
)

// decoyHash is what the passwords of unknown users are compared with, so that they take as
// long as known ones. It is the hash of random bytes that nobody has kept.
const decoyHash = "$2a$10$I7E44C5VdnNU3Izjvw3aV.CM2IbizTue7ADt.AArKNmGYFm7SeS4u"

// authenticator turns what a client shows into an identity. It is safe for concurrent use.
type authenticator struct {
	users map[string]*account // by user name; never changes
	certs map[string]Certificate

	// macKey makes the remembered passwords in account.verified useless outside this process.
	macKey [32]byte
}

// account is one user. mu guards the fields below it.
type account struct {
	user User
	file *watchedFile // nil unless user.PasswordFile is set

	mu       sync.Mutex
	verified map[string]struct{} // hash + MAC of the password last accepted for it; at most one
}

func newAuthenticator(cfg Config) (*authenticator, error) {
	a := &authenticator{users: map[string]*account{}, certs: map[string]Certificate{}}
	if _, err := rand.Read(a.macKey[:]); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}
	for _, u := range cfg.Users {
		acc := &account{user: u}
		if u.PasswordFile != "" {
			acc.file = &watchedFile{path: u.PasswordFile}
			if _, err := acc.hash(); err != nil {
				return nil, fmt.Errorf("user %s: %w", u.Username, err)
			}
		}
		a.users[u.Username] = acc
	}
	for _, c := range cfg.Certificates {
		a.certs[c.CommonName] = c
	}
	return a, nil
}

// byPassword checks a user's password. A password accepted once is recognised by its MAC
// afterwards, because a bcrypt check per reconnecting agent would take a broker with a
// thousand agents half a minute.
func (a *authenticator) byPassword(username string, password []byte) (acl.Identity, error) {
	acc, ok := a.users[username]
	if !ok {
		_ = bcrypt.CompareHashAndPassword([]byte(decoyHash), password)
		return acl.Identity{}, errBadPassword
	}
	if acc.user.Password != "" {
		if subtle.ConstantTimeCompare([]byte(acc.user.Password), password) != 1 {
			return acl.Identity{}, errBadPassword
		}
		return acc.user.Identity(), nil
	}
	hash, err := acc.hash()
	if err != nil {
		return acl.Identity{}, err
	}
	mac := hmac.New(sha256.New, a.macKey[:])
	mac.Write(password)
	known := hash + string(mac.Sum(nil))
	if acc.remembers(known) {
		return acc.user.Identity(), nil
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), password) != nil {
		return acl.Identity{}, errBadPassword
	}
	acc.remember(known)
	return acc.user.Identity(), nil
}

// hash returns the bcrypt hash in force, from the file when there is one.
func (c *account) hash() (string, error) {
	if c.file == nil {
		return c.user.PasswordHash, nil
	}
	data, err := c.file.read()
	if err != nil {
		return "", fmt.Errorf("read the password file: %w", err)
	}
	hash := strings.TrimSpace(string(data))
	if _, err := bcrypt.Cost([]byte(hash)); err != nil {
		return "", fmt.Errorf("password file %s holds no bcrypt hash; `work-broker passwd` makes one", c.file.path)
	}
	return hash, nil
}

func (c *account) remembers(known string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.verified[known]
	return ok
}

func (c *account) remember(known string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified = map[string]struct{}{known: {}}
}

// byCertificate identifies the holder of a certificate that TLS has already verified.
func (a *authenticator) byCertificate(cert *x509.Certificate) (acl.Identity, error) {
	return certificateIdentity(cert.Subject.CommonName, cert.Subject.OrganizationalUnit, a.certs)
}

// certificateIdentity maps a certificate's subject to an identity: by an entry for its
// common name, else with the common name as id and the role that its units name. It is pure.
func certificateIdentity(commonName string, units []string, mapped map[string]Certificate) (acl.Identity, error) {
	if c, ok := mapped[commonName]; ok {
		return c.Identity(), nil
	}
	var id acl.Identity
	for _, unit := range units {
		role, ok := map[string]acl.Role{"agents": acl.Agent, "sources": acl.Source, "monitors": acl.Monitor}[unit]
		if !ok {
			continue
		}
		if id.Role != "" && id.Role != role {
			return acl.Identity{}, fmt.Errorf("client certificate %q names more than one role in its organisational units", commonName)
		}
		id = acl.Identity{Role: role, ID: commonName}
	}
	if id.Role == "" {
		return acl.Identity{}, fmt.Errorf("client certificate %q has no organisational unit agents, sources or monitors and is not listed under certificates", commonName)
	}
	if err := id.Validate(); err != nil {
		return acl.Identity{}, fmt.Errorf("client certificate %q: %w; list it under certificates to give it another id", commonName, err)
	}
	return id, nil
}

// watchedFile is a small file that is read again only when its size or modification time
// has changed. It is safe for concurrent use.
type watchedFile struct {
	path string

	mu    sync.Mutex
	stamp fileStamp
	data  []byte
}

// fileStamp tells one content of a file from the next.
type fileStamp struct {
	size    int64
	modTime int64
}

func stampOf(path string) (fileStamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}, err
	}
	return fileStamp{size: info.Size(), modTime: info.ModTime().UnixNano()}, nil
}

func (f *watchedFile) read() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp, err := stampOf(f.path)
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

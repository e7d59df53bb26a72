package broker

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// A credential names what a client has authenticated with. It is stored with the session, so that
// the session ends with it, also while its client is away and the broker is stopped:
//
//	password:<hash of the bcrypt hash>:<user name>
//	certificate:<hash of issuer and serial number>:<expiry, Unix seconds>

// digest returns 16 bytes of a hash as text.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// passwordCredential returns the credential of a user whose password has the bcrypt hash, or "" for
// a password that is constant while the program runs.
func passwordCredential(username, hash string) string {
	return "password:" + digest(hash) + ":" + username
}

func certificateCredential(cert *x509.Certificate) string {
	key := certificateKey(revocationKey(cert.RawIssuer, cert.SerialNumber))
	return "certificate:" + key + ":" + strconv.FormatInt(cert.NotAfter.Unix(), 10)
}

// certificateKey returns the part of a credential that identifies the certificate with a
// revocationKey.
func certificateKey(revocationKey string) string { return digest(revocationKey) }

// validity is what decides whether credentials are still accepted.
type validity struct {
	now     time.Time
	users   map[string]userState
	revoked []map[string]struct{} // revoked certificates of each listener, by certificateKey
}

// userState is what a user's credential must agree with.
type userState struct {
	owner string // the identity
	hash  string // digest of the bcrypt hash; "" if it cannot be read or the program has the password
}

// states returns the users, with the current content of their password files.
func (a *accounts) states() map[string]userState {
	out := make(map[string]userState, len(a.users))
	for name, acc := range a.users {
		state := userState{owner: acc.user.Identity().String()}
		if acc.user.Password == "" {
			if hash, err := acc.hash(); err == nil {
				state.hash = digest(hash)
			}
		}
		out[name] = state
	}
	return out
}

// ended reports whether a credential of an identity is no longer accepted: its certificate has
// expired or is revoked, or its user has another password or identity, or does not exist. A
// credential of a former version is accepted: it says nothing.
func (v validity) ended(owner, credential string) bool {
	kind, rest, _ := strings.Cut(credential, ":")
	key, detail, _ := strings.Cut(rest, ":")
	switch kind {
	case "password":
		user, known := v.users[detail]
		// A file that cannot be read refuses new connections only.
		return !known || user.owner != owner || user.hash != "" && user.hash != key
	case "certificate":
		for _, revoked := range v.revoked {
			if _, ended := revoked[key]; ended {
				return true
			}
		}
		expires, err := strconv.ParseInt(detail, 10, 64)
		return err == nil && v.now.Unix() >= expires
	}
	return false
}

package broker

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A credential names what a client has authenticated with. It is stored with the session, so that
// the session ends with it, also while its client is away and the broker is stopped:
//
//	password:<digest of the hash>:<user name>
//	certificate:<hash of issuer and serial number>:<expiry, Unix seconds>:<hashes of the authorities' keys>:<common name>:<units>
//
// Authorities and units are separated by commas, common name and units are escaped as in a URL. Former
// versions stored the first three fields only.

// digest returns 16 bytes of a hash as text.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// passwordCredential returns the credential of a user whose password has the hash, which is "" for a
// password that is constant while the program runs.
func passwordCredential(username, hash string) string {
	return "password:" + digest(hash) + ":" + username
}

// certificateCredential returns the credential of a certificate that authorities have issued; see
// authorityKey.
func certificateCredential(cert *x509.Certificate, authorities []string) string {
	var units []string
	for _, unit := range cert.Subject.OrganizationalUnit {
		units = append(units, url.QueryEscape(unit))
	}
	return strings.Join([]string{
		"certificate", certificateKey(revocationKey(cert.RawIssuer, cert.SerialNumber)), strconv.FormatInt(cert.NotAfter.Unix(), 10),
		strings.Join(authorities, ","), url.QueryEscape(cert.Subject.CommonName), strings.Join(units, ","),
	}, ":")
}

// authorityKey identifies an authority by its key, so that it stays the same when its certificate is
// renewed.
func authorityKey(authority *x509.Certificate) string {
	return digest(string(authority.RawSubjectPublicKeyInfo))
}

// authoritiesOf returns the authorities in verified chains, also those that another one has certified: if that one is no longer there, the
// certificate may be accepted by them. A certificate that is trusted itself is its own.
func authoritiesOf(chains [][]*x509.Certificate) (keys []string) {
	for _, chain := range chains {
		issuers := chain[1:]
		if len(issuers) == 0 {
			issuers = chain
		}
		for _, authority := range issuers {
			if key := authorityKey(authority); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// certificateKey returns the part of a credential that identifies the certificate with a
// revocationKey.
func certificateKey(revocationKey string) string { return digest(revocationKey) }

// validity is what decides whether credentials are still accepted.
type validity struct {
	now     time.Time
	users   map[string]userState
	revoked []map[string]struct{} // revoked certificates of each listener, by certificateKey

	authorities []map[string]struct{}  // of each listener, by authorityKey
	mapped      map[string]Certificate // by common name
}

// userState is what a user's credential must agree with.
type userState struct {
	owner string // the account of the identity, which its sessions have
	hash  string // digest of the hash; "" if it cannot be read or the program has the password
}

// states returns the users, with the current content of their password files.
func (a *accounts) states() map[string]userState {
	out := make(map[string]userState, len(a.users))
	for name, acc := range a.users {
		out[name] = acc.state()
	}
	return out
}

func (c *account) state() userState {
	state := userState{owner: c.user.Identity().Account().String()}
	if c.user.Password == "" {
		if hash, err := c.hash(); err == nil {
			state.hash = digest(hash)
		}
	}
	return state
}

// ended reports whether owner, or the password with key as the digest of its hash, is no longer that of the user.
func (u userState) ended(owner, key string) bool {
	// A file that cannot be read refuses new connections only.
	return u.owner != owner || u.hash != "" && u.hash != key
}

// ended is like validity.ended for the credential of a password, and visits one user only. It is false for others.
func (a *accounts) ended(owner, credential string) bool {
	kind, rest, _ := strings.Cut(credential, ":")
	key, username, _ := strings.Cut(rest, ":")
	if kind != "password" {
		return false
	}
	acc, known := a.users[username]
	return !known || acc.state().ended(owner, key)
}

// ended reports whether a credential of an identity is no longer accepted: its certificate has
// expired, is revoked, is that of another identity now or of no authority, or its user has another
// password or identity, or does not exist. What a credential of a former version does not say is
// accepted.
func (v validity) ended(owner, credential string) bool {
	kind, rest, _ := strings.Cut(credential, ":")
	key, detail, _ := strings.Cut(rest, ":")
	switch kind {
	case "password":
		user, known := v.users[detail]
		return !known || user.ended(owner, key)
	case "certificate":
		for _, revoked := range v.revoked {
			if _, ended := revoked[key]; ended {
				return true
			}
		}
		detail, issued, known := strings.Cut(detail, ":")
		expires, err := strconv.ParseInt(detail, 10, 64)
		return err == nil && v.now.Unix() >= expires || known && !v.isIssued(owner, issued)
	}
	return false
}

// isIssued reports whether the last fields of a certificate's credential are still those of owner.
func (v validity) isIssued(owner, fields string) bool {
	authorities, subject, _ := strings.Cut(fields, ":")
	name, units, _ := strings.Cut(subject, ":")
	known := false
	for key := range strings.SplitSeq(authorities, ",") {
		for _, of := range v.authorities {
			_, is := of[key]
			known = known || is
		}
	}
	if !known {
		return false
	}
	commonName, err := url.QueryUnescape(name)
	if err != nil {
		return false
	}
	var list []string
	for unit := range strings.SplitSeq(units, ",") {
		if unit, err = url.QueryUnescape(unit); err != nil {
			return false
		}
		list = append(list, unit)
	}
	id, err := certificateIdentity(commonName, list, v.mapped)
	return err == nil && id.String() == owner
}

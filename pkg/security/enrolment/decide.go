package enrolment

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// Challenges makes challenges and recognizes its own, for [ChallengeAge], and keeps none of them. It is safe for concurrent use.
type Challenges struct{ key [32]byte }

// ChallengeAge is how long a challenge can be answered.
const ChallengeAge = 10 * time.Minute

// NewChallenges returns what makes challenges; those of another one are not recognized.
func NewChallenges() *Challenges {
	c := &Challenges{}
	_, _ = rand.Read(c.key[:]) // never fails
	return c
}

// New returns a challenge for a device.
func (c *Challenges) New(device string, now time.Time) []byte {
	at := binary.BigEndian.AppendUint64(nil, uint64(now.Unix())) //nolint:gosec // after 1970
	return append(at, c.mac(device, at)...)
}

// Answered reports whether the challenge of a request is one for its device, and new enough.
func (c *Challenges) Answered(p Proven, now time.Time) bool {
	if len(p.Challenge) != 8+sha256.Size {
		return false
	}
	at := p.Challenge[:8]
	age := now.Sub(time.Unix(int64(binary.BigEndian.Uint64(at)), 0)) //nolint:gosec // ours, or the MAC is wrong
	return hmac.Equal(p.Challenge[8:], c.mac(p.DeviceHash, at)) && age <= ChallengeAge && age > -ChallengeAge
}

func (c *Challenges) mac(device string, at []byte) []byte {
	mac := hmac.New(sha256.New, c.key[:])
	mac.Write([]byte(device))
	mac.Write(at)
	return mac.Sum(nil)
}

// Known is what the hub knows of the cluster that a request names.
type Known struct {
	// Exists: there is a ManagedCluster of that name.
	Exists bool
	// Device is the hash of the device that has joined as it; empty if none has. Tokens are the ids of those that devices have joined with
	// as it, the last one first.
	Device string
	Tokens []string
	// Revoked: it is not to come back.
	Revoked bool
	// Deleting: its ManagedCluster is being deleted.
	Deleting bool
	// Expires is when its last certificate expires; zero if it got none.
	Expires time.Time
	// Valid is how many of its certificates have not expired.
	Valid int
}

// Verdict is what a hub does with a request: refuse it, or ask for a certificate in its name.
type Verdict struct {
	// Reason and Message say why the request is refused; empty if it is not.
	Reason  Reason
	Message string
	// Approve: the CertificateSigningRequest needs nobody's approval.
	Approve bool
	// Register: the ManagedCluster is to be made, or to get this device and token.
	Register bool
}

// Decide returns what becomes of a request whose challenge is answered. grant is that of its token; nil if it names none, or
// none that is there; used is how many other clusters have joined with it. rejoin is how long after the expiry of its certificate a
// device may come back.
func Decide(p Proven, grant *Grant, used int, known Known, rejoin time.Duration, now time.Time) Verdict {
	refuse := func(reason Reason, format string, args ...any) Verdict {
		return Verdict{Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	same := known.Device != "" && known.Device == p.DeviceHash
	away := now.Sub(known.Expires)
	switch {
	case known.Revoked:
		return refuse(Revoked, "%s was revoked on the hub", p.Cluster)
	case known.Deleting:
		return refuse(Busy, "the ManagedCluster %s is being deleted", p.Cluster)
	case same && known.Valid >= MaxCertificates:
		return refuse(Busy, "%s has %d certificates that have not expired, and does not use the last ones: see why, or workctl revoke it; it gets another one when one expires", p.Cluster, known.Valid)
	case same && known.Expires.IsZero():
		return Verdict{Approve: grant != nil && p.Proves(*grant) && grant.Approve && slices.Index(known.Tokens, p.Token) == 0} // its approval may have been missed
	case same && away <= rejoin:
		return Verdict{Approve: true} // it was let in once
	case p.Token == "" && same:
		return refuse(AwayTooLong, "the certificate of %s expired %s ago, and a device may come back within %s: join with a new token", p.Cluster, away.Round(time.Minute), rejoin)
	case p.Token == "":
		return refuse(UnknownDevice, "no token, and this device has not joined as %s", p.Cluster)
	case grant == nil || !p.Proves(*grant):
		return refuse(UnknownToken, "the hub does not know this token: it was deleted, or is for another hub")
	}
	return grant.admit(p.Cluster, used, known, same, now, refuse)
}

// admit returns what becomes of a request with the token of the grant.
func (g Grant) admit(cluster wire.ClusterName, used int, known Known, same bool, now time.Time, refuse func(Reason, string, ...any) Verdict) Verdict {
	named := slices.Contains(g.Clusters, cluster)
	switch {
	case !now.Before(g.Expires):
		return refuse(TokenExpired, "the token expired at %s: ask for another one", g.Expires.UTC().Format(time.RFC3339))
	case len(g.Clusters) > 0 && !named || !strings.HasPrefix(string(cluster), g.Prefix):
		return refuse(NameNotAllowed, "the token does not let a cluster join as %s", cluster)
	case slices.Contains(known.Tokens, g.ID()) && !same:
		return refuse(TokenUsed, "another device has joined as %s with this token", cluster)
	case used >= g.Uses:
		return refuse(TokenUsed, "the token has been used by %d clusters, as often as it may be", used)
	case known.Device != "" && !same && named && g.Replace && !g.Approve: // the device before would be cut off for one that is denied
		return refuse(NameTaken, "another device has joined as %s, and a token that does not approve cannot replace it: ask for one with --replace alone", cluster)
	case known.Device != "" && !same && (!named || !g.Replace):
		return refuse(NameTaken, "another device has joined as %s: choose another name, or ask for a token with --replace for this one", cluster)
	case known.Exists && !named && !same: // who makes a ManagedCluster beforehand gives its name to a token for exactly that name
		return refuse(NameTaken, "there is a cluster %s: choose another name, or ask for a token for this one", cluster)
	}
	return Verdict{Approve: g.Approve, Register: true}
}

package enrolment

import (
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

// MaxCertificates is how many certificates of a cluster may be valid at a time: a device that asks without an end must not fill its
// ManagedCluster, and each of them must be known to be revoked.
const MaxCertificates = 20

// Issued is what the hub notes of a certificate that a cluster got.
type Issued struct {
	// Source is the hub that had it signed, which has it on its revocation list; empty in notes of before hubs said so.
	Source string `json:"source,omitempty"`
	// Serial is its serial number, Authority the key id of its authority, both in hexadecimal.
	Serial    string    `json:"serial"`
	Authority string    `json:"authority"`
	Expires   time.Time `json:"expires"`
}

// IssuedOf returns what a hub notes of a certificate.
func IssuedOf(source string, cert *x509.Certificate) Issued {
	return Issued{Source: source, Serial: cert.SerialNumber.Text(16), Authority: AuthorityOf(cert), Expires: cert.NotAfter.UTC()}
}

// AuthorityOf returns the key id of the authority of a certificate, in hexadecimal.
func AuthorityOf(cert *x509.Certificate) string { return hex.EncodeToString(cert.AuthorityKeyId) }

// ParseIssued returns what is noted in a text, the newest last; nothing for one that cannot be read.
func ParseIssued(text string) (list []Issued) {
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	return list
}

// Note returns the text for a list with one more, without those that have expired; and whether it was not in the list.
func Note(list []Issued, one Issued, now time.Time) (text string, added bool) {
	next := slices.DeleteFunc(Unexpired(list, now), func(i Issued) bool { return i.Serial == one.Serial })
	data, _ := json.Marshal(append(next, one)) // has no value that cannot be encoded
	return string(data), !slices.ContainsFunc(list, func(i Issued) bool { return i.Serial == one.Serial })
}

// Of returns those of a list that a hub had signed, and those of which it is not known.
func Of(source string, list []Issued) []Issued {
	return slices.DeleteFunc(slices.Clone(list), func(i Issued) bool { return i.Source != "" && i.Source != source })
}

// Unexpired returns those of a list that have not expired.
func Unexpired(list []Issued, now time.Time) []Issued {
	return slices.DeleteFunc(slices.Clone(list), func(i Issued) bool { return !i.Expires.After(now) })
}

// Behind reports whether the newest of a list has not expired, and is of another authority than the one with a key id.
func Behind(list []Issued, authority string, now time.Time) bool {
	if len(list) == 0 {
		return false
	}
	last := list[len(list)-1]
	return last.Expires.After(now) && last.Authority != authority
}

// RevokedCertificate is a certificate that is revoked, until it expires.
type RevokedCertificate struct {
	Cluster string    `json:"cluster"`
	Serial  string    `json:"serial"`
	Expires time.Time `json:"expires"`
}

// Holder is a ManagedCluster as far as it decides about revocation.
type Holder struct {
	Name    string
	Revoked bool
	Issued  []Issued
}

// DecideRevoked returns which certificates are revoked: those of the holders that are, and of those that were before all that have not
// expired, whether their holder is still there or not. They are accepted again if their holder is, and has them.
func DecideRevoked(before []RevokedCertificate, holders []Holder, now time.Time) (next []RevokedCertificate) {
	again := map[string]bool{}
	for _, h := range holders {
		for _, i := range h.Issued {
			if !h.Revoked {
				again[i.Serial] = true
			}
		}
	}
	known := map[string]bool{}
	add := func(r RevokedCertificate) {
		if r.Expires.After(now) && !again[r.Serial] && !known[r.Serial] {
			known[r.Serial] = true
			next = append(next, r)
		}
	}
	for _, r := range before {
		add(r)
	}
	for _, h := range holders {
		for _, i := range h.Issued {
			if h.Revoked {
				add(RevokedCertificate{Cluster: h.Name, Serial: i.Serial, Expires: i.Expires})
			}
		}
	}
	return next
}

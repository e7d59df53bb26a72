package certificates

import (
	"bytes"
	"crypto/x509"
	"net"
	"slices"
	"strings"
	"time"
)

// installed is the content of a certificate's directory.
type installed struct {
	cert *x509.Certificate // nil without a matching pair of certificate and key
	err  error             // why the files cannot be used; nil if there are none
}

// renewalReason returns why the certificate must be issued again, or "" if the installed one can
// stay.
func renewalReason(want Certificate, have installed, current *issuer, now time.Time) string {
	switch cert := have.cert; {
	case have.err != nil:
		return "the files cannot be used: " + have.err.Error()
	case cert == nil:
		return "it does not exist"
	case !bytes.Equal(cert.AuthorityKeyId, current.cert.SubjectKeyId) || cert.CheckSignatureFrom(current.cert) != nil:
		return "another authority issued it"
	case current.hasRevoked(cert.SerialNumber):
		return "it is revoked"
	case cert.Subject.String() != subjectOf(want).String() || len(cert.ExtKeyUsage) != 1 || cert.ExtKeyUsage[0] != usageOf(want.Role):
		return "it is for another name or role"
	case !sameHosts(want.Hosts, cert):
		return "it is for other hosts"
	case !now.Before(cert.NotAfter):
		return "it has expired"
	case isDue(cert, now) && cert.NotAfter.Before(current.cert.NotAfter):
		return "two thirds of its lifetime have passed"
	default:
		return ""
	}
}

// isDue reports whether two thirds of the certificate's lifetime have passed.
func isDue(cert *x509.Certificate, now time.Time) bool {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return now.Sub(cert.NotBefore) >= life/3*2
}

func sameHosts(want []string, cert *x509.Certificate) bool {
	have := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		have = append(have, ip.String())
	}
	return slices.Equal(canonical(want), canonical(have))
}

// canonical returns hosts sorted, without duplicates, in canonical form.
func canonical(hosts []string) []string {
	list := make([]string, 0, len(hosts))
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			host = ip.String()
		}
		list = append(list, strings.ToLower(host))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

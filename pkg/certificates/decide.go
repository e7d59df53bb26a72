package certificates

import (
	"bytes"
	"crypto/x509"
	"slices"
	"strings"
	"time"
)

// held is what is found in a certificate's directory.
type held struct {
	cert  *x509.Certificate // nil unless certificate and key are there and fit
	fault error             // why they do not; nil when nothing is there
}

// decide says why the certificate that is wanted has to be issued anew, or "" when
// the one that is held can stay. It is pure.
func decide(want Certificate, have held, current *issuer, now time.Time) string {
	switch cert := have.cert; {
	case have.fault != nil:
		return "what is there can not be used: " + have.fault.Error()
	case cert == nil:
		return "there is none"
	case !bytes.Equal(cert.AuthorityKeyId, current.cert.SubjectKeyId) || cert.CheckSignatureFrom(current.cert) != nil:
		return "another authority issued it"
	case current.revoked(cert.SerialNumber):
		return "it is revoked"
	case cert.Subject.String() != subjectOf(want).String() || len(cert.ExtKeyUsage) != 1 || cert.ExtKeyUsage[0] != usageOf(want.Role):
		return "it is for another name or role"
	case !sameHosts(want.Hosts, cert):
		return "it is for other hosts"
	case !now.Before(cert.NotAfter):
		return "it has expired"
	case due(cert, now) && cert.NotAfter.Before(current.cert.NotAfter):
		return "two thirds of its life are over"
	default:
		return ""
	}
}

// due reports whether two thirds of cert's life are over.
func due(cert *x509.Certificate, now time.Time) bool {
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

// canonical gives hosts in one order and spelling.
func canonical(hosts []string) []string {
	list := make([]string, 0, len(hosts))
	for _, host := range hosts {
		list = append(list, hostName(host))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func hostName(host string) string {
	if ip := parseIP(host); ip != "" {
		return ip
	}
	return strings.ToLower(host)
}

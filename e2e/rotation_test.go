package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/test/kit"
)

// reload is within what time hub and agent take new certificates, with some to spare.
const reload = soon

// rotation renews all certificates and replaces the authority, while works change and nothing is
// restarted.
func rotation(s *stack) {
	started := s.starts()
	s.certificates("hub1", "old")
	step := 9
	taken := func(what string, args ...string) {
		s.Helper()
		before := s.reconnections()
		s.compose(slices.Concat([]string{"run", "--rm", "certs", "certs"}, args,
			[]string{"--config=/config/certificates.yaml", "--dir=/certs", "--owner=65532:65532"})...)
		s.eventually(what+": hub and agent have connected again", reload, func() error {
			s.change(step)
			step++
			now := s.reconnections()
			for service := range before {
				if now[service] == before[service] {
					return fmt.Errorf("%s has not: %v", service, now)
				}
			}
			return nil
		})
		s.converged()
	}
	// What is trusted next, and the renewed certificates, can be taken at once.
	s.compose("run", "--rm", "certs", "certs", "ensure", "--renew=all",
		"--config=/config/certificates.yaml", "--dir=/certs", "--owner=65532:65532")
	taken("renewed, next authority trusted", "rotate-authority", "--step=trust")
	s.certificates("hub1", "renewed")
	if s.issuer("old") != s.issuer("renewed") || s.certificate("old").SerialNumber.Cmp(s.certificate("renewed").SerialNumber) == 0 {
		s.Errorf("renewed is %v of %s", s.certificate("renewed").SerialNumber, s.issuer("renewed"))
	}
	taken("all issued again", "rotate-authority", "--step=issue")
	s.certificates("hub1", "issued")
	if s.issuer("issued") == s.issuer("old") {
		s.Errorf("the authority is the same as before: %s", s.issuer("old"))
	}
	s.certificates("hub1", "ours") // trusts both
	for _, certificate := range []string{"old", "renewed", "issued"} {
		s.accepted(certificate)
	}
	taken("former authority dropped", "rotate-authority", "--step=drop")
	for _, certificate := range []string{"old", "renewed"} {
		s.refused(certificate)
	}
	s.accepted("issued")
	s.present(metav1.ConditionTrue, soon)
	for service, at := range s.starts() {
		if !oneShots[service] && !at.Equal(started[service]) {
			s.Errorf("%s was started at %s, and at %s before", service, at, started[service])
		}
	}
}

// starts is when each container was started.
func (s *stack) starts() map[string]time.Time {
	s.Helper()
	starts := map[string]time.Time{}
	for service, c := range s.containers() {
		starts[service] = c.State.StartedAt
	}
	return starts
}

// reconnections are how often hub and agent have connected with changed certificates.
func (s *stack) reconnections() map[string]int {
	s.Helper()
	n := map[string]int{}
	for _, service := range []string{"hub", "agent"} {
		log := s.compose("logs", "--no-color", service)
		changed := strings.LastIndex(log, "certificate files have changed")
		n[service] = strings.Count(log, "certificate files have changed")
		if changed >= 0 && !strings.Contains(log[changed:], "connected to the broker") {
			n[service]--
		}
	}
	return n
}

func (s *stack) issuer(certificate string) string {
	s.Helper()
	return s.certificate(certificate).Issuer.String()
}

// certificate is the one in dir/name.
func (s *stack) certificate(name string) *x509.Certificate {
	s.Helper()
	text, err := os.ReadFile(s.path(name + "/tls.crt"))
	kit.NoError(s, err)
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil {
		s.Fatalf("%s holds no certificate", name)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	kit.NoError(s, err)
	return certificate
}

package certificates

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/workwire/workwire/pkg/runtime/files"
)

// Step is a step of the replacement of the authority. Each step may be repeated.
type Step string

// The steps in their order. Between two steps, distribute the written files to their users.
const (
	// Trust creates the next authority, and adds it to the trusted authorities.
	Trust Step = "trust"
	// Issue makes the next authority the current one, and issues all certificates again.
	Issue Step = "issue"
	// Drop removes the previous authority from the trusted authorities.
	Drop Step = "drop"
)

// Rotate takes one step of the replacement of the authority, and then does what [Manager.Ensure]
// does. A step out of order is an error.
func (m *Manager) Rotate(step Step) (Report, error) {
	var report Report
	err := m.withAuthorities(false, func(a *authorities) error {
		done, err := m.rotate(a, step, &report)
		if err != nil {
			return err
		}
		before := report.Outcomes
		report = Report{Authority: done}
		err = m.ensure(a, nil, &report)
		for _, b := range before { // what the step has issued is kept now
			if i := slices.IndexFunc(report.Outcomes, func(o Outcome) bool { return o.Name == b.Name }); i >= 0 {
				report.Outcomes[i].RenewalReason = cmp.Or(report.Outcomes[i].RenewalReason, b.RenewalReason)
			}
		}
		return err
	})
	return report, err
}

// rotate takes the step itself. What it issues, for a step that needs it, is in report.
func (m *Manager) rotate(a *authorities, step Step, report *Report) (done string, err error) {
	switch {
	case step == Trust && a.former != nil:
		return "", errors.New("the last step of a replacement is missing: run --step=drop first")
	case step == Trust && a.next == nil:
		if a.next, err = newIssuer(m.config.Authority, m.now()); err != nil {
			return "", err
		}
		if err := a.current.crossSign(a.next, m.now()); err != nil {
			return "", err
		}
		done = "created the next authority " + a.next.cert.Subject.CommonName
		return done, a.write(nextFiles, a.next)
	case step == Issue && a.next == nil && a.former == nil:
		return "", errors.New("there is no next authority: run --step=trust first")
	case step == Issue && a.next != nil:
		done = a.next.cert.Subject.CommonName + " is now the issuing authority"
		return done, a.promote()
	case step == Drop && a.next != nil:
		return "", errors.New("the next authority does not issue yet: run --step=issue first")
	case step == Drop && a.former != nil:
		// Holders of a certificate of the previous authority would be refused.
		if err := m.ensure(a, nil, report); err != nil {
			return "", err
		}
		done = a.former.cert.Subject.CommonName + " is no longer trusted, its key is deleted"
		return done, a.deleteFormer()
	case step == Drop:
		return "", a.deleteFormer() // what a call that was interrupted has left
	case step == Trust || step == Issue:
		return "", nil
	default:
		return "", fmt.Errorf("step %q is unknown; use trust, issue or drop", step)
	}
}

// Revoke adds the certificates that were issued to name and have not expired to the revocation
// lists, and returns their number. The name need not be listed anymore; if it is, Ensure issues a
// new certificate.
func (m *Manager) Revoke(name string) (int, error) {
	count := 0
	err := m.withAuthorities(false, func(a *authorities) error {
		list, err := a.issued()
		if err != nil {
			return err
		}
		for _, p := range a.all() {
			var serials []*big.Int
			for _, i := range list {
				if i.Name == name && i.Issuer == fmt.Sprintf("%x", p.issuer.cert.SubjectKeyId) && i.NotAfter.After(m.now()) {
					serials = append(serials, i.Serial)
				}
			}
			if len(serials) == 0 {
				continue
			}
			count += len(serials)
			if err := a.saveRevocations(p, serials, m.now()); err != nil {
				return err
			}
		}
		if count == 0 {
			return fmt.Errorf("revoke %q: no valid certificate was issued to this name", name)
		}
		return m.publishRevocations(a)
	})
	return count, err
}

// saveRevocations adds serials to the revocation list of authority p, and writes it.
func (a *authorities) saveRevocations(p placedIssuer, serials []*big.Int, now time.Time) error {
	if err := p.issuer.revoke(serials, now); err != nil {
		return err
	}
	return files.Replace(a.dir, files.File{Name: p.name + ".crl", Data: pemOf("X509 CRL", p.issuer.crl.Raw), Mode: 0o644})
}

// publishRevocations writes the revocation lists to the directories of brokers.
func (m *Manager) publishRevocations(a *authorities) error {
	for _, c := range m.config.Certificates {
		dir := m.path(c.Directory)
		if c.Role != Broker || !exists(dir) {
			continue // Ensure will write it
		}
		if _, err := update(dir, files.File{Name: crlFile, Data: a.revocations(), Mode: 0o644, Owner: m.ownerOf(dir)}); err != nil {
			return fmt.Errorf("certificate %s: %w", c.Name, err)
		}
	}
	return nil
}

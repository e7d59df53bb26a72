package certificates

import (
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Step is a step of replacing the authority. Each may be repeated.
type Step string

// The steps, in their order. Between them, what was written has to reach those who
// use it.
const (
	// Trust makes the next authority, and has everybody trust it besides the current one.
	Trust Step = "trust"
	// Issue makes the next authority the current one, and issues every certificate anew.
	Issue Step = "issue"
	// Drop has nobody trust the former authority any more.
	Drop Step = "drop"
)

// Rotate takes one step of replacing the authority, and does what [Manager.Ensure]
// does. It refuses a step out of order.
func (m *Manager) Rotate(step Step) (Report, error) {
	var report Report
	err := m.with(false, func(a *authorities) error {
		done, err := m.rotate(a, step)
		if err != nil {
			return err
		}
		report.Authority = done
		return m.ensure(a, nil, &report)
	})
	return report, err
}

func (m *Manager) rotate(a *authorities, step Step) (done string, err error) {
	switch {
	case step == Trust && a.former != nil:
		return "", errors.New("a replacement is under way and has got to its last step: take --step=drop first")
	case step == Trust && a.next == nil:
		if a.next, err = newIssuer(m.config.Authority, m.now()); err != nil {
			return "", err
		}
		done = "made the next authority " + a.next.cert.Subject.CommonName
		return done, a.write(nextFiles, a.next)
	case step == Issue && a.next == nil && a.former == nil:
		return "", errors.New("there is no next authority that everybody trusts: begin with --step=trust")
	case step == Issue && a.next != nil:
		done = a.next.cert.Subject.CommonName + " issues from now on"
		return done, a.promote()
	case step == Drop && a.next != nil:
		return "", errors.New("the next authority does not issue yet: take --step=issue first")
	case step == Drop && a.former != nil:
		// Whoever still has a certificate of the former one would be shut out.
		var report Report
		if err := m.ensure(a, nil, &report); err != nil {
			return "", err
		}
		done = a.former.cert.Subject.CommonName + " is not trusted any more, and its key is gone"
		return done, a.forget()
	case step == Trust || step == Issue || step == Drop:
		return "", nil
	default:
		return "", fmt.Errorf("step %q is unknown: use trust, issue or drop", step)
	}
}

// Revoke puts the certificates that were issued to name, and have not expired, on
// the revocation lists that brokers get. A name that is not listed any more can be
// revoked as well. It gives how many they are; Ensure issues a new one to a name
// that is listed.
func (m *Manager) Revoke(name string) (int, error) {
	count := 0
	err := m.with(false, func(a *authorities) error {
		list, err := a.issued()
		if err != nil {
			return err
		}
		for _, p := range a.all() {
			var serials []*big.Int
			for _, i := range list {
				if i.name == name && i.issuer == fmt.Sprintf("%x", p.issuer.cert.SubjectKeyId) && i.notAfter.After(m.now()) {
					serials = append(serials, i.serial)
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
			return fmt.Errorf("no certificate that is still valid was issued to %q", name)
		}
		return m.publishRevocations(a)
	})
	return count, err
}

// saveRevocations adds serials to the revocation list of p.
func (a *authorities) saveRevocations(p placed, serials []*big.Int, now time.Time) error {
	if err := p.issuer.revoke(serials, now); err != nil {
		return err
	}
	return replace(a.dir, file{name: p.name + ".crl", data: pemOf("X509 CRL", p.issuer.crl.Raw), mode: 0o644})
}

func (m *Manager) publishRevocations(a *authorities) error {
	for _, c := range m.config.Certificates {
		dir := m.path(c.Directory)
		if c.Role != Broker || !exists(dir) {
			continue // Ensure writes it
		}
		if _, err := update(dir, file{crlFile, a.revocations(), 0o644, m.ownerOf(dir)}); err != nil {
			return fmt.Errorf("certificate %s: %w", c.Name, err)
		}
	}
	return nil
}

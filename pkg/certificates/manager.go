package certificates

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// The files of a certificate, named as in a Secret of type kubernetes.io/tls.
const (
	certFile  = "tls.crt"
	keyFile   = "tls.key"
	trustFile = "ca.crt"
	crlFile   = "ca.crl"
)

// Owner is who shall own the files of certificates.
type Owner struct{ UID, GID int }

// ManagerConfig is the configuration of a [Manager].
type ManagerConfig struct {
	// Config lists the certificates; required. New applies its defaults and validates it.
	Config Config
	// Dir is the base of relative directories in Config; default the working directory.
	Dir string
	// Owner owns the files of the certificates, but not those of the authority; default the
	// owner of each certificate's directory if the process runs as root, else the process.
	Owner *Owner
	// Now returns the current time; default time.Now.
	Now func() time.Time
}

// Manager keeps the certificates of a [Config]. Several processes may use the same
// directories: who changes them waits for others that do.
type Manager struct {
	config Config
	dir    string
	owner  *Owner
	now    func() time.Time
}

// New returns a manager. It reads and writes no files, and reports every fault of cfg at once.
func New(cfg ManagerConfig) (*Manager, error) {
	cfg.Config.Certificates = slices.Clone(cfg.Config.Certificates)
	cfg.Config.setDefaults()
	errs := []error{cfg.Config.validate()}
	if o := cfg.Owner; o != nil && (o.UID < 0 || o.GID < 0) {
		errs = append(errs, fmt.Errorf("owner %d:%d: user and group ids must not be negative", o.UID, o.GID))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("certificates configuration: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Manager{config: cfg.Config, dir: cfg.Dir, owner: cfg.Owner, now: cfg.Now}, nil
}

// Outcome is what was done about one certificate.
type Outcome struct {
	Name      string
	Directory string
	// Renewed says why it was issued, and is empty when it was kept.
	Renewed string
	// Updated reports that the authorities to trust, or what they have revoked,
	// have changed.
	Updated  bool
	NotAfter time.Time
}

// Report is what was done.
type Report struct {
	// Authority says what was done about the authority, empty for nothing.
	Authority string
	// Outcomes are in the order of the configuration.
	Outcomes []Outcome
	// Warnings say what somebody should look after.
	Warnings []string
}

// All stands, in place of a name, for every certificate.
const All = "all"

// Ensure issues the certificates that are missing or due, and those that renew
// names. It makes the authority if there is none at all. What was done before an
// error is in the report.
func (m *Manager) Ensure(renew ...string) (Report, error) {
	var report Report
	for _, name := range renew {
		if _, err := m.certificate(name); err != nil && name != All {
			return report, err
		}
	}
	err := m.with(true, func(a *authorities) error {
		if a.made {
			report.Authority = "made the authority " + a.current.cert.Subject.CommonName
		}
		return m.ensure(a, renew, &report)
	})
	return report, err
}

// with runs do on the authorities, alone. It makes one if create says so.
func (m *Manager) with(create bool, do func(*authorities) error) (err error) {
	dir := m.path(m.config.Authority.Directory)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := finish(dir); err != nil {
		return err
	}
	a, err := openAuthorities(dir)
	if errors.Is(err, os.ErrNotExist) && create {
		a = &authorities{dir: dir, made: true}
		if a.current, err = newIssuer(m.config.Authority, m.now()); err == nil {
			err = a.write(currentFiles, a.current)
		}
	}
	if err != nil {
		return err
	}
	for _, p := range a.all() {
		if p.issuer.crl != nil {
			continue
		}
		if err := a.saveRevocations(p, nil, m.now()); err != nil {
			return err
		}
	}
	return do(a)
}

func (m *Manager) path(directory string) string {
	if filepath.IsAbs(directory) {
		return directory
	}
	return filepath.Join(m.dir, directory)
}

func (m *Manager) certificate(name string) (Certificate, error) {
	for _, c := range m.config.Certificates {
		if c.Name == name {
			return c, nil
		}
	}
	return Certificate{}, fmt.Errorf("certificate %q is not in the list", name)
}

func (m *Manager) ensure(a *authorities, renew []string, report *Report) error {
	now := m.now()
	if !now.Before(a.current.cert.NotAfter) {
		return fmt.Errorf("the authority %s has expired on %s: nothing that it issues is accepted; replace it with rotate-authority, which can not go without an outage any more",
			a.current.cert.Subject.CommonName, a.current.cert.NotAfter.UTC().Format(time.DateOnly))
	}
	if due(a.current.cert, now) && a.next == nil {
		report.Warnings = append(report.Warnings, fmt.Sprintf("the authority %s ends on %s, and with it all that it issued: replace it with rotate-authority",
			a.current.cert.Subject.CommonName, a.current.cert.NotAfter.UTC().Format(time.DateOnly)))
	}
	var faults []error
	for _, want := range m.config.Certificates {
		forced := slices.Contains(renew, want.Name) || slices.Contains(renew, All)
		outcome, err := m.ensureOne(a, want, forced, now)
		if err != nil {
			faults = append(faults, fmt.Errorf("certificate %s: %w", want.Name, err))
			continue
		}
		report.Outcomes = append(report.Outcomes, outcome)
	}
	return errors.Join(faults...)
}

func (m *Manager) ensureOne(a *authorities, want Certificate, forced bool, now time.Time) (Outcome, error) {
	dir := m.path(want.Directory)
	outcome := Outcome{Name: want.Name, Directory: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return outcome, err
	}
	owner := m.ownerOf(dir)
	// Who is to trust comes before what needs the trust.
	updates := []file{{trustFile, a.trust(), 0o644, owner}}
	if want.Role == Broker {
		updates = append(updates, file{crlFile, a.revocations(), 0o644, owner})
	}
	for _, f := range updates {
		changed, err := update(dir, f)
		if err != nil {
			return outcome, err
		}
		outcome.Updated = outcome.Updated || changed
	}
	have := readHeld(dir)
	outcome.Renewed = decide(want, have, a.current, now)
	if forced && outcome.Renewed == "" {
		outcome.Renewed = "it was asked for"
	}
	cert := have.cert
	if outcome.Renewed != "" {
		fresh, certPEM, keyPEM, err := a.current.issue(want, now)
		if err != nil {
			return outcome, err
		}
		// Recorded first: one that nobody knows of could not be revoked.
		if err := a.record(want.Name, fresh, now); err != nil {
			return outcome, err
		}
		if err := replace(dir, file{keyFile, keyPEM, 0o600, owner}, file{certFile, certPEM, 0o644, owner}); err != nil {
			return outcome, err
		}
		cert = fresh
	}
	outcome.NotAfter = cert.NotAfter
	return outcome, own(dir, want.Role, owner)
}

// ownerOf gives who shall own the files in dir, nil for the process.
func (m *Manager) ownerOf(dir string) *Owner {
	if m.owner != nil || os.Geteuid() != 0 {
		return m.owner
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil // writing to it will tell
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return &Owner{int(stat.Uid), int(stat.Gid)}
	}
	return nil
}

// own gives the directory and what was kept in it to owner.
func own(dir string, role Role, owner *Owner) error {
	if err := os.Chmod(filepath.Join(dir, keyFile), 0o600); err != nil {
		return err
	}
	if owner == nil {
		return nil
	}
	paths := []string{dir, filepath.Join(dir, certFile), filepath.Join(dir, keyFile), filepath.Join(dir, trustFile)}
	if role == Broker {
		paths = append(paths, filepath.Join(dir, crlFile))
	}
	for _, path := range paths {
		if err := os.Lchown(path, owner.UID, owner.GID); err != nil {
			return fmt.Errorf("give it to user %d: %w", owner.UID, err)
		}
	}
	return nil
}

// readHeld reads the certificate in dir.
func readHeld(dir string) held {
	cert, certErr := os.ReadFile(filepath.Join(dir, certFile))
	key, keyErr := os.ReadFile(filepath.Join(dir, keyFile))
	if errors.Is(certErr, os.ErrNotExist) && errors.Is(keyErr, os.ErrNotExist) {
		return held{}
	}
	if err := errors.Join(certErr, keyErr); err != nil {
		return held{fault: err}
	}
	pair, err := tls.X509KeyPair(bytes.TrimSpace(cert), bytes.TrimSpace(key))
	if err != nil {
		return held{fault: err}
	}
	return held{cert: pair.Leaf}
}

func parseIP(host string) string {
	if ip := net.ParseIP(host); ip != nil {
		return ip.String()
	}
	return ""
}

package certificates

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/workwire/workwire/pkg/runtime/files"
)

// Names of the files of a certificate, as in a Secret of type kubernetes.io/tls.
const (
	certFile  = "tls.crt"
	keyFile   = "tls.key"
	trustFile = "ca.crt"
	crlFile   = "ca.crl"
)

// Owner is the owner of the files of certificates, by user and group id.
type Owner = files.Owner

// ManagerConfig is the configuration of a [Manager].
type ManagerConfig struct {
	// Config lists the certificates; required. New applies its defaults and validates it.
	Config Config
	// Dir is the base of relative directories in Config; default the working directory.
	Dir string
	// Owner owns the files of the certificates, but not those of the authority; default the owner
	// of each certificate's directory if the process runs as root, else the process.
	Owner *Owner
	// Now returns the current time; default time.Now.
	Now func() time.Time
}

// Manager issues and renews the certificates of a [Config]. Several processes may use the same
// directories; a lock file serializes their changes.
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

// Outcome is the result for one certificate.
type Outcome struct {
	Name      string
	Directory string
	// RenewalReason is why it was issued; empty if it was kept.
	RenewalReason string
	// Updated reports whether the trusted authorities or their revocation lists have changed.
	Updated  bool
	NotAfter time.Time
}

// Report is the result of a change.
type Report struct {
	// Authority describes the change of the authority; empty without a change.
	Authority string
	// Outcomes are in the order of the configuration.
	Outcomes []Outcome
	// Warnings are problems that need an operator.
	Warnings []string
}

// All is the name for every certificate in [Manager.Ensure].
const All = "all"

// Ensure issues the certificates that are missing or due, and those named in renew. It creates the
// authority if there is none. With an error, the report holds what was done before it.
func (m *Manager) Ensure(renew ...string) (Report, error) {
	var report Report
	for _, name := range renew {
		if _, err := m.certificate(name); err != nil && name != All {
			return report, err
		}
	}
	err := m.withAuthorities(true, func(a *authorities) error {
		if a.created {
			report.Authority = "created the authority " + a.current.cert.Subject.CommonName
		}
		return m.ensure(a, renew, &report)
	})
	return report, err
}

// withAuthorities calls f with the authorities, under the lock of their directory. If there is no
// authority, it creates one if create is set.
func (m *Manager) withAuthorities(create bool, f func(*authorities) error) (err error) {
	dir := m.path(m.config.Authority.Directory)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := finishPromotion(dir); err != nil {
		return err
	}
	a, err := openAuthorities(dir)
	if errors.Is(err, os.ErrNotExist) && create {
		a = &authorities{dir: dir, created: true}
		if a.current, err = newIssuer(m.config.Authority, m.now()); err == nil {
			err = a.write(currentFiles, a.current)
		}
	}
	if err != nil {
		return err
	}
	for _, p := range a.all() {
		if p.issuer.crl == nil {
			if err := a.saveRevocations(p, nil, m.now()); err != nil {
				return err
			}
		}
	}
	return f(a)
}

func (m *Manager) path(directory string) string {
	if filepath.IsAbs(directory) {
		return directory
	}
	return filepath.Join(m.dir, directory)
}

func (m *Manager) certificate(name string) (Certificate, error) {
	i := slices.IndexFunc(m.config.Certificates, func(c Certificate) bool { return c.Name == name })
	if i < 0 {
		return Certificate{}, fmt.Errorf("certificate %q is not in the list", name)
	}
	return m.config.Certificates[i], nil
}

func (m *Manager) ensure(a *authorities, renew []string, report *Report) error {
	now := m.now()
	if !now.Before(a.current.cert.NotAfter) {
		return fmt.Errorf("the authority %s expired on %s, and with it all its certificates; replace it with rotate-authority, which now causes an outage",
			a.current.cert.Subject.CommonName, a.current.cert.NotAfter.UTC().Format(time.DateOnly))
	}
	if isDue(a.current.cert, now) && a.next == nil {
		report.Warnings = append(report.Warnings, fmt.Sprintf("the authority %s expires on %s, and with it all its certificates; replace it with rotate-authority",
			a.current.cert.Subject.CommonName, a.current.cert.NotAfter.UTC().Format(time.DateOnly)))
	}
	var errs []error
	for _, want := range m.config.Certificates {
		forced := slices.Contains(renew, want.Name) || slices.Contains(renew, All)
		outcome, err := m.ensureOne(a, want, forced, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("certificate %s: %w", want.Name, err))
			continue
		}
		report.Outcomes = append(report.Outcomes, outcome)
	}
	return errors.Join(errs...)
}

func (m *Manager) ensureOne(a *authorities, want Certificate, forced bool, now time.Time) (Outcome, error) {
	dir := m.path(want.Directory)
	outcome := Outcome{Name: want.Name, Directory: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return outcome, err
	}
	owner := m.ownerOf(dir)
	// Trusted authorities are written before the certificate that they must verify.
	updates := []files.File{{Name: trustFile, Data: a.trust(), Mode: 0o644, Owner: owner}}
	if want.Role == Broker {
		updates = append(updates, files.File{Name: crlFile, Data: a.revocations(), Mode: 0o644, Owner: owner})
	}
	for _, f := range updates {
		changed, err := update(dir, f)
		if err != nil {
			return outcome, err
		}
		outcome.Updated = outcome.Updated || changed
	}
	have := readInstalled(dir)
	outcome.RenewalReason = renewalReason(want, have, a.current, now)
	if forced && outcome.RenewalReason == "" {
		outcome.RenewalReason = "requested"
	}
	cert := have.cert
	if outcome.RenewalReason != "" {
		issued, certPEM, keyPEM, err := a.current.issue(want, now)
		if err != nil {
			return outcome, err
		}
		// Listed first: a certificate that is not listed cannot be revoked.
		if err := a.addIssued(want.Name, issued, now); err != nil {
			return outcome, err
		}
		if err := files.Replace(dir, files.File{Name: keyFile, Data: keyPEM, Mode: 0o600, Owner: owner}, files.File{Name: certFile, Data: certPEM, Mode: 0o644, Owner: owner}); err != nil {
			return outcome, err
		}
		cert = issued
	}
	outcome.NotAfter = cert.NotAfter
	return outcome, setOwner(dir, want.Role, owner)
}

// ownerOf returns the owner for the files in dir; nil means the process.
func (m *Manager) ownerOf(dir string) *Owner {
	if m.owner != nil || os.Geteuid() != 0 {
		return m.owner
	}
	var stat syscall.Stat_t
	if syscall.Stat(dir, &stat) != nil {
		return nil // writing to dir returns the error
	}
	return &Owner{UID: int(stat.Uid), GID: int(stat.Gid)}
}

// setOwner sets the owner of the directory and of all its files.
func setOwner(dir string, role Role, owner *Owner) error {
	if err := os.Chmod(filepath.Join(dir, keyFile), 0o600); err != nil {
		return err
	}
	if owner == nil {
		return nil
	}
	for _, name := range append(filesOf(role), ".") {
		if err := os.Lchown(filepath.Join(dir, name), owner.UID, owner.GID); err != nil {
			return fmt.Errorf("change the owner to user %d: %w", owner.UID, err)
		}
	}
	return nil
}

// filesOf returns the names of the files of a certificate.
func filesOf(role Role) []string {
	if role == Broker {
		return []string{certFile, keyFile, trustFile, crlFile}
	}
	return []string{certFile, keyFile, trustFile}
}

// readInstalled reads the certificate in dir.
func readInstalled(dir string) installed {
	if !exists(filepath.Join(dir, certFile)) && !exists(filepath.Join(dir, keyFile)) {
		return installed{}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
	return installed{cert: pair.Leaf, err: err}
}

// update replaces a file if its content differs.
func update(dir string, f files.File) (changed bool, err error) {
	data, err := os.ReadFile(filepath.Join(dir, f.Name))
	if err == nil && bytes.Equal(data, f.Data) {
		return false, nil
	}
	return true, files.Replace(dir, f)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

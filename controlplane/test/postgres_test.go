package test

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// store is where a control plane has its data.
type store struct {
	// program is the process that serves it.
	program string
	// args are the arguments of up.
	args []string
}

// onStores runs a test with etcd and with a database.
func onStores(t *testing.T, test func(t *testing.T, s store)) {
	t.Parallel()
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		test(t, store{program: "etcd"})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		server := sharedPostgres(t)
		test(t, store{program: "kine", args: []string{server.endpointFile(t, server.createDatabase(t))}})
	})
}

// password has characters that URLs encode.
const password = "pass/w%rd-that-nobody-may-see"

// postgres is a PostgreSQL server on a socket in a directory of its own, with the superuser hub.
type postgres struct {
	dir, log string
	as       []string // the command that runs programs as a user whom PostgreSQL accepts
	options  []string
	cmd      *exec.Cmd
	made     atomic.Int32
}

var shared struct {
	once   sync.Once
	server *postgres
	err    error
}

// sharedPostgres returns the server of all tests that do not stop theirs.
func sharedPostgres(t testing.TB) *postgres {
	t.Helper()
	requirePostgres(t)
	shared.once.Do(func() { shared.server, shared.err = newPostgres() })
	noError(t, shared.err)
	return shared.server
}

// ownPostgres returns a server that ends with the test.
func ownPostgres(t testing.TB, options ...string) *postgres {
	t.Helper()
	requirePostgres(t)
	server, err := newPostgres(options...)
	noError(t, err)
	t.Cleanup(server.remove)
	return server
}

// requirePostgres skips a test, or with WORKWIRE_TEST_ALL fails it, where PostgreSQL is not installed, as
// kit.Program does in the other module.
func requirePostgres(t testing.TB) {
	t.Helper()
	_, err := exec.LookPath(postgresProgram("postgres"))
	switch {
	case err == nil && !slices.Contains(strings.Split(os.Getenv("WORKWIRE_TEST_WITHOUT"), ","), "postgres"):
	case os.Getenv("WORKWIRE_TEST_ALL") != "":
		t.Fatal("postgres is not installed; make check INSTALL=1 installs it on Debian")
	default:
		t.Skip("left out: needs postgres; hack/needs.sh test names the Debian package")
	}
}

// postgresProgram returns a program of PostgreSQL, which Debian does not put into PATH.
func postgresProgram(name string) string {
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
		return found[len(found)-1]
	}
	return name
}

func newPostgres(options ...string) (_ *postgres, err error) {
	dir, err := os.MkdirTemp("", "pg") // the path of a socket must be short
	if err != nil {
		return nil, err
	}
	p := &postgres{dir: dir, options: options, log: filepath.Join(dir, "log")}
	if os.Getuid() == 0 {
		account, err := user.Lookup("nobody")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(account.Uid)
		gid, _ := strconv.Atoi(account.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
		p.as = []string{"setpriv", "--reuid=" + account.Uid, "--regid=" + account.Gid, "--clear-groups", "--pdeathsig=KILL"}
	}
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o644); err != nil {
		return nil, err
	}
	if out, err := p.command("initdb", "--pgdata="+p.data(), "--username=hub", "--pwfile="+secret,
		"--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	return p, p.start()
}

func (p *postgres) data() string { return filepath.Join(p.dir, "data") }

// command returns a program of PostgreSQL with arguments.
func (p *postgres) command(name string, args ...string) *exec.Cmd {
	line := append(append(append([]string{}, p.as...), postgresProgram(name)), args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password, "PGHOST="+p.dir, "PGUSER=hub")
	return cmd
}

// start starts the server and waits until it accepts connections.
func (p *postgres) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = p.command("postgres", append([]string{"-D", p.data(), "-k", p.dir, "-c", "listen_addresses=", "-c", "fsync=off"}, p.options...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		_, err := p.query("postgres", "SELECT 1")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			data, _ := os.ReadFile(p.log)
			return fmt.Errorf("PostgreSQL does not start: %w: %s", err, data)
		}
	}
}

// kill kills the server and all its processes, as a crash does.
func (p *postgres) kill(t *testing.T) {
	t.Helper()
	children := (&controlPlane{t: t, cmd: p.cmd}).children()
	noError(t, p.cmd.Process.Kill())
	for pid := range children {
		syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
	}
	p.cmd.Wait() //nolint:errcheck // it was killed
	eventually(t, "the processes of PostgreSQL end", func() error {
		for pid := range children {
			if alive(pid) {
				return fmt.Errorf("%d is alive", pid)
			}
		}
		return nil
	})
}

func (p *postgres) remove() {
	p.cmd.Process.Signal(syscall.SIGQUIT) //nolint:errcheck // it may have ended
	p.cmd.Wait()                          //nolint:errcheck // likewise
	os.RemoveAll(p.dir)
}

func (p *postgres) query(database, statement string) (string, error) {
	out, err := p.command("psql", "--no-psqlrc", "--dbname="+database, "-v", "ON_ERROR_STOP=1", "-qAtc", statement).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (p *postgres) createDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("hub%d", p.made.Add(1))
	_, err := p.query("postgres", "CREATE DATABASE "+name)
	noError(t, err)
	return name
}

// endpoint returns the URL of a database. Its first host does not exist, as that of a server that was
// replaced.
func (p *postgres) endpoint(database string) string {
	return "postgres://hub:" + url.QueryEscape(password) + "@/" + database +
		"?host=" + url.QueryEscape("/nowhere,"+p.dir) + "&target_session_attrs=read-write"
}

// endpointFile returns the argument of up for a database.
func (p *postgres) endpointFile(t testing.TB, database string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "endpoint")
	noError(t, os.WriteFile(file, []byte(p.endpoint(database)+"\n"), 0o600))
	return "--datastore-endpoint-file=" + file
}

// noSecret fails the test if the password is in a log, in the command line of a process, or in what up
// has printed.
func (p *controlPlane) noSecret(dir string) {
	p.t.Helper()
	texts := map[string]string{"up": p.stderr.String()}
	logs, err := filepath.Glob(filepath.Join(dir, "logs", "*"))
	if err != nil || len(logs) == 0 {
		p.t.Fatal("no logs", err)
	}
	for pid := range p.children() {
		logs = append(logs, fmt.Sprintf("/proc/%d/cmdline", pid), fmt.Sprintf("/proc/%d/environ", pid))
	}
	for _, file := range logs {
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.t.Fatal(err)
		}
		texts[file] = string(bytes.ReplaceAll(data, []byte{0}, []byte(" ")))
	}
	for where, text := range texts {
		if strings.Contains(text, password) || strings.Contains(text, url.QueryEscape(password)) {
			p.t.Errorf("the password is in %s", where)
		}
	}
}

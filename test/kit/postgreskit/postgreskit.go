// Package postgreskit runs a PostgreSQL server for tests, on a socket in a directory of its own.
//
//	server := postgreskit.Start(t)
//	url := server.Database(t)
package postgreskit

import (
	"bytes"
	"context"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/process"
)

// unprivileged is the user that the server runs as if the test runs as root, which PostgreSQL refuses.
const unprivileged = "nobody"

// Server is a running server.
type Server struct {
	dir, logs string
	argv      []string
	process   *process.Process
	made      atomic.Int32
}

// Start makes a server and runs it until the end of the test. It does not wait for the disk: it is not
// for tests of its own crash.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, "-c", "fsync=off")
}

// StartDurable is like Start, but the server waits for the disk.
func StartDurable(t testing.TB) *Server {
	t.Helper()
	return start(t)
}

func start(t testing.TB, options ...string) *Server {
	t.Helper()
	kit.PostgreSQL.Require(t)
	s, err := Run(t.Context(), t.TempDir(), options...)
	kit.NoError(t, err)
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

// Run is StartDurable for programs that are no tests, with more options of postgres and a directory for
// logs. Stop must be called.
func Run(ctx context.Context, logs string, options ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "pg") // the path of a socket must be short
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, logs: logs}
	if err := s.initialize(ctx, options); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) initialize(ctx context.Context, options []string) error {
	as, err := become(s.dir)
	if err != nil {
		return err
	}
	initdb, err := program("initdb")
	if err != nil {
		return err
	}
	postgres, err := program("postgres")
	if err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	argv := slices.Concat(as, []string{initdb, "--pgdata=" + data, "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"})
	if output, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, output)
	}
	s.argv = slices.Concat(as, []string{postgres, "-D", data, "-k", s.dir, "-c", "listen_addresses="}, options)
	return s.resume(ctx)
}

// Stop ends the server, as a crash does, and removes its data.
func (s *Server) Stop() error {
	var killed error
	if s.process != nil { // it has started
		killed = s.process.Kill()
	}
	return errors.Join(killed, os.RemoveAll(s.dir))
}

// Continue starts the server again after Kill.
func (s *Server) Continue(t testing.TB) {
	t.Helper()
	kit.NoError(t, s.resume(t.Context()))
}

func (s *Server) resume(ctx context.Context) (err error) {
	if s.process, err = process.Start(s.logs, "postgres", s.argv...); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := s.exec(ctx, "SELECT 1")
		return err == nil, s.process.Died()
	})
}

// Kill kills all processes of the server, as a crash does.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	pid := s.process.PID()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	kit.NoError(t, err)
	kit.NoError(t, s.process.Kill())
	for _, text := range strings.Fields(string(children)) {
		child, err := strconv.Atoi(text)
		kit.NoError(t, err)
		_ = syscall.Kill(child, syscall.SIGKILL) // it ends with the server, or has ended
		kit.Eventually(t, "a process of PostgreSQL ends", func() error {
			if _, err := os.Stat("/proc/" + text); err == nil {
				return errors.New("it is there")
			}
			return nil
		})
	}
}

// Dump writes a backup of a database.
func (s *Server) Dump(t testing.TB, database string) []byte {
	t.Helper()
	return s.run(t, nil, "pg_dump", "--format=custom", "--dbname="+s.URL(database))
}

// Restore replaces a database, which nobody may use meanwhile, by a backup.
func (s *Server) Restore(t testing.TB, database string, dump []byte) {
	t.Helper()
	s.Exec(t, "DROP DATABASE "+database)
	s.Exec(t, "CREATE DATABASE "+database)
	s.run(t, dump, "pg_restore", "--exit-on-error", "--dbname="+s.URL(database))
}

func (s *Server) run(t testing.TB, input []byte, name string, args ...string) []byte {
	t.Helper()
	path, err := program(name)
	kit.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = bytes.NewReader(input)
	output, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%s: %v: %s", name, err, exit.Stderr)
		}
		t.Fatalf("%s: %v", name, err)
	}
	return output
}

// become returns the command that runs programs as a user that PostgreSQL accepts, and gives dir to that
// user.
func become(dir string) (as []string, err error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup(unprivileged)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(account.Gid)
	if err != nil {
		return nil, err
	}
	return []string{"setpriv", "--reuid=" + account.Uid, "--regid=" + account.Gid, "--clear-groups", "--pdeathsig=KILL"}, os.Chown(dir, uid, gid)
}

// program returns the path of a program of PostgreSQL, which Debian does not put into PATH.
func program(name string) (string, error) {
	postgres, ok := kit.PostgreSQL.Find()
	if !ok {
		return "", fmt.Errorf("%s is not installed: install PostgreSQL (hack/needs.sh test)", name)
	}
	return filepath.Join(filepath.Dir(postgres), name), nil
}

func (s *Server) exec(ctx context.Context, statement string) (string, error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tag, err := conn.Exec(ctx, statement)
	return tag.String(), err
}

// Exec executes a statement in the database postgres, as its superuser.
func (s *Server) Exec(t testing.TB, statement string) {
	t.Helper()
	_, err := s.exec(t.Context(), statement)
	kit.NoError(t, err)
}

// Database makes an empty database and returns its name.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name, err := s.Make(t.Context())
	kit.NoError(t, err)
	return name
}

// Make is Database for programs that are no tests.
func (s *Server) Make(ctx context.Context) (string, error) {
	name := fmt.Sprintf("test%d", s.made.Add(1))
	_, err := s.exec(ctx, "CREATE DATABASE "+name)
	return name, err
}

// URL returns the connection string of a database.
func (s *Server) URL(database string) string { return s.urlAt(s.dir, database) }

func (s *Server) urlAt(dir, database string) string {
	return "postgres:///" + database + "?host=" + url.QueryEscape(dir) + "&user=postgres"
}

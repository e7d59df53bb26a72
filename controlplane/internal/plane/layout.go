package plane

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/workwire/workwire/controlplane/internal/credentials"
)

// layout returns the paths of the files of one control plane in its directory.
//
//	lock            held by every process of the control plane while it runs
//	state.json      role, name and port
//	kubeconfig      the administrator's access
//	ready           exists while the control plane is ready
//	etcd/           etcd's data
//	etcd.before/    etcd's data before the last restore
//	etcd.new/       those that a restore is making
//	etcd.sock:0     the socket of etcd or kine (and etcd-peer.sock:0, which has no peers)
//	pki/            certificates, keys, and one kubeconfig per component
//	logs/           one log per component, up to about 64 MiB, and the previous one as .log.1
//	stages.yaml     KWOK's stages of nodes and pods (spokes)
type layout struct{ dir string }

func (l layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.dir}, elem...)...)
}
func (l layout) pki(name string) string { return l.path("pki", name) }
func (l layout) log(name string) string { return l.path("logs", name+".log") }

// prepare creates the directories, but for that of the data, which etcd makes. It returns an error if they cannot be used.
func (l layout) prepare() error {
	for _, dir := range []string{l.dir, l.path("pki"), l.path("logs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("cannot use --dir=%s: %w; give a directory this user may write to", l.dir, err)
		}
	}
	probe, err := os.CreateTemp(l.dir, ".probe")
	if err != nil {
		return fmt.Errorf("cannot write in --dir=%s: %w; give a directory this user may write to", l.dir, err)
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// lock locks the directory, and writes the id of this process to the lock file. The lock belongs to
// the open file, which children inherit: a directory is unlocked when the last process of an
// instance has ended. lock waits up to timeout, because the children of a killed instance need a
// moment to exit.
func (l layout) lock(timeout time.Duration) (*os.File, error) {
	f, err := os.OpenFile(l.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot write in --dir=%s: %w; give a directory this user may write to", l.dir, err)
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
	}
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = fmt.Fprintln(f, os.Getpid())
		}
	} else if errors.Is(err, syscall.EWOULDBLOCK) {
		holder, _ := io.ReadAll(io.LimitReader(f, 20)) // only for the message
		err = fmt.Errorf("it is in use by another running control plane (process %s); stop that one or give another directory", strings.TrimSpace(string(holder)))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot use --dir=%s: %w", l.dir, err)
	}
	return f, nil
}

// State is the state of a control plane in its directory.
type State struct {
	Role Role   `json:"role"`
	Name string `json:"name"`
	// Host is the IP address of the API server for clients on this machine; default 127.0.0.1.
	Host string `json:"host,omitempty"`
	// Port is the TCP port of the current or last API server.
	Port int `json:"port"`
	// Datastore is Postgres, or empty if the data is in etcd.
	Datastore string `json:"datastore,omitempty"`
}

// Server returns the URL of the API server.
func (s State) Server() string { return s.at(cmp.Or(s.Host, loopback)) }

// at returns the URL of the API server for clients that connect to host.
func (s State) at(host string) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(s.Port))
}

// ReadState reads the state in dir. The error wraps os.ErrNotExist if no control plane has been
// started there.
func ReadState(dir string) (State, error) {
	path := layout{dir}.path("state.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return State{}, fmt.Errorf("reading the control plane's state: %w", err)
	}
	s, err := decodeState(data)
	if err != nil {
		return State{}, fmt.Errorf("reading the control plane's state in %s: %w; remove the directory to start again", path, err)
	}
	return s, nil
}

func decodeState(data []byte) (State, error) {
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, err
	}
	if !s.Role.valid() {
		return State{}, fmt.Errorf("role %q is neither hub nor spoke", s.Role)
	}
	if s.Port < 1 || s.Port > 65535 {
		return State{}, fmt.Errorf("port %d is out of range", s.Port)
	}
	if s.Datastore != "" && s.Datastore != Postgres {
		return State{}, fmt.Errorf("datastore %q is unknown", s.Datastore)
	}
	return s, nil
}

func (l layout) writeState(s State) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding the control plane's state: %w", err)
	}
	return credentials.WriteFile(l.path("state.json"), append(data, '\n'), 0o600)
}

// PKI returns the directory of the certificate authority in dir.
func PKI(dir string) string { return layout{dir}.path("pki") }

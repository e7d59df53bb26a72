// Package mosquittokit runs Eclipse Mosquitto 2 with the configuration and the access rules in broker/mosquitto.
//
//	p, err := mosquittokit.Start(ctx, mosquittokit.Config{Dir: dir, Users: users})
//	dial(p.Addr)
//	err = p.Stop() // keeps dir; to restart, call Start with p.Config
package mosquittokit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/mosquitto"
	"github.com/workwire/workwire/test/kit/process"
)

// Parts of the two files that Render replaces.
const (
	defaultListener = "listener 1883 127.0.0.1"
	tlsListener     = "#listener 8883\n"
	joinersListener = "listener 8884\n"
	webListener     = "listener 443\n"
	crlSetting      = "crlfile client-ca.crl\n"
	userAsClientID  = "#use_username_as_clientid true"
	joiner          = "joiner.any"
	exampleSource   = "hub1"
	exampleBlock    = "user source." + exampleSource + "\n"
)

// commented matches the beginning of a line with a setting that is a comment.
var commented = regexp.MustCompile(`(?m)^#(\S)`)

// Config is the configuration of a Mosquitto process.
type Config struct {
	// Dir is an existing directory for the configuration, the data and mosquitto.log; required.
	Dir string

	// Port is the TCP port on loopback, JoinersPort, with TLS, that of joiners; 0 chooses a free port.
	Port, JoinersPort int

	// WebSocket adds a listener for WebSockets, at WebSocketPort, or any free port for 0. It needs TLS, and a Mosquitto
	// that was built with libwebsockets, which listens beyond loopback.
	WebSocket     bool
	WebSocketPort int

	// Users are the clients. Each needs a plain Password, unless TLS is set. The ID of an agent
	// must be empty or equal to its Username, because Mosquitto's rules use the user name. A source
	// may have any user name; one that is not a valid cluster id, such as "source.hub1", prevents
	// it from acting as an agent, and an observer must have one. The only joiner is "joiner.any". Monitors are not supported.
	Users []broker.User

	// TLS requires client certificates, whose common name is the user name, of all but joiners, who have
	// a listener of their own with passwords. nil means plain TCP and passwords.
	TLS *TLS

	// OneSessionPerUser uses the user name as the client id, so that a client cannot disconnect
	// another user by using its client id.
	OneSessionPerUser bool
}

// TLS names PEM files: the broker's certificate and key, the CAs of client certificates, and
// optionally their revocation lists.
type TLS struct{ CertFile, KeyFile, ClientCAFile, CRLFile string }

// Render writes mosquitto.conf, acl and passwd for cfg.Port to cfg.Dir. It runs the program
// mosquitto_passwd, unless cfg.TLS is set.
func Render(cfg Config) error {
	rules, rulesErr := rules(cfg.Users)
	passwords, err := passwords(cfg)
	if err := cmp.Or(rulesErr, err); err != nil {
		return fmt.Errorf("render the Mosquitto configuration: %w", err)
	}
	conf := settings(cfg)
	if os.Geteuid() == 0 {
		conf += "\nuser root\n" // the default user mosquitto cannot write to Dir
	}
	for name, content := range map[string]string{"mosquitto.conf": conf, "acl": rules, "passwd": passwords} {
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("render the Mosquitto configuration: %w", err)
		}
	}
	if passwords == "" {
		return nil
	}
	program, err := find("mosquitto_passwd")
	if err != nil {
		return err
	}
	if out, err := exec.Command(program, "-U", filepath.Join(cfg.Dir, "passwd")).CombinedOutput(); err != nil {
		return fmt.Errorf("hash the passwords with mosquitto_passwd: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// settings returns the content of mosquitto.conf for cfg.
func settings(cfg Config) string {
	conf := mosquitto.Conf
	listener := fmt.Sprintf("listener %d 127.0.0.1", cfg.Port)
	if cfg.TLS == nil {
		conf = strings.Replace(conf, defaultListener, listener, 1)
	} else {
		above, block, _ := strings.Cut(conf, tlsListener)
		block = "\n" + commented.ReplaceAllString(block, "$1")
		if cfg.TLS.CRLFile == "" {
			block = strings.ReplaceAll(block, crlSetting, "")
		}
		if !cfg.WebSocket {
			block, _, _ = strings.Cut(block, webListener)
		}
		block = strings.Replace(block, webListener, fmt.Sprintf("listener %d 127.0.0.1\n", cfg.WebSocketPort), 1)
		block = strings.Replace(block, joinersListener, fmt.Sprintf("listener %d 127.0.0.1\n", cfg.JoinersPort), 1)
		block = strings.NewReplacer("client-ca.crl", cfg.TLS.CRLFile, "server.crt", cfg.TLS.CertFile, "server.key", cfg.TLS.KeyFile, "client-ca.crt", cfg.TLS.ClientCAFile).Replace(block)
		conf = strings.Replace(above, defaultListener, "", 1) + listener + block
	}
	if cfg.OneSessionPerUser {
		conf = strings.Replace(conf, userAsClientID, userAsClientID[1:], 1)
	}
	return conf
}

// passwords returns the content of the password file before hashing. With TLS it has joiners only.
func passwords(cfg Config) (string, error) {
	var out strings.Builder
	for _, u := range cfg.Users {
		if cfg.TLS != nil && u.Role != acl.Joiner {
			continue
		}
		if u.Password == "" {
			return "", fmt.Errorf("user %s: a plain password is required", u.Username)
		}
		fmt.Fprintf(&out, "%s:%s\n", u.Username, u.Password)
	}
	return out.String(), nil
}

// observerRules are the rules of an observer, as the acl file has them in its comment.
const observerRules = `topic read sources/+/clusters/+/sourceevents
topic read sources/+/clusters/+/agentevents
topic read sources/+/sourcebroadcast
topic read clusters/+/agentbroadcast
topic deny sources/+/joinrequests
`

// rules returns the content of the acl file, with a block for each source among users.
func rules(users []broker.User) (string, error) {
	agents, block, ok := strings.Cut(mosquitto.ACL, exampleBlock)
	if !ok {
		return "", errors.New("the acl file has no block for the example source")
	}
	out := agents
	for _, u := range users {
		id := u.Identity()
		if err := id.Validate(); err != nil {
			return "", fmt.Errorf("user %s: %w", u.Username, err)
		}
		switch id.Role {
		case acl.Monitor:
			return "", fmt.Errorf("user %s: monitors are not supported", u.Username)
		case acl.Joiner:
			if u.Username != joiner {
				return "", fmt.Errorf("user %s: the acl file has a block for a joiner called %s", u.Username, joiner)
			}
		case acl.Observer:
			if (acl.Identity{Role: acl.Agent, ID: u.Username}).Validate() == nil {
				return "", fmt.Errorf("user %s: an observer with the name of a cluster is its agent too; call it observer.%s", u.Username, id.ID)
			}
			out += "user " + u.Username + "\n" + observerRules + "\n"
		case acl.Agent:
			if id.ID != u.Username {
				return "", fmt.Errorf("user %s: the id %s of an agent must equal the user name", u.Username, id.ID)
			}
		case acl.Source:
			out += "user " + u.Username + "\n" + strings.ReplaceAll(block, exampleSource, id.ID)
			for _, other := range users {
				if o := other.Identity(); o.Role == acl.Source && o.ID != id.ID {
					out += "topic deny sources/" + o.ID + "/sourcebroadcast\ntopic deny sources/" + o.ID + "/joinrequests\n"
				}
			}
			out += "\n"
		}
	}
	return out, nil
}

// Process is a running Mosquitto process.
type Process struct {
	*process.Process
	// Addr is host:port, JoinersAddr that of joiners, with TLS only, WebSocketAddr that of WebSockets.
	Addr, JoinersAddr, WebSocketAddr string
	// Config has the ports.
	Config Config
}

// Start renders cfg, starts mosquitto and returns when it accepts connections. It returns an error
// with mosquitto's output if mosquitto ends before that, or if ctx ends. The process outlives ctx:
// end it with Stop or Kill.
func Start(ctx context.Context, cfg Config) (*Process, error) {
	program, err := find("mosquitto")
	if err != nil {
		return nil, err
	}
	p := &Process{}
	for _, port := range []struct {
		wanted bool
		port   *int
		addr   *string
	}{{true, &cfg.Port, &p.Addr}, {cfg.TLS != nil, &cfg.JoinersPort, &p.JoinersAddr}, {cfg.WebSocket, &cfg.WebSocketPort, &p.WebSocketAddr}} {
		if !port.wanted {
			continue
		}
		if *port.port, err = freePort(*port.port); err != nil {
			return nil, err
		}
		*port.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(*port.port))
	}
	if err := Render(cfg); err != nil {
		return nil, err
	}
	p.Config = cfg
	if p.Process, err = process.StartIn(cfg.Dir, "mosquitto", program, "-c", "mosquitto.conf"); err != nil {
		return nil, err
	}
	for _, addr := range []string{p.Addr, p.JoinersAddr, p.WebSocketAddr} {
		if addr == "" {
			continue
		}
		if err := p.waitUntilAccepting(ctx, addr); err != nil {
			_ = p.Kill()
			return nil, err
		}
	}
	return p, nil
}

func (p *Process) waitUntilAccepting(ctx context.Context, addr string) error {
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.Done():
			return fmt.Errorf("start mosquitto on %s: %w", addr, p.Died())
		case <-ctx.Done():
			return fmt.Errorf("start mosquitto on %s: it does not accept connections: %w", addr, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Stop ends the process with SIGTERM, which makes it save its sessions, and waits for it. It does nothing if the process has
// ended. It repeats the signal each second: Mosquitto forgets one that arrives after it listens and before its main loop begins.
func (p *Process) Stop() error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop mosquitto: %w", err)
		}
		select {
		case <-p.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// find returns the path of a program of Mosquitto. It searches the directories for system programs
// too: Debian installs the broker to /usr/sbin, which is not on every PATH.
func find(program string) (string, error) {
	for _, name := range []string{program, "/usr/sbin/" + program, "/usr/local/sbin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the program %s is not installed; on Debian: apt-get install -y mosquitto", program)
}

// freePort returns port if it is free, or any free port for 0. Without this check, Start could
// connect to another process that uses the port.
func freePort(port int) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, fmt.Errorf("start mosquitto: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

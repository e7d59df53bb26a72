// Package rabbitmqkit runs RabbitMQ 4 in a container, with the configuration in broker/rabbitmq.
//
//	c, err := rabbitmqkit.Start(ctx, rabbitmqkit.Config{Image: image, Dir: dir, Users: users})
//	dial(c.Addr)
//	err = c.Stop()
package rabbitmqkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/rabbitmq"
)

var (
	listener    = regexp.MustCompile(`(?m)^mqtt\.listeners\.ssl\.default = .*$`)
	plugins     = regexp.MustCompile(`\]\.\s*$`)
	tlsSettings = regexp.MustCompile(`(?m)^(ssl_|mqtt\.ssl_|mqtt\.listeners).*\n`)
)

// Config is the configuration of a container.
type Config struct {
	// Image is the name of the image, as hack/rabbitmq-image.sh makes it; required.
	Image string
	// Dir is an existing directory for the configuration; required.
	Dir string
	// Users are the clients; see [rabbitmq.Definitions]. Without TLS each needs a plain Password.
	Users []broker.User
	// TLS requires client certificates, whose common name is the user name, unless there is a joiner. nil means plain TCP and
	// passwords.
	TLS *TLS
}

// TLS names PEM files: the broker's certificate and key, and the authorities of client certificates.
type TLS struct{ CertFile, KeyFile, ClientCAFile string }

// Container is a container with one node. Its methods are not safe for concurrent use.
type Container struct {
	// Addr is host:port on loopback. It stays the same until Stop.
	Addr string
	// WebSocketAddr is host:port of wss://…/mqtt, with TLS only.
	WebSocketAddr string

	id  string
	pid int // of the node, when it runs
}

// Start renders cfg, starts a container and returns when it accepts connections. The container outlives
// ctx: end it with Stop.
func Start(ctx context.Context, cfg Config) (*Container, error) {
	addrs, err := freeAddrs(ctx)
	if err != nil {
		return nil, err
	}
	if err := render(cfg, addrs); err != nil {
		return nil, fmt.Errorf("render the RabbitMQ configuration: %w", err)
	}
	// The network of the host: Docker's proxy of a published port holds six file descriptors for each connection.
	id, err := docker(ctx, "create", "--pull=never", "--network=host", "--env=RABBITMQ_NODENAME=rabbit@localhost",
		"--env=ERL_EPMD_ADDRESS="+addrs.epmd.IP.String(), fmt.Sprintf("--env=ERL_EPMD_PORT=%d", addrs.epmd.Port),
		fmt.Sprintf("--env=RABBITMQ_DIST_PORT=%d", addrs.distribution.Port), "--env=RABBITMQ_ADVANCED_CONFIG_FILE=/config/advanced.config",
		"--env=RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"--volume="+filepath.Join(cfg.Dir, "config")+":/config:ro", "--volume="+filepath.Join(cfg.Dir, "certs")+":/certs:ro", cfg.Image)
	if err != nil {
		return nil, fmt.Errorf("%w (hack/rabbitmq-image.sh makes the image)", err)
	}
	c := &Container{id: id, Addr: addrs.mqtt.String(), WebSocketAddr: addrs.webSocket.String()}
	if err := c.Restart(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// addresses are those on loopback at which a node listens: for clients, and for Erlang's port mapper and
// distribution, by which rabbitmqctl reaches it.
type addresses struct{ mqtt, webSocket, epmd, distribution *net.TCPAddr }

// freeAddrs returns addresses at which nobody listens. RabbitMQ listens there seconds later: the ports are below those that the kernel gives
// to connections, of other tests, say.
func freeAddrs(ctx context.Context) (a addresses, err error) {
	for _, addr := range []**net.TCPAddr{&a.mqtt, &a.webSocket, &a.epmd, &a.distribution} {
		var l net.Listener
		for range 100 {
			if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))); err == nil {
				break
			}
		}
		if err != nil {
			return a, err
		}
		defer l.Close()
		*addr, _ = l.Addr().(*net.TCPAddr)
	}
	return a, nil
}

// Restart starts the container again after Kill, with its data, and returns when it accepts connections.
func (c *Container) Restart(ctx context.Context) error {
	begin := time.Now()
	if _, err := docker(ctx, "start", c.id); err != nil {
		return err
	}
	return c.waitUntilStarted(ctx, begin)
}

// PID returns the process id of the node that runs, as Docker sees it: that of this machine, unless Docker
// runs on another one or in a namespace of its own.
func (c *Container) PID() int { return c.pid }

// Log returns the end of its log.
func (c *Container) Log(ctx context.Context) (string, error) {
	return docker(ctx, "logs", "--tail=60", c.id)
}

// Kill ends the node as a crash does.
func (c *Container) Kill() error {
	_, err := docker(context.Background(), "kill", c.id)
	return err
}

// Stop removes the container with its data.
func (c *Container) Stop() error {
	_, err := docker(context.Background(), "rm", "--force", "--volumes", c.id)
	return err
}

// started matches what RabbitMQ prints once it has started. What it logs then may be missing: it drops
// messages after a burst, as of definitions with many users.
var started = regexp.MustCompile(`completed with \d+ plugins`)

// waitUntilStarted waits for a start that began at begin.
func (c *Container) waitUntilStarted(ctx context.Context, begin time.Time) error {
	for {
		log, err := docker(ctx, "logs", "--since="+begin.UTC().Format(time.RFC3339Nano), c.id)
		if err != nil {
			return fmt.Errorf("start RabbitMQ: %w", err)
		}
		if started.MatchString(log) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.Addr)
			if err == nil {
				return errors.Join(conn.Close(), c.findPID(ctx))
			}
		}
		if state, err := docker(ctx, "container", "inspect", "--format={{.State.Running}}", c.id); err != nil || state != "true" {
			return fmt.Errorf("start RabbitMQ: %w:\n%s", errors.Join(err, errEnded), log)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("start RabbitMQ on %s: %w:\n%s", c.Addr, ctx.Err(), log)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

var errEnded = errors.New("the container does not run")

// findPID finds the process of the node among those of the container, most of which are scripts.
func (c *Container) findPID(ctx context.Context) error {
	top, err := docker(ctx, "top", c.id, "-o", "pid,comm")
	if err != nil {
		return err
	}
	for line := range strings.Lines(top) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == "beam.smp" {
			c.pid, err = strconv.Atoi(fields[0])
			return err
		}
	}
	return fmt.Errorf("the container of RabbitMQ runs no beam.smp:\n%s", top)
}

// render writes the configuration, with listeners at addrs, to cfg.Dir.
func render(cfg Config, addrs addresses) error {
	definitions, err := rabbitmq.Definitions(cfg.Users)
	if err != nil {
		return err
	}
	files := map[string][]byte{"config/definitions.json": definitions, "config/enabled_plugins": []byte(rabbitmq.Plugins)}
	conf := listener.ReplaceAllString(rabbitmq.Conf, "mqtt.listeners.ssl.default = "+addrs.mqtt.String())
	if cfg.TLS == nil {
		conf = tlsSettings.ReplaceAllString(conf, "") + "mqtt.listeners.ssl = none\nmqtt.listeners.tcp.default = " + addrs.mqtt.String() + "\n"
	} else {
		if slices.ContainsFunc(cfg.Users, func(u broker.User) bool { return u.Role == acl.Joiner }) {
			conf = strings.Replace(conf, "fail_if_no_peer_cert = true", "fail_if_no_peer_cert = false", 1)
		}
		files["config/enabled_plugins"] = plugins.ReplaceAll(files["config/enabled_plugins"], []byte(", rabbitmq_web_mqtt]."))
		at := fmt.Sprintf(`{ip, "127.0.0.1"}, {port, %d}`, addrs.webSocket.Port)
		files["config/advanced.config"] = []byte(strings.Replace(rabbitmq.Advanced, "{port, 443}", at, 1))
		for name, path := range map[string]string{"tls.crt": cfg.TLS.CertFile, "tls.key": cfg.TLS.KeyFile, "client-ca.crt": cfg.TLS.ClientCAFile} {
			if files["certs/"+name], err = os.ReadFile(path); err != nil {
				return err
			}
		}
	}
	files["config/rabbitmq.conf"] = []byte(conf)
	for _, dir := range []string{"config", "certs"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	for name, content := range files { // for the container's user
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// docker runs a command of docker and returns its output.
func docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

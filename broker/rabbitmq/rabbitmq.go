// Package rabbitmq has the configuration and the access rules of RabbitMQ 4 for Workwire, and runs it
// in a container: users copy rabbitmq.conf and enabled_plugins and make definitions.json, and the
// tests of this project run them.
//
//	c, err := rabbitmq.Start(ctx, rabbitmq.Config{Image: image, Dir: dir, Users: users})
//	dial(c.Addr)
//	err = c.Stop()
package rabbitmq

import (
	"bytes"
	"context"
	_ "embed" // the configuration files
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/workwire/workwire/broker"
)

var (
	//go:embed rabbitmq.conf
	confFile string
	//go:embed enabled_plugins
	pluginsFile string

	tlsSettings = regexp.MustCompile(`(?m)^(ssl_|mqtt\.ssl_|mqtt\.listeners).*\n`)
)

// Config is the configuration of a container.
type Config struct {
	// Image is the name of the image, as hack/rabbitmq-image.sh makes it; required.
	Image string
	// Dir is an existing directory for the configuration; required.
	Dir string
	// Users are the clients; see [Definitions]. Without TLS each needs a plain Password.
	Users []broker.User
	// TLS requires client certificates, whose common name is the user name. nil means plain TCP and
	// passwords.
	TLS *TLS
}

// TLS names PEM files: the broker's certificate and key, and the authorities of client certificates.
type TLS struct{ CertFile, KeyFile, ClientCAFile string }

// Container is a running container with one node.
type Container struct {
	// Addr is host:port on loopback.
	Addr string

	id string
}

// Start renders cfg, starts a container and returns when it accepts connections. The container outlives
// ctx: end it with Stop.
func Start(ctx context.Context, cfg Config) (*Container, error) {
	port, err := render(cfg)
	if err != nil {
		return nil, fmt.Errorf("render the RabbitMQ configuration: %w", err)
	}
	id, err := docker(ctx, "run", "--detach", "--rm", "--hostname=rabbit", "--publish=127.0.0.1::"+port,
		"--volume="+filepath.Join(cfg.Dir, "config")+":/config:ro", "--volume="+filepath.Join(cfg.Dir, "certs")+":/certs:ro", cfg.Image)
	if err != nil {
		return nil, err
	}
	c := &Container{id: id}
	if c.Addr, err = docker(ctx, "port", id, port); err == nil {
		err = c.waitUntilStarted(ctx)
	}
	if err != nil {
		_ = c.Stop()
		return nil, err
	}
	return c, nil
}

// Log returns the end of its log.
func (c *Container) Log(ctx context.Context) (string, error) {
	return docker(ctx, "logs", "--tail=60", c.id)
}

// Stop removes the container.
func (c *Container) Stop() error {
	_, err := docker(context.Background(), "rm", "--force", c.id)
	return err
}

func (c *Container) waitUntilStarted(ctx context.Context) error {
	for {
		log, err := docker(ctx, "logs", c.id)
		if err != nil {
			return fmt.Errorf("start RabbitMQ: it ended: %w", err)
		}
		if strings.Contains(log, "Server startup complete") {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.Addr)
			if err == nil {
				return conn.Close()
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("start RabbitMQ on %s: %w:\n%s", c.Addr, ctx.Err(), log)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// render writes the configuration to cfg.Dir, and returns the port of the listener.
func render(cfg Config) (port string, err error) {
	definitions, err := Definitions(cfg.Users)
	if err != nil {
		return "", err
	}
	conf, port := confFile, "8883"
	files := map[string][]byte{"config/definitions.json": definitions, "config/enabled_plugins": []byte(pluginsFile)}
	if cfg.TLS == nil {
		conf, port = tlsSettings.ReplaceAllString(conf, "")+"mqtt.listeners.ssl = none\nmqtt.listeners.tcp.default = 1883\n", "1883"
	} else {
		for name, path := range map[string]string{"tls.crt": cfg.TLS.CertFile, "tls.key": cfg.TLS.KeyFile, "client-ca.crt": cfg.TLS.ClientCAFile} {
			if files["certs/"+name], err = os.ReadFile(path); err != nil {
				return "", err
			}
		}
	}
	files["config/rabbitmq.conf"] = []byte(conf)
	for _, dir := range []string{"config", "certs"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, dir), 0o755); err != nil {
			return "", err
		}
	}
	for name, content := range files { // for the container's user
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), content, 0o644); err != nil {
			return "", err
		}
	}
	return port, nil
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

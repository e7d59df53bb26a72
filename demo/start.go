package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
)

// startControlPlanes starts the hub API server and the cluster at the same time, and installs the definitions of
// each.
func (s *stage) startControlPlanes(ctx context.Context) error {
	hub, err := s.start("hub-api", "controlplane", "up", "--role=hub", "--dir="+s.path("hub"))
	if err != nil {
		return err
	}
	spoke, err := s.start("spoke", "controlplane", "up", "--role=spoke", "--dir="+s.path("spoke"))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if s.hub, err = s.ready(ctx, hub, "hub"); err != nil {
			return err
		}
		if err := install.CRDs(ctx, s.hub, crds.Hub()...); err != nil {
			return err
		}
		return createNamespace(ctx, s.hub, clusterName)
	})
	group.Go(func() (err error) {
		if s.spoke, err = s.ready(ctx, spoke, "spoke"); err != nil {
			return err
		}
		// The agent needs AppliedManifestWorks only. The tutorial reads ManifestWorks on the cluster too: a cluster
		// can be the hub of others.
		return install.CRDs(ctx, s.spoke, append(crds.Spoke(), crds.Hub()...)...)
	})
	return group.Wait()
}

// ready waits until a control plane has printed the path of its kubeconfig.
func (s *stage) ready(ctx context.Context, p *process, dir string) (*rest.Config, error) {
	kubeconfig := filepath.Join(s.path(dir), "kubeconfig")
	if _, err := p.line(ctx, func(line string) bool { return line == kubeconfig }); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kubeconfig, err)
	}
	s.say("%s is ready at %s", p.name, config.Host)
	return config, nil
}

func createNamespace(ctx context.Context, config *rest.Config, name string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s on the hub: %w", name, err)
	}
	return nil
}

// listening matches the address in the broker's log.
var listening = regexp.MustCompile(`msg="broker ready".* addresses=\[(127\.0\.0\.1:\d+)\]`)

// startWorkwire starts the broker, the hub and the agent.
func (s *stage) startWorkwire(ctx context.Context) error {
	hubPassword, agentPassword := password(), password()
	if err := s.writeBrokerConfig(hubPassword, agentPassword); err != nil {
		return err
	}
	broker, err := s.start("broker", "work-broker", "--config="+s.path("broker.yaml"))
	if err != nil {
		return err
	}
	line, err := broker.line(ctx, listening.MatchString)
	if err != nil {
		return err
	}
	address := listening.FindStringSubmatch(line)[1]
	s.say("broker is ready at mqtt://%s", address)
	for _, client := range []struct{ user, password string }{{sourceID, hubPassword}, {clusterName, agentPassword}} {
		if err := s.writeTransportConfig(client.user, client.password, address); err != nil {
			return err
		}
	}
	if _, err := s.start("hub", "work-hub", "--transport=mqtt", "--transport-config="+s.path(sourceID+".yaml"),
		"--source-id="+sourceID, "--kubeconfig="+s.path("hub/kubeconfig"), "--listen-address=127.0.0.1:0"); err != nil {
		return err
	}
	_, err = s.start("agent", "work-agent", "--transport=mqtt", "--transport-config="+s.path(clusterName+".yaml"),
		"--cluster-name="+clusterName, "--kubeconfig="+s.path("spoke/kubeconfig"), "--listen-address=127.0.0.1:0")
	return err
}

func (s *stage) writeBrokerConfig(hubPassword, agentPassword string) error {
	hubHash, err := bcrypt.GenerateFromPassword([]byte(hubPassword), bcrypt.DefaultCost)
	if err != nil {
		return err
	}
	agentHash, err := bcrypt.GenerateFromPassword([]byte(agentPassword), bcrypt.DefaultCost)
	if err != nil {
		return err
	}
	return s.write("broker.yaml", fmt.Sprintf(`listeners:
  - address: 127.0.0.1:0
dataDir: %q
users:
  - {username: %s, role: source, passwordHash: %q}
  - {username: %s, role: agent, passwordHash: %q}
`, s.path("broker"), sourceID, hubHash, clusterName, agentHash))
}

func (s *stage) writeTransportConfig(user, password, address string) error {
	if err := s.write(user+".password", password); err != nil {
		return err
	}
	topics := strings.ReplaceAll(`  sourceEvents: sources/SOURCE/clusters/+/sourceevents
  agentEvents: sources/SOURCE/clusters/+/agentevents
`, "SOURCE", sourceID)
	return s.write(user+".yaml", fmt.Sprintf("brokerHost: %s\nusername: %s\npasswordFile: %q\ntopics:\n%s",
		address, user, s.path(user+".password"), topics))
}

func (s *stage) write(name, content string) error {
	return os.WriteFile(s.path(name), []byte(content), 0o600)
}

// password returns a random password for this run.
func password() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

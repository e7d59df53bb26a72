package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/deploy/policies"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/brokerkit"
	"github.com/workwire/workwire/test/kit/process"
)

// startControlPlanes starts the hub API server and the cluster at the same time, and installs the
// definitions of each.
func (s *stage) startControlPlanes(ctx context.Context) error {
	hub, err := s.start("hub-api", "controlplane", "up", "--role=hub", "--dir="+s.path("hub"))
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
		if err := install.Policies(ctx, s.hub, policies.Default()...); err != nil {
			return err
		}
		return createNamespace(ctx, s.hub, clusterName)
	})
	group.Go(func() error { return s.startSpoke(ctx, "spoke") })
	return group.Wait()
}

// startSpoke starts the control plane of a cluster, and installs the agent's definitions.
func (s *stage) startSpoke(ctx context.Context, dir string) error {
	p, err := s.start(dir, "controlplane", "up", "--role=spoke", "--dir="+s.path(dir))
	if err != nil {
		return err
	}
	config, err := s.ready(ctx, p, dir)
	if err != nil {
		return err
	}
	// The agent needs AppliedManifestWorks only. The tutorial reads ManifestWorks on the
	// cluster too: a cluster can be the hub of others.
	return install.CRDs(ctx, config, append(crds.Spoke(), crds.Hub()...)...)
}

// ready waits until a control plane has printed the path of its kubeconfig.
func (s *stage) ready(ctx context.Context, p *process.Process, dir string) (*rest.Config, error) {
	kubeconfig := filepath.Join(s.path(dir), "kubeconfig")
	if _, err := p.Line(ctx, process.Equal(kubeconfig)); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kubeconfig, err)
	}
	s.say("%s is ready at %s", p.Name, config.Host)
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

// startWorkwire starts the broker, the hub and the agent.
func (s *stage) startWorkwire(ctx context.Context) error {
	names := []wire.ClusterName{clusterName}
	hub := []string{"--source-id=" + sourceID, "--dashboard-address=127.0.0.1:0"}
	if s.Walk {
		hub = append(hub, "--auto-register", "--auto-accept")
		for _, cluster := range clusters[1:] {
			names = append(names, wire.ClusterName(cluster.name))
		}
	}
	broker, err := brokerkit.Start(ctx, brokerkit.Config{
		Dir: s.Dir, Program: filepath.Join(s.Bin, "work-broker"), Source: sourceID, Clusters: names,
		Others: []wire.SourceID{programID},
	})
	if broker.Process != nil {
		s.add(broker.Process)
	}
	if err != nil {
		return err
	}
	s.broker = broker
	s.say("broker is ready at mqtt://%s", broker.Addr)
	if _, err := broker.WriteTransport(programID, broker.Addr); err != nil {
		return err
	}
	p, err := s.startProgram("hub", "work-hub", sourceID, "hub", hub...)
	if err != nil {
		return err
	}
	if s.dashboard, err = dashboardAddress(ctx, p); err != nil {
		return err
	}
	if s.Walk { // a hub that is there first registers the agent at once
		if _, err := p.Line(ctx, func(line string) string {
			if strings.Contains(line, `msg="connected to the broker"`) {
				return line
			}
			return ""
		}); err != nil {
			return err
		}
	}
	_, err = s.startAgent("agent", clusterName, "spoke")
	return err
}

// startAgent starts the agent of a cluster.
func (s *stage) startAgent(name, cluster, dir string) (*process.Process, error) {
	return s.startProgram(name, "work-agent", cluster, dir, "--cluster-name="+cluster)
}

// startProgram starts a hub or an agent: user of the broker, at the control plane of dir.
func (s *stage) startProgram(name, program, user, dir string, args ...string) (*process.Process, error) {
	transport, err := s.broker.WriteTransport(user, s.broker.Addr)
	if err != nil {
		return nil, err
	}
	return s.start(name, program, append([]string{
		"--transport=mqtt", "--transport-config=" + transport, "--kubeconfig=" + s.path(dir+"/kubeconfig"), "--listen-address=127.0.0.1:0",
	}, args...)...)
}

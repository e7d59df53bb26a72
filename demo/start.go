package demo

import (
	"context"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
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
		// The agent needs AppliedManifestWorks only. The tutorial reads ManifestWorks on the
		// cluster too: a cluster can be the hub of others.
		return install.CRDs(ctx, s.spoke, append(crds.Spoke(), crds.Hub()...)...)
	})
	return group.Wait()
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
	broker, err := brokerkit.Start(ctx, brokerkit.Config{
		Dir: s.Dir, Program: filepath.Join(s.Bin, "work-broker"), Source: sourceID, Clusters: []wire.ClusterName{clusterName},
	})
	if broker.Process != nil {
		s.running = append(s.running, broker.Process)
	}
	if err != nil {
		return err
	}
	s.say("broker is ready at mqtt://%s", broker.Addr)
	for _, p := range []struct{ name, user, dir, flag string }{
		{"hub", sourceID, "hub", "--source-id=" + sourceID}, {"agent", clusterName, "spoke", "--cluster-name=" + clusterName},
	} {
		transport, err := broker.WriteTransport(p.user, broker.Addr)
		if err != nil {
			return err
		}
		if _, err := s.start(p.name, "work-"+p.name, "--transport=mqtt", "--transport-config="+transport,
			p.flag, "--kubeconfig="+s.path(p.dir+"/kubeconfig"), "--listen-address=127.0.0.1:0"); err != nil {
			return err
		}
	}
	return nil
}

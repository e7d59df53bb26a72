package demo

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/deploy/policies"
	"github.com/workwire/workwire/pkg/ctl/join"
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
		_, err = s.atHub(ctx, "", "create", "namespace", clusterName)
		return err
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

// startWorkwire starts the broker, the hub and the agent.
func (s *stage) startWorkwire(ctx context.Context) error {
	if err := s.startBroker(ctx); err != nil {
		return err
	}
	args := []string{"--source-id=" + sourceID, "--transport-config=" + s.transport(sourceID), "--kubeconfig=" + s.path("hub/kubeconfig"),
		"--join", "--join-authority-cert-file=" + s.path("authority/ca.crt"), "--join-authority-key-file=" + s.path("authority/ca.key"),
		"--listen-address=" + anyPort}
	hub, err := s.start("hub", "work-hub", append(args, "--dashboard-address="+anyPort)...)
	if err != nil {
		return err
	}
	if s.dashboard, err = dashboardAddress(ctx, hub); err != nil {
		return err
	}
	s.restarts("hub", "work-hub", append(args, "--dashboard-address="+s.dashboard)...) // where the user looks
	if err := said(ctx, hub, "connected to the broker", "connection=joins"); err != nil {
		return err
	}
	return s.join(ctx, "agent", clusterName, "spoke")
}

// join has the cluster whose control plane is in dir join with a token, as docs/join.md says, and starts its agent.
func (s *stage) join(ctx context.Context, name, cluster, dir string) error {
	s.say("%s joins: workctl token create %[1]s …, and workctl join %[1]s --token=… | kubectl apply -f -", cluster)
	token, err := s.output(ctx, "", "workctl", "token", "create", cluster, "--every-source", "--transport="+s.transport(sourceID),
		"--password-file="+s.path(joinerPassword), "--kubeconfig="+s.path("hub/kubeconfig"))
	if err != nil {
		return err
	}
	manifests, err := s.output(ctx, token, "workctl", "join", cluster, "--token=-")
	if err != nil {
		return err
	}
	if _, err := s.output(ctx, manifests, "kubectl", "apply", "--kubeconfig="+s.path(dir+"/kubeconfig"), "--filename=-"); err != nil {
		return err
	}
	agent, err := s.startAgent(name, cluster, dir)
	if err != nil {
		return err
	}
	if err := said(ctx, agent, "the cluster has a certificate"); err != nil {
		return err
	}
	s.say("%s has a certificate, and its private key never left it", cluster)
	return nil
}

// startAgent starts the agent of a cluster that has a token or has joined.
func (s *stage) startAgent(name, cluster, dir string) (*process.Process, error) {
	args := []string{"--cluster-name=" + cluster, "--join-secret=" + join.Namespace + "/" + join.MembershipSecret,
		"--kubeconfig=" + s.path(dir+"/kubeconfig"), "--listen-address=" + anyPort}
	s.restarts(name, "work-agent", args...)
	return s.start(name, "work-agent", args...)
}

// atHub runs kubectl at the hub.
func (s *stage) atHub(ctx context.Context, input string, args ...string) (string, error) {
	return s.output(ctx, input, "kubectl", append(args, "--kubeconfig="+s.path("hub/kubeconfig"))...)
}

// output runs a program to its end and returns what it prints.
func (s *stage) output(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, program), args...)
	var refusal bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &refusal
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", program, args[0], err, &refusal)
	}
	return string(out), nil
}

// said waits until a program has logged a message, in a line that has the texts.
func said(ctx context.Context, p *process.Process, message string, texts ...string) error {
	_, err := p.Line(ctx, func(line string) string {
		for _, text := range append(texts, fmt.Sprintf("msg=%q", message)) {
			if !strings.Contains(line, text) {
				return ""
			}
		}
		return line
	})
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/membership"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// validateJoin reports faults of the flags of an agent that joins with a token.
func (o *options) validateJoin() []error {
	namespace, name, _ := strings.Cut(o.joinSecret, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return []error{fmt.Errorf("--join-secret must be NAMESPACE/NAME, got %q", o.joinSecret)}
	}
	if o.transportConfig != "" {
		return []error{errors.New("--transport-config is set as well as --join-secret, which has all that is in such a file: keep one of them")}
	}
	return nil
}

// join returns the membership of the cluster once it has a certificate, with the transport configuration set; nil for an agent with a file of it.
func (o *options) join(ctx context.Context, cluster *rest.Config, running *standby, logger *slog.Logger) (*membership.Membership, error) {
	if o.joinSecret == "" {
		return nil, nil
	}
	namespace, name, _ := strings.Cut(o.joinSecret, "/") // validated
	secrets, err := newSecrets(cluster, namespace)
	if err != nil {
		return nil, err
	}
	m, err := membership.Open(ctx, membership.Config{
		Secrets: secrets, Name: name, Cluster: wire.ClusterName(o.cluster), Logger: logger,
		Connect: func(broker config.Config, clientID string) (transport.Transport, error) {
			return mqtt.New(mqtt.Config{Broker: broker, ClientID: clientID, Logger: logger})
		},
	})
	if err != nil {
		return nil, fmt.Errorf("--join-secret=%s: %w", o.joinSecret, err)
	}
	running.member.Store(m)
	logger.Info("joining", "cluster", o.cluster, "broker", m.Broker().BrokerHost, "hub", m.Source())
	if err := m.Join(ctx); err != nil {
		return nil, nil //nolint:nilerr // ctx has ended
	}
	o.broker = m.Broker()
	if o.hubIdentity, err = o.broker.HubIdentity(); err != nil {
		return nil, fmt.Errorf("--join-secret=%s: the token: %w", o.joinSecret, err)
	}
	return m, nil
}

// newSecrets returns the client of the Secrets in a namespace.
func newSecrets(cluster *rest.Config, namespace string) (membership.Secrets, error) {
	return kube.NewObjects(cluster, corev1.SchemeGroupVersion.WithResource("secrets"), namespace,
		func() *corev1.Secret { return &corev1.Secret{} }, func() *corev1.SecretList { return &corev1.SecretList{} })
}

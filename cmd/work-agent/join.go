package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/membership"
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

// member is the membership of the cluster; the zero value is that of an agent with a transport configuration.
type member struct{ *membership.Membership }

// join returns once the cluster has a certificate, with the transport configuration set.
func (o *options) join(ctx context.Context, cluster *rest.Config, running *standby, logger *slog.Logger) (member, error) {
	if o.joinSecret == "" {
		return member{}, nil
	}
	client, err := corev1client.NewForConfig(cluster)
	if err != nil {
		return member{}, err
	}
	namespace, name, _ := strings.Cut(o.joinSecret, "/") // validated
	m, err := membership.Open(ctx, membership.Config{
		Secrets: client.Secrets(namespace), Name: name, Cluster: wire.ClusterName(o.cluster), Logger: logger,
		Connect: func(broker config.Config, clientID string) (transport.Transport, error) {
			return mqtt.New(mqtt.Config{Broker: broker, ClientID: clientID, Logger: logger})
		},
	})
	if err != nil {
		return member{}, fmt.Errorf("--join-secret=%s: %w", o.joinSecret, err)
	}
	running.member.Store(m)
	logger.Info("joining", "cluster", o.cluster, "broker", m.Broker().BrokerHost, "hub", m.Source())
	if err := m.Join(ctx); err != nil {
		return member{}, nil //nolint:nilerr // ctx has ended
	}
	o.broker = m.Broker()
	if o.hubIdentity, err = o.broker.HubIdentity(); err != nil {
		return member{}, fmt.Errorf("--join-secret=%s: the token: %w", o.joinSecret, err)
	}
	return member{m}, nil
}

// run renews the certificate until ctx ends.
func (m member) run(ctx context.Context) error {
	if m.Membership == nil {
		return nil
	}
	return m.Run(ctx)
}

// refused has the certificate renewed that the broker refuses.
func (m member) refused() {
	if m.Membership != nil {
		m.Refused()
	}
}

// transport returns the connection of the agent, over which the hub also says when to renew.
func (m member) transport(connection transport.Transport) transport.Transport {
	if m.Membership == nil {
		return connection
	}
	return m.Transport(connection)
}

package symptoms

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
	"github.com/workwire/workwire/test/kit/world"
)

// limited returns a configuration of the cluster's API for a user who may read much, and write these
// resources and what an agent needs besides.
func (p *patient) limited(resources ...string) *rest.Config {
	p.Helper()
	user := kit.Unique("limited")
	roles := kubernetes.NewForConfigOrDie(spokePlane.REST()).RbacV1()
	groups := []string{"", "work.open-cluster-management.io", "apiextensions.k8s.io", "coordination.k8s.io", "events.k8s.io"}
	_, err := roles.ClusterRoles().Create(p.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: groups, Resources: append([]string{"configmaps", "namespaces", "events", "leases", "customresourcedefinitions"}, resources...), Verbs: []string{"*"}},
		{APIGroups: groups, Resources: []string{"appliedmanifestworks"}, Verbs: []string{"get", "list", "watch"}},
	}}, metav1.CreateOptions{})
	kit.NoError(p, err)
	_, err = roles.ClusterRoleBindings().Create(p.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}, metav1.CreateOptions{})
	kit.NoError(p, err)
	c := spokePlane.REST()
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return c
}

// client runs a client of the broker with these subscriptions.
func (p *patient) client(t transport.Transport, subscriptions ...string) {
	p.Helper()
	kit.Run(p, "client", func(ctx context.Context) error {
		return t.Run(ctx, transport.Handler{Subscriptions: subscriptions, Received: func(_ context.Context, m transport.Message) { m.Ack() }})
	})
}

func (p *patient) connectFailed() {
	tr, err := mqtt.New(mqtt.Config{ClientID: p.cluster, Logger: p.log.Logger(), Broker: config.Config{
		BrokerHost: p.Broker.Addr, Username: p.cluster, Password: "wrong", Topics: p.Topics,
	}})
	kit.NoError(p, err)
	p.client(tr)
	p.quoted("the log", p.log.String, "connect failed, retrying", "error", "advice")
	p.log.Await(p, `msg="connect failed, retrying" .*advice="check username and password`)
}

func (p *patient) subscribeFailed() {
	p.client(p.Transport(p.cluster, p.cluster, p.Topics, p.log.Logger()), "sources/hub1/clusters/of-somebody-else/sourceevents")
	p.quoted("the log", p.log.String, "subscribe failed, retrying")
}

func (p *patient) resyncFailed() {
	b := memory.NewBroker()
	b.Deny(p.cluster, "sources/+/clusters/+/agentevents")
	b.Deny(p.cluster, "clusters/+/agentbroadcast")
	p.agent(func(c *agent.Config) { c.Transport = b.Client(p.cluster) })
	p.quoted("the log", p.log.String, "resync failed; specs sent while the agent was away may be missing", "error")
}

func (p *patient) reconcileFailed() {
	p.accept(true)
	stop := p.agent(func(c *agent.Config) { c.Kube = p.limited() })
	p.work("web", configMap)
	p.quoted("the log", p.log.String, "reconcile failed, retrying")
	stop()
	p.withoutSecrets()
	p.quoted("the log", p.log.String, "applying a manifest failed, retrying")
}

func (p *patient) watchFailed() {
	p.accept(true)
	p.withoutSecrets()
	p.quoted("the log", p.log.String, "watch failed, retrying", "missingVerb", "resource")
}

// withoutSecrets starts an agent that may neither read nor write Secrets, and has a work with one.
func (p *patient) withoutSecrets() {
	p.Helper()
	p.agent(func(c *agent.Config) { c.Kube = p.limited("appliedmanifestworks", "appliedmanifestworks/status") })
	p.work("secret", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"%s"}}`)
}

func (p *patient) specRefused() {
	p.agent(func(c *agent.Config) { c.Topics = world.Topics("raw") })
	p.log.Await(p, "connected to the broker")
	raw := wirekit.Connect(p, p.Transport("raw", "raw", world.Topics("raw")), "sources/raw/clusters/"+p.cluster+"/agentevents")
	raw.Publish(p, "sources/raw/clusters/"+p.cluster+"/sourceevents", &wire.Spec{
		UID: "1", Generation: 1, Source: "raw", Cluster: wire.ClusterName(p.cluster), Action: wire.Create, Meta: metav1.ObjectMeta{Name: "web"},
		Bundle: &wire.Bundle{Manifests: []workv1.Manifest{p.manifest(`{"apiVersion":"v1"}`)}},
	}, nil)
	p.quoted("the log", p.log.String, "spec refused")
	status := wirekit.Next(p, raw, "the answer", func(s *wire.Status) bool { return s.UID == "1" })
	p.quoted("the answer", func() string { return lines(status.Status.Conditions) }, "Applied", "InvalidManifestWork")
}

func (p *patient) takenOver() {
	for range 2 {
		p.client(p.Transport(p.cluster, "one-id", p.Topics, p.log.Logger()))
	}
	p.quoted("the log", p.log.String, "session taken over")
}

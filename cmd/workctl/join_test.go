package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/brokertest"
	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestJoin has a cluster join that nobody knew, and an agent with its transport configuration
// answer at the broker.
func TestJoin(t *testing.T) {
	dir, cluster := t.TempDir(), kit.Unique("joined")
	in := func(name string) string { return filepath.Join(dir, name) }
	kit.NoError(t, os.WriteFile(in("list.yaml"), []byte("# our list\ncertificates:\n  - {name: broker, role: broker, hosts: [127.0.0.1]}\n  - name: hub1\n    role: source\n\n"), 0o640))
	_, err := run(t.Context(), t, "certs", "ensure", "--config="+in("list.yaml"))
	kit.NoError(t, err)
	b := brokertest.Start(t, broker.Config{Listeners: []broker.Listener{{Address: "127.0.0.1:0", TLS: &broker.ListenerTLS{
		CertFile: in("broker/tls.crt"), KeyFile: in("broker/tls.key"), ClientCAFile: in("broker/ca.crt"),
	}}}})
	kit.NoError(t, os.WriteFile(in("hub1.yaml"), fmt.Appendf(nil, "brokerHost: %s\ncaFile: %s\nclientCertFile: %s\nclientKeyFile: %s\n"+
		"topics: {sourceEvents: sources/hub1/clusters/+/sourceevents, agentEvents: sources/hub1/clusters/+/agentevents}\n",
		b.Addr, in("hub1/ca.crt"), in("hub1/tls.crt"), in("hub1/tls.key")), 0o600))
	join := func(format string) string {
		t.Helper()
		var out, errs bytes.Buffer
		cmd := newCommand("workctl", cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		cmd.SetArgs([]string{"join", cluster, "--config=" + in("list.yaml"), "--transport=" + in("hub1.yaml"), "--accept", "--kubeconfig=" + plane.Kubeconfig, "-o=" + format})
		if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(errs.String(), cluster+": accepted\n") || !strings.Contains(errs.String(), "next: ") {
			t.Errorf("%s: %v\n%s", format, err, errs.String())
		}
		return out.String()
	}
	if manifests := join("manifests"); !strings.HasPrefix(manifests, "apiVersion: v1\nkind: Namespace\n") || !strings.Contains(manifests, "name: work-agent-broker\n") || !strings.Contains(manifests, "tls.key: ") {
		t.Errorf("manifests:\n%s", manifests)
	}
	list, err := os.ReadFile(in("list.yaml"))
	if want := "# our list\ncertificates:\n  - {name: broker, role: broker, hosts: [127.0.0.1]}\n  - name: hub1\n    role: source\n  - {name: " + cluster + ", role: agent}\n"; err != nil || string(list) != want {
		t.Errorf("%v, the list is\n%s", err, list)
	}
	var values map[string]any
	kit.NoError(t, yaml.Unmarshal([]byte(join("values")), &values))
	if values["brokerHost"] != b.Addr || values["sourceID"] != "hub1" {
		t.Errorf("values %v", values)
	}
	transport := join("transport")
	if again, err := os.ReadFile(in("list.yaml")); err != nil || !bytes.Equal(again, list) {
		t.Errorf("%v, the list has changed again:\n%s", err, again)
	}
	managed, err := versioned.NewForConfigOrDie(plane.REST()).ClusterV1().ManagedClusters().Get(t.Context(), cluster, metav1.GetOptions{})
	if err != nil || !managed.Spec.HubAcceptsClient {
		t.Errorf("%v: %+v", err, managed)
	}
	answer(t, transport, wire.ClusterName(cluster))
	if out, err := run(t.Context(), t, "doctor", "--transport="+in("hub1.yaml"), "--cluster="+cluster, "--skip-api", "--timeout=1m"); err != nil || !strings.Contains(out, "it answered after") {
		t.Errorf("%v\n%s", err, out)
	}
}

// answer runs an agent with a transport configuration.
func answer(t *testing.T, text string, cluster wire.ClusterName) {
	t.Helper()
	broker, err := config.Parse([]byte(text))
	kit.NoError(t, err)
	tr, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: string(cluster) + "-agent", Logger: kit.Logger(t)})
	kit.NoError(t, err)
	a, err := agent.New(agent.Config{
		Cluster: cluster, ClientID: string(cluster) + "-agent", AgentID: string(cluster), BrokerHost: broker.BrokerHost, Topics: broker.Topics,
		Kube: plane.REST(), Transport: tr, Logger: kit.Logger(t),
	})
	kit.NoError(t, err)
	kit.Run(t, "agent", a.Run)
	kit.Eventually(t, "the agent is connected", a.Connected)
}

func TestJoinFaults(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		kit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		return "--config=" + filepath.Join(dir, name)
	}
	transport := "--transport=" + writeTransport(t, "127.0.0.1:1", "secret")
	list := write("list", "certificates:\n- {name: hub1, role: source}\n")
	for want, args := range map[string][]string{
		"--config is required":        {"c1", transport},
		"accepts 1 arg(s)":            {transport, list},
		"--transport is required":     {"c1", list, "--transport="},
		"only a-z, 0-9 and - are":     {"C_1", transport, list},
		"hub1 has the role source":    {"hub1", transport, list},
		"is no host:port":             {"c1", transport, list, "--broker=host"},
		"not that of a WebSocket":     {"c1", transport, list, "--broker=https://host/mqtt"},
		"no such file":                {"c1", transport, "--config=none"},
		"add the certificate yoursel": {"c1", transport, write("flow", "certificates: [{name: hub1, role: source}]\n")},
		"c2, role: agent}":            {"c2", transport, write("first", "certificates:\n- {name: hub1, role: source}\nvalidity: 24h\n")},
	} {
		t.Setenv(cli.TransportEnv, "")
		if out, err := run(t.Context(), t, append([]string{"join"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
}

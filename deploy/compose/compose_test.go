// Package compose tests that the configurations that docker-compose.yaml mounts are ones that the
// programs take. That all of it works together, only docker can tell.
package compose

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/rabbitmq"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// TestCertificates: whatever override is added, those of the base are the same, since they are kept
// in its volumes.
func TestCertificates(t *testing.T) {
	base, err := certificates.Load("certificates.yaml")
	kit.NoError(t, err)
	files, err := filepath.Glob("certificates-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no overrides, %v", err)
	}
	for _, file := range files {
		c, err := certificates.Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(c.Certificates) <= len(base.Certificates) || !reflect.DeepEqual(c.Certificates[:len(base.Certificates)], base.Certificates) {
			t.Errorf("%s does not begin with the certificates of the base: %+v", file, c.Certificates)
		}
		c.Certificates = base.Certificates
		if !reflect.DeepEqual(c, base) {
			t.Errorf("%s differs from the base in more than its certificates", file)
		}
	}
}

func TestBroker(t *testing.T) {
	c, err := broker.LoadConfig("broker.yaml")
	kit.NoError(t, err)
	// What work-broker health asks unless told otherwise.
	if c.HTTPAddress != "127.0.0.1:9641" {
		t.Errorf("httpAddress is %s", c.HTTPAddress)
	}
}

var inContainer = regexp.MustCompile(`(?m)^\w+: /certs/.*\n`)

// transport reads a file, without the certificates that it names: they are in the container.
func transport(t *testing.T, file string) config.Config {
	t.Helper()
	data, err := os.ReadFile(file)
	kit.NoError(t, err)
	c, err := config.Parse(inContainer.ReplaceAll(data, nil))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return c
}

// TestTransports: hub and agent, with one broker and with three, meet at the same topics, and the
// names of AppliedManifestWorks are the same.
func TestTransports(t *testing.T) {
	one, err := transport(t, "agent.yaml").HubIdentity()
	kit.NoError(t, err)
	three, err := transport(t, "rabbitmq/agent.yaml").HubIdentity()
	if err != nil || one != three {
		t.Errorf("names are made of %q, with RabbitMQ of %q, %v", one, three, err)
	}
	for _, dir := range []string{"", "rabbitmq/"} {
		checkTransports(t, transport(t, dir+"hub.yaml"), transport(t, dir+"agent.yaml"))
	}
}

func checkTransports(t *testing.T, hub, agent config.Config) {
	t.Helper()
	if _, err := hub.Topics.ForSource(wire.SourceID("hub1")); err != nil {
		t.Error(err)
	}
	if _, err := agent.Topics.ForAgent(wire.ClusterName("cluster1")); err != nil {
		t.Error(err)
	}
	if hub.Topics != agent.Topics {
		t.Errorf("the hub's topics are %+v, the agents' %+v", hub.Topics, agent.Topics)
	}
}

// TestRabbitMQ: the files are those of broker/rabbitmq, with three nodes.
func TestRabbitMQ(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		kit.NoError(t, err)
		return string(data)
	}
	conf := strings.Replace(read("../../broker/rabbitmq/rabbitmq.conf"), "/certs/client-ca.crt", "/certs/ca.crt", 1)
	if got := read("rabbitmq/rabbitmq.conf"); !strings.HasPrefix(got, conf) || strings.Count(got[len(conf):], "rabbit@broker") != 3 {
		t.Error("rabbitmq.conf is not that of broker/rabbitmq with three nodes")
	}
	if read("rabbitmq/enabled_plugins") != read("../../broker/rabbitmq/enabled_plugins") {
		t.Error("enabled_plugins differ")
	}
	want, err := rabbitmq.Definitions([]broker.User{
		{Username: "hub1", ID: "hub1", Role: acl.Source}, {Username: "cluster1", ID: "cluster1", Role: acl.Agent},
	})
	kit.NoError(t, err)
	if read("rabbitmq/definitions.json") != string(want) {
		t.Error("make definitions.json again: go run ./broker/rabbitmq/definitions hub1=source.hub1 cluster1 >deploy/compose/rabbitmq/definitions.json")
	}
}

// TestMonitoring: the commands of deploy/compose/monitoring.yaml begin with those of the base, and its
// broker differs from that of the base in its listener for metrics only.
func TestMonitoring(t *testing.T) {
	type file struct {
		Services map[string]struct{ Command []string }
	}
	read := func(name string) (f file) {
		data, err := os.ReadFile("../../" + name)
		kit.NoError(t, err)
		kit.NoError(t, yaml.Unmarshal(data, &f))
		return f
	}
	base, more := read("docker-compose.yaml"), read("deploy/compose/monitoring.yaml")
	for _, service := range []string{"hub", "agent"} {
		want, got := base.Services[service].Command, more.Services[service].Command
		if len(want) == 0 || len(got) <= len(want) || !reflect.DeepEqual(got[:len(want)], want) {
			t.Errorf("%s: %q does not begin with %q", service, got, want)
		}
	}
	one, err := broker.LoadConfig("broker.yaml")
	kit.NoError(t, err)
	other, err := broker.LoadConfig("monitoring/broker.yaml")
	kit.NoError(t, err)
	if other.HTTPTokenFile == "" || other.HTTPCertFile == "" {
		t.Error("the listener for metrics asks for no token, or has no certificate")
	}
	other.HTTPAddress, other.HTTPCertFile, other.HTTPKeyFile, other.HTTPTokenFile = one.HTTPAddress, "", "", ""
	other.File = one.File
	if !reflect.DeepEqual(one, other) {
		t.Errorf("%+v differs from %+v", other, one)
	}
}

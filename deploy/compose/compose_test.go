// Package compose tests that the configurations that docker-compose.yaml mounts are ones that the
// programs take. That all of it works together, only docker can tell.
package compose

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/certificates"
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

func TestTransports(t *testing.T) {
	hub, agent := transport(t, "hub.yaml"), transport(t, "agent.yaml")
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

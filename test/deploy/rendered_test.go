package deploy

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// build is what kustomize makes of a folder.
func build(t *testing.T, folder string) []byte {
	t.Helper()
	kubectl, err := filepath.Abs("../../bin/kubectl")
	kit.NoError(t, err)
	out, err := exec.Command(kubectl, "kustomize", folder).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("kustomize %s: %s", folder, exit.Stderr)
		}
		t.Fatal(err)
	}
	return out
}

// objectsOf gives the objects in a stream of YAML by kind and name. Two of one kind and name fail
// the test.
func objectsOf(t *testing.T, stream []byte) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return found
		}
		kit.NoError(t, err)
		if len(obj.Object) == 0 {
			continue
		}
		key := obj.GetKind() + " " + obj.GetName()
		if found[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		found[key] = obj
	}
}

// parseTransport checks the transport configuration of an agent or hub, but for files that only a
// pod has.
func parseTransport(text []byte) error {
	var keys map[string]any
	if err := sigsyaml.UnmarshalStrict(text, &keys); err != nil {
		return err
	}
	for _, file := range []string{"caFile", "clientCertFile", "clientKeyFile"} {
		if path, _ := keys[file].(string); filepath.Dir(path) != "/etc/workwire/broker" {
			return errors.New(file + " is not of the mounted Secret: " + path)
		}
		delete(keys, file)
	}
	text, err := sigsyaml.Marshal(keys)
	if err != nil {
		return err
	}
	cfg, err := config.Parse(text)
	if err != nil {
		return err
	}
	_, agentErr := cfg.Topics.ForAgent(wire.ClusterName("cluster1"))
	_, sourceErr := cfg.Topics.ForSource(wire.SourceID("hub1"))
	return errors.Join(agentErr, sourceErr)
}

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

// TestApplyWithoutBroker: a broker that does not answer is named, not an agent that is slow.
func TestApplyWithoutBroker(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections are made, and nobody accepts them
	kit.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	file := filepath.Join(t.TempDir(), "web.yaml")
	kit.NoError(t, os.WriteFile(file, []byte("apiVersion: work.open-cluster-management.io/v1\nkind: ManifestWork\nmetadata: {namespace: c1, name: web}\n"+
		"spec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}]}}\n"), 0o600))
	transport := writeTransport(t, silent.Addr().String(), "secret")
	text, err := os.ReadFile(transport)
	kit.NoError(t, err)
	kit.NoError(t, os.WriteFile(transport, append(text, "dialTimeout: 1s\n"...), 0o600))
	out, err := run(t.Context(), t, "apply", "-f="+file, "--transport="+transport)
	if coded, ok := errors.AsType[*cli.Error](err); err == nil || ok && coded.ExitCode() == cli.ExitTimeout || !strings.Contains(err.Error(), silent.Addr().String()) {
		t.Errorf("%v\n%s", err, out)
	}
	conn, err := silent.Accept()
	kit.NoError(t, err)
	sent, err := io.ReadAll(conn)
	if !regexp.MustCompile(`workctl-[0-9a-f-]{36}`).Match(sent) { // which each user may have at RabbitMQ
		t.Errorf("the client id is another: %q, %v", sent, err)
	}
	kit.NoError(t, conn.Close())
}

// TestApplyAndDelete sends works without a hub to a real agent, again and again, with nothing kept
// between the runs, while the agent is there, while it is away, and after it has restarted.
func TestApplyAndDelete(t *testing.T) {
	w := edge(t)
	cluster, target := string(w.Clusters[0]), w.Targets[0]
	transport := "--transport=" + writeTransport(t, w.Broker.Addr, "secret")
	file := filepath.Join(t.TempDir(), "web.yaml")
	work := func(value string) {
		kit.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: web}
spec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: %s}, data: {k: %q}}]}}
`, target, value), 0o600))
	}
	step := func(code int, want string, args ...string) {
		t.Helper()
		out, err := run(t.Context(), t, append(args, transport, "-n="+cluster)...)
		got := 0
		if coded, ok := errors.AsType[*cli.Error](err); ok {
			got = coded.ExitCode()
		} else if err != nil {
			got = 1
		}
		if text := fmt.Sprint(out, err); got != code || !strings.Contains(text, want) {
			t.Errorf("%q: exit code %d, want %d with %q: %s", args, got, code, want, text)
		}
	}
	configMaps := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().ConfigMaps(target)
	holds := func(value string) {
		t.Helper()
		kit.Eventually(t, "the cluster has the value "+value, func() error {
			found, err := configMaps.Get(t.Context(), "settings", metav1.GetOptions{})
			if value == "" && apierrors.IsNotFound(err) {
				return nil
			}
			if err != nil {
				return err
			}
			if found.Data["k"] != value {
				return fmt.Errorf("it has %v", found.Data)
			}
			return nil
		})
	}

	work("1")
	step(1, "no agent subscribes to the cluster's topic", "apply", "-f="+file)
	stop := w.StartAgent(0).Stop
	kit.Eventually(t, "the agent listens", func() error {
		_, err := run(t.Context(), t, "apply", "-f="+file, transport, "-n="+cluster)
		return err
	})
	step(0, "✓ "+cluster+"/web  Ready", "apply", "-f="+file)
	holds("1")
	step(0, `"done": true`, "apply", "-f="+file, "-o=json")
	work("2")
	step(0, "✓", "apply", "-f="+file)
	holds("2")
	stop()

	work("3")
	step(3, "1 work is not done after 3s\nWhat to do: look at the agent's log", "apply", "-f="+file, "--timeout=3s")
	stop = w.StartAgent(0).Stop
	holds("3")
	work("4")
	step(0, "sent", "apply", "-f="+file, "--wait=false")
	holds("4")
	step(0, "✓ "+cluster+"/web  deleted", "delete", "work", "web")
	holds("")
	step(0, "✓ "+cluster+"/web  deleted", "delete", "-f="+file)
	step(0, "✓", "apply", "-f="+file, "--for=available")
	holds("4")
	step(0, "✓", "apply", "-f="+file, "--for=ready")
	stop()

	step(2, "-f is required", "apply")
	step(2, "--for=deleted is what", "apply", "-f="+file, "--for=deleted")
	step(2, "name works, or give -f", "delete")
	step(2, "--timeout must not be negative", "delete", "-f="+file, "--timeout=-1s")
	step(1, "no such file", "apply", "-f="+file, "--signing-key=none")
}

// edge returns a world with source hub1, a broker, and a cluster whose agent serves all sources. The agent keeps no state
// of its own.
func edge(t *testing.T) *world.World {
	t.Helper()
	w := world.New(t, world.Options{Spokes: []*controlplane.Plane{plane}, Source: "hub1",
		Topics: wire.Topics{SourceEvents: "sources/+/clusters/+/sourceevents", AgentEvents: "sources/+/clusters/+/agentevents"}})
	w.StartBroker(broker.Config{})
	return w
}

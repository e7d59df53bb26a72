package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// writeTransport writes the transport configuration of hub1 and returns its path.
func writeTransport(t *testing.T, address, password string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "transport.yaml")
	kit.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "brokerHost: %s\nusername: hub1\npassword: %s\n"+
		"topics: {sourceEvents: sources/hub1/clusters/+/sourceevents, agentEvents: sources/hub1/clusters/+/agentevents}\n", address, password), 0o600))
	return path
}

func TestDoctorCommand(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: []broker.User{{Username: "hub1", Password: "secret", Role: acl.Source}}})
	good := "--transport=" + writeTransport(t, b.Addr, "secret")
	out, err := run(t.Context(), t, "doctor", good, "--skip-api")
	if err != nil || !strings.Contains(out, "VERDICT  CHECK      MESSAGE\nok       address") || !strings.Contains(out, "skipped  publish    nobody to ask is given. What to do: use --cluster") {
		t.Errorf("%v:\n%s", err, out)
	}
	out, err = run(t.Context(), t, "doctor", "--transport="+writeTransport(t, b.Addr, "wrong"), "--skip-api", "-o=json")
	var failed *cli.Error
	if !errors.As(err, &failed) || failed.Code != cli.ExitNo || !strings.Contains(out, `"verdict": "fault",`) || strings.Contains(out, "wrong") {
		t.Errorf("%v:\n%s", err, out)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	kit.NoError(t, closed.Close())
	for want, args := range map[string][]string{
		"--as must be source":     {"--as=hub"},
		"--as=agent needs":        {"--as=agent"},
		"--rights must be":        {"--rights=none"},
		"--timeout must be":       {"--timeout=0s"},
		"no such file":            {good, "--signing-key=none"},
		"there are faults":        {"--skip-api", "--transport=" + writeTransport(t, closed.Addr().String(), "secret")},
		"read the kubeconfig":     {good, "--kubeconfig=none"},
		"none: no such file or d": {"--transport=none"},
	} {
		if out, err := run(t.Context(), t, append([]string{"doctor"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
}

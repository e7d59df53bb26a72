package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/workwire/workwire/controlplane/internal/credentials"
	"github.com/workwire/workwire/controlplane/internal/plane"
)

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestKubeconfigForAUser(t *testing.T) {
	dir := t.TempDir()
	noError(t, os.MkdirAll(plane.PKI(dir), 0o700))
	if _, err := credentials.OpenAuthority(plane.PKI(dir)); err != nil {
		t.Fatal(err)
	}
	state := []byte(`{"role":"hub","name":"east","port":6443}`)
	noError(t, os.WriteFile(filepath.Join(dir, "state.json"), state, 0o600))
	out, err := execute(t, "kubeconfig", "--dir="+dir, "--user=jane", "--group=a", "--group=b")
	noError(t, err)
	config, err := clientcmd.Load([]byte(out))
	noError(t, err)
	if config.CurrentContext != "east" || config.Clusters["east"].Server != "https://127.0.0.1:6443" || config.AuthInfos["jane"] == nil {
		t.Errorf("kubeconfig %s", out)
	}
	out, err = execute(t, "kubeconfig", "--dir="+dir, "--user=jane", "--server=https://hub-api:7443")
	if err != nil || !strings.Contains(out, "server: https://hub-api:7443\n") {
		t.Errorf("for another server: %s, error %v", out, err)
	}
	file := filepath.Join(dir, "jane")
	if out, err := execute(t, "kubeconfig", "--dir="+dir, "--user=jane", "-o", file); err != nil || out != "" {
		t.Errorf("printed %q, error %v", out, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file %v, error %v", info, err)
	}
}

func TestFaultsAreNamed(t *testing.T) {
	empty := t.TempDir()
	tests := map[string]struct {
		args []string
		want string
	}{
		"kubeconfig of nothing":   {[]string{"kubeconfig", "--dir=" + empty, "--user=jane"}, "holds no control plane; start one there"},
		"kubeconfig for nobody":   {[]string{"kubeconfig", "--dir=" + empty}, "--dir and --user are required"},
		"up without flags":        {[]string{"up"}, "--role must be hub or spoke"},
		"an argument too many":    {[]string{"up", "now"}, `unknown command "now"`},
		"a command that is not":   {[]string{"down"}, `unknown command "down"`},
		"nodes asked of a hub":    {[]string{"up", "--role=hub", "--dir=" + empty, "--nodes=3"}, "a hub has no nodes"},
		"a port that is no port":  {[]string{"up", "--role=hub", "--dir=" + empty, "--port=70000"}, "--port=70000"},
		"an access without file":  {[]string{"up", "--role=hub", "--dir=" + empty, "--kubeconfig-for=jane"}, "--kubeconfig-for=jane= must be USER=FILE"},
		"health of nothing":       {[]string{"health", "--dir=" + empty}, "is not ready: it does not run or is still starting"},
		"health nowhere":          {[]string{"health"}, "--dir is required"},
		"health in no time":       {[]string{"health", "--dir=" + empty, "--timeout=0s"}, "--timeout=0s must be positive"},
		"a lifetime of the past":  {[]string{"kubeconfig", "--dir=" + empty, "--user=j", "--lifetime=-1h"}, "--lifetime=-1h0m0s must be positive"},
		"a duration without unit": {[]string{"up", "--start-timeout=5"}, "missing unit"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := execute(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

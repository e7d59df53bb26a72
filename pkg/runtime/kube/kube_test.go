package kube_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/test/kit"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:6443"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {token: t}}]
current-context: a
`

func TestRESTConfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	for file, text := range map[string]string{good: kubeconfig, bad: "{"} {
		kit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	for _, c := range []struct {
		options kube.Options
		qps     float32
		burst   int
		fault   string
	}{
		{kube.Options{Kubeconfig: good, QPS: 50, Burst: 100}, 50, 100, ""},
		{kube.Options{Kubeconfig: good, QPS: 0.5}, 0.5, 1, ""},
		{kube.Options{Kubeconfig: good}, -1, 0, ""},
		{kube.Options{Kubeconfig: good, QPS: -3}, -1, 0, ""},
		{kube.Options{Kubeconfig: bad}, 0, 0, bad + " (--kubeconfig)"},
		{kube.Options{Kubeconfig: "/nowhere"}, 0, 0, "/nowhere (--kubeconfig)"},
		{kube.Options{}, 0, 0, "--kubeconfig is required outside of a pod"},
	} {
		config, err := c.options.RESTConfig("me")
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%+v: error %v, want %q", c.options, err, c.fault)
			}
			continue
		}
		kit.NoError(t, err)
		if config.QPS != c.qps || config.Burst != c.burst || config.UserAgent != "me" || config.Host != "https://127.0.0.1:6443" {
			t.Errorf("%+v: QPS %v, burst %d, agent %q, host %q", c.options, config.QPS, config.Burst, config.UserAgent, config.Host)
		}
	}
}

func TestFlagsAndValidate(t *testing.T) {
	o := kube.Options{QPS: 50, Burst: 100}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(fs)
	if faults := o.Validate(); len(faults) > 0 {
		t.Error(faults)
	}
	kit.NoError(t, fs.Parse([]string{"--kubeconfig=f", "--kube-api-qps=7", "--kube-api-burst=-1"}))
	if want := (kube.Options{Kubeconfig: "f", QPS: 7, Burst: -1}); o != want {
		t.Errorf("got %+v", o)
	}
	if faults := o.Validate(); len(faults) != 1 || !strings.Contains(faults[0].Error(), "--kube-api-burst") {
		t.Errorf("faults %v", faults)
	}
	o.Burst = 0
	if faults := o.Validate(); len(faults) > 0 {
		t.Error(faults)
	}
}

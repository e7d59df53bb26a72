package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// written writes a file for a test and returns its path.
func written(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "transport.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const goodTopics = `topics: {sourceEvents: sources/hub1/clusters/+/sourceevents, agentEvents: sources/hub1/clusters/+/agentevents}`

func TestAllErrorsAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		config string // of the transport; none when empty
		args   []string
		want   []string
	}{
		"nothing":                        {"", []string{}, []string{"--cluster-name is required", "--transport-config is required", "See work-agent --help"}},
		"unknown flag":                   {"", []string{"--cluster=c1"}, []string{"unknown flag: --cluster"}},
		"several brokers without a name": {"brokerHost: [b1:1883, b2:1883]\n" + goodTopics, []string{"--cluster-name=c1"}, []string{"hubName: required with several addresses", `hubName: "b1:1883"`}},
		"wrong values": {"brokerHost: b:1883\n" + goodTopics,
			[]string{"--cluster-name=c1", "--appliedmanifestwork-eviction-grace-period=0s", "--max-feedback-watch=-1", "--max-json-raw-length=2000", "--transport=grpc", "--cloudevents-client-codecs=manifest", "--workers=0", "--status-sync-interval=1ms", "--signature-max-age=1s", "--require-sealed=*", "--max-uplink=1", "--max-source-specs=1Ki", "--listen-address=0.0.0.0:1"},
			[]string{"--appliedmanifestwork-eviction-grace-period must", "--max-feedback-watch must", "got 2000", "--transport must", "--cloudevents-client-codecs must", "--workers must", "--status-sync-interval must", "--signature-max-age must", "--require-sealed needs --unseal-key", "--max-uplink must be 1024 to", "--max-source-specs must be at least", "--listen-address"}},
		"unknown link": {"", []string{"--cluster-name=c1", "--link=satellite"}, []string{"--link", "satellite", "must be normal or metered"}},
		"a limit without its feature": {"brokerHost: b:1883\n" + goodTopics,
			[]string{"--cluster-name=c1", "--max-json-raw-length=100"}, []string{"--max-json-raw-length=100 has no effect", "RawFeedbackJsonString=true"}},
		"unknown feature": {"", []string{"--feature-gates=Flying=true"}, []string{"--feature-gates", "Flying"}},
		"no such file":    {"", []string{"--cluster-name=c1", "--transport-config=/no/such/file"}, []string{"--transport-config", "/no/such/file", "no such file"}},
		"several errors in the file": {"brokerhost: b\npassword: x\ntopics: {sourceEvents: a/b, agentEvents: sources/hub1/clusters/+/agentevents}",
			[]string{"--cluster-name=c1"}, []string{"did you mean brokerHost", "brokerHost", "topics.sourceEvents"}},
		"another cluster's topics": {"brokerHost: b:1883\ntopics: {sourceEvents: sources/hub1/clusters/c2/sourceevents, agentEvents: sources/hub1/clusters/+/agentevents}",
			[]string{"--cluster-name=c1"}, []string{"topics.sourceEvents", `names another cluster than "c1"`}},
		"no such certificate": {"brokerHost: b:1883\ncaFile: /no/such/ca.crt\n" + goodTopics,
			[]string{"--cluster-name=c1"}, []string{"caFile", "/no/such/ca.crt"}},
		"cluster name that no topic can hold": {"brokerHost: b:1883\n" + goodTopics, []string{"--cluster-name=C_1"}, []string{`cluster name "C_1"`}},
	} {
		t.Run(name, func(t *testing.T) {
			args := c.args
			if c.config != "" {
				args = append(args, "--transport-config="+written(t, c.config))
			}
			cmd := newCommand()
			cmd.SetArgs(args)
			cmd.SetOut(&bytes.Buffer{})
			err := cmd.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

// TestOCMNames starts with OCM's flags only, up to a kubeconfig that does not exist.
func TestOCMNames(t *testing.T) {
	cmd := newCommand()
	cmd.SetArgs([]string{
		"--workload-source-driver=mqtt", "--workload-source-config=" + written(t, "brokerHost: b:1883\n"+goodTopics),
		"--spoke-cluster-name=c1", "--spoke-kubeconfig=/no/such/kubeconfig", "--cloudevents-client-id=c1-agent",
		"--cloudevents-client-codecs=manifestbundle", "--status-sync-interval=10s", "--agent-id=a", "--kube-api-qps=50",
		"--kube-api-burst=100", "--disable-leader-election", "--workload-agent-workers=10", "--max-feedback-watch=50", "--max-json-raw-length=1024",
		"--appliedmanifestwork-eviction-grace-period=60m", "--feature-gates=RawFeedbackJsonString=true,ExecutorValidatingCaches=false", "--listen-address=0",
	})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "/no/such/kubeconfig") {
		t.Errorf("ends with %v, want it to miss the kubeconfig", err)
	}
}

func TestHelpNamesDefaultsAndAliases(t *testing.T) {
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The cluster:", "The broker:", "Works:", "Feature gates:", "ExecutorValidatingCaches", "--max-feedback-watch int", "--appliedmanifestwork-eviction-grace-period duration", "--status-sync-interval duration", "(default 10s)", "--spoke-cluster-name (--cluster-name)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help does not say %q", want)
		}
	}
}

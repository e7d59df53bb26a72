package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/test/kit"
)

const list = "certificates:\n- {name: broker, role: broker, hosts: [localhost]}\n- {name: cluster1, role: agent}\n"

// run runs the command and returns its output.
func run(ctx context.Context, t testing.TB, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand("workctl", cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// TestInputInterrupted: input that does not come is not waited for after the end of the context.
func TestInputInterrupted(t *testing.T) {
	for _, args := range [][]string{{"wrap", "-f=-", "--name=web"}, {"join", "berlin", "--token=-"}} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		stdin, typist := io.Pipe()
		defer time.AfterFunc(kit.Patience, func() { _ = typist.Close() }).Stop()
		defer func() { _ = typist.Close() }()
		cmd := newCommand("workctl", cli.Streams{In: stdin, Out: io.Discard, Err: io.Discard})
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func writeList(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "certificates.yaml")
	kit.NoError(t, os.WriteFile(path, []byte(list), 0o600))
	return path
}

// TestLifecycle runs all commands in the order in which an operator needs them.
func TestLifecycle(t *testing.T) {
	config := "--config=" + writeList(t)
	for _, step := range []struct {
		args []string
		want string // a pattern
	}{
		{[]string{"ensure"}, `(?s)created the authority workwire .*broker: issued until .*cluster1: issued until`},
		{[]string{"ensure", "--renew=broker"}, `(?s)broker: issued .*requested.*1 certificate unchanged`},
		{[]string{"show"}, `(?s)authority workwire \w+ \(current\), .*cluster1 +agent +- +workwire \w+ +20.* good\n`},
		{[]string{"show", "-o=name"}, `^broker\ncluster1\n$`},
		{[]string{"show", "-o=jsonpath={.authorities[*].place} {.certificates[?(@.role==\"agent\")].name}"}, `^current cluster1$`},
		{[]string{"show", "-o=yaml"}, `(?s)- hosts:\n  - localhost.*notAfter: "20`},
		{[]string{"secret", "--name=cluster1", "--namespace=ns"}, `kind: Secret`},
		{[]string{"revoke", "--name=cluster1"}, `cluster1: 1 certificate revoked`},
		{[]string{"show"}, `(?s)1 revoked.*due: it is revoked`},
		{[]string{"ensure"}, `cluster1: issued .*revoked`},
		{[]string{"rotate-authority", "--step=trust"}, `(?s)created the next authority .*continue with --step=issue`},
		{[]string{"rotate-authority", "--step=issue"}, `(?s)is now the issuing authority.*continue with --step=drop`},
		{[]string{"rotate-authority", "--step=drop"}, `is no longer trusted`},
		{[]string{"rotate-authority", "--step=drop"}, `unchanged, the step was taken before`},
	} {
		out, err := run(t.Context(), t, append([]string{"certs"}, append(step.args, config)...)...)
		if err != nil || !regexp.MustCompile(step.want).MatchString(out) {
			t.Errorf("%q: %v, want %q:\n%s", step.args, err, step.want, out)
		}
	}
}

func TestFaults(t *testing.T) {
	config := "--config=" + writeList(t)
	for want, args := range map[string][]string{
		"--config is required":                 {"ensure"},
		"--owner \"root\"":                     {"ensure", config, "--owner=root"},
		"--every":                              {"ensure", config, "--every=1ms"},
		"exclude each other":                   {"ensure", config, "--every=1h", "--renew=all"},
		"is not in the list":                   {"ensure", config, "--renew=nobody"},
		"--name is required":                   {"secret", config},
		"--namespace is required":              {"secret", config},
		"--step must be":                       {"rotate-authority", config},
		"there is no authority yet":            {"show", config},
		"See workctl certs revoke --help":      {"revoke", config},
		"unknown command \"enshure\" for":      {"enshure"},
		"list of certificates /dev/null: cert": {"show", "--config=/dev/null"},
	} {
		if _, err := run(t.Context(), t, append([]string{"certs"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	for _, args := range [][]string{{"certs", "ensure"}, {"certs", "show", config, "extra"}, {"keys", "new", "--type=x"}} {
		_, err := run(t.Context(), t, args...)
		if coded, ok := errors.AsType[*cli.Error](err); !ok || coded.ExitCode() != cli.ExitUsage {
			t.Errorf("%q: not the exit code of usage errors: %v", args, err)
		}
	}
}

// TestEvery checks that ensure --every repeats and reads the changed list.
func TestEvery(t *testing.T) {
	path, dir := writeList(t), t.TempDir()
	stop := kit.Run(t, "ensure --every", func(ctx context.Context) error {
		_, err := run(ctx, t, "certs", "ensure", "--config="+path, "--dir="+dir, "--every=1s")
		return err
	})
	await := func(name string) {
		t.Helper()
		kit.Eventually(t, "the certificate "+name, func() error {
			_, err := os.Stat(filepath.Join(dir, name, "tls.crt"))
			return err
		})
	}
	await("cluster1")
	kit.NoError(t, os.WriteFile(path+".new", []byte(list+"- {name: cluster2, role: agent}\n"), 0o600))
	kit.NoError(t, os.Rename(path+".new", path))
	await("cluster2")
	stop()
}

// TestPlugin checks that the help of the kubectl plugin names "kubectl work", and that invalid flags
// and arguments have the exit code of usage errors.
func TestPlugin(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand("kubectl-work", cli.Streams{Out: &out, Err: &out})
	cmd.SetArgs([]string{"keys", "list", "--help"})
	kit.NoError(t, cmd.ExecuteContext(t.Context()))
	if text := out.String(); !strings.Contains(text, "Usage:\n  kubectl work keys list") || strings.Contains(text, "workctl ") {
		t.Errorf("the help of the plugin:\n%s", out.String())
	}
	for want, args := range map[string][]string{
		"unknown command \"keyz\" for \"workctl\", did you mean keys?\nSee workctl --help":                                {"keyz"},
		"unknown flag: --nope\nSee workctl --help":                                                                        {"--nope"},
		"--context has no effect on workctl keys list, which talks to no hub and no broker\nSee workctl keys list --help": {"keys", "list", "--key=x", "--context=y"},
		"--transport has no effect on workctl wrap, which talks to no hub and no broker\nSee workctl wrap --help":         {"wrap", "--transport=y"},
		"--color must be auto, always or never, got \"blue\"":                                                             {"--color=blue", "keys", "list", "--key=x"},
	} {
		_, err := run(t.Context(), t, args...)
		coded, ok := errors.AsType[*cli.Error](err)
		if !ok || coded.ExitCode() != cli.ExitUsage || err.Error() != want {
			t.Errorf("%q: %v, want %q with exit code 2", args, err, want)
		}
	}
}
